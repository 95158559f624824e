"""The console as commands start it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.access.authority import Authority, Signer
from tests.cli.conftest import Run, Spawn
from tests.selection import for_each
from txn_source import connect


def address_in(process: subprocess.Popen[bytes], pipe: Any, pattern: bytes) -> str:
    """Return what a line of a process's output has in the place of a group; fail if it ends before."""
    for line in pipe:
        if found := re.search(pattern, line):
            return found[1].decode()
    raise AssertionError(process.communicate())


def ask(address: str, path: str, trusted: ssl.SSLContext | None = None, **headers: str) -> tuple[int, Any]:
    host = address.split("//")[1].rstrip("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    if trusted is not None:
        connection = http.client.HTTPSConnection(host, timeout=60, context=trusted)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if path.startswith("/api/") else body
    finally:
        connection.close()


@pytest.mark.long
def test_an_embedded_log_is_shown_until_it_is_stopped(spawn: Spawn, tmp_path: Path) -> None:
    """Start ``txnlog console`` while the log is written to; stop it while somebody is connected."""
    with connect(tmp_path / "log") as log:
        log.create_topic("t")
        process = spawn("--root", tmp_path / "log", "console", "--port", 0)
        address = address_in(process, process.stdout, rb"is at (http://127.0.0.1:\d+/)")
        assert ask(address, "/")[0] == 200
        log.create_topic("u")
        assert ask(address, "/api/topic?name=u")[0] == 200
        idle = http.client.HTTPConnection(address.split("//")[1].rstrip("/"), timeout=60)
        idle.connect()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        idle.close()


def test_a_service_shows_its_log(spawn: Spawn, tmp_path: Path) -> None:
    """Start a service with a certificate and a console that asks for tokens: it has the same certificate, and stops
    with the service."""
    signer, authority = Signer(tmp_path), Authority(tmp_path)
    cert, key = authority.issue("service")
    trusted = ssl.create_default_context(cafile=str(authority.ca))
    process = spawn(
        *("--root", tmp_path / "log", "serve", "--port", 0, "--console-port", 0, "--console-name", "c.example"),
        *("--token-keys", signer.public_file, "--tls-cert", cert, "--tls-key", key),
    )
    address = address_in(process, process.stderr, rb"console on (https://\S+)")
    assert ask(address, "/api/overview", trusted)[0] == 401
    bearer = {"Authorization": f"Bearer {signer.token(admin=['*'])}"}
    status, about = ask(address, "/api/about", trusted, Host="c.example", **bearer)
    assert (status, about["caller"], about["tokens"]) == (200, "alice", True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert b"stopped serving" in process.stderr.read()


@for_each(
    ("words", "told"),
    [
        (("--endpoint", "localhost:1", "console"), "--console-port"),
        (("console", "--endpoint", "localhost:1"), "--console-port"),
        (("console", "--root", "none"), "LOG_NOT_FOUND"),
        (("console", "--root", "none", "--host", "0.0.0.0"), "--insecure"),
        (("console",), "--root"),
    ],
)
def test_what_can_not_be_shown_is_told(
    bare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    """Ask for the console of a service, of no log, and of one that others could reach."""
    monkeypatch.chdir(tmp_path)
    result = bare(*words)
    assert result.exit_code in (1, 2)
    assert told in result.output
    assert list(tmp_path.iterdir()) == []
