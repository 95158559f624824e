from __future__ import annotations

import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import txn_source

STARTED = re.compile(r".* INFO serving on (127\.0\.0\.1:\d+), root (.+), log ([0-9a-f]{32})\n")


def address_of(process: subprocess.Popen[bytes]) -> str:
    """Wait for the line that says that it serves, and return the address in it."""
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    found = STARTED.fullmatch(line)
    assert found, line + process.stderr.read().decode()
    return found[1]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_service_starts_answers_and_stops(stop: signal.Signals, spawn: Any, bare: Any, root: Path) -> None:
    """The life of a service: a new root, its health, a topic made and listed through it, a signal, two lines of log."""
    process = spawn("serve", "--root", root, "--port", "0")
    address = address_of(process)
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "txnlog.v1.MetadataService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert bare("--endpoint", address, "topics", "create", "orders").exit_code == 0
    assert bare("produce", "orders", "--endpoint", address, input="a\nb\n").exit_code == 0
    assert bare("--endpoint", address, "consume", "orders").stdout == "a\nb\n"
    process.send_signal(stop)
    output, errors = process.communicate()
    assert (process.returncode, output) == (0, b"")
    assert re.fullmatch(rf".* INFO stopped serving on {address} \({stop.name}\)\n", errors.decode())
    with txn_source.connect(root, create=False) as log:
        assert log.topics() == ["orders"]


def test_taken_port_is_one_readable_line(spawn: Any, root: Path) -> None:
    """gRPC's own report would be several: listen on a port, then serve there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = spawn("serve", "--root", root, "--port", port)
        output, errors = process.communicate()
    assert (process.returncode, output, errors.count(b"\n")) == (1, b"", 1)
    assert errors.decode().startswith(
        f"[TXNLOG_UNAVAILABLE] The server can't listen on 127.0.0.1:{port}: the port is taken"
    )


def test_folder_of_something_else_is_refused(spawn: Any, root: Path) -> None:
    """A service must not make a log among other people's files: put one there and serve."""
    root.mkdir()
    (root / "letter.txt").write_text("Dear Sir")
    process = spawn("serve", "--root", root, "--port", "0")
    output, errors = process.communicate()
    assert (process.returncode, output) == (1, b"")
    assert errors.decode().startswith(f"[TXNLOG_LOG_NOT_FOUND] There is no log at {root}")
    assert [path.name for path in root.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("given", [[], ["--endpoint", "localhost:1"]])
def test_service_needs_a_root(given: list[str], bare: Any) -> None:
    """An endpoint is what it makes, not what it takes: serve without a root, and with an endpoint."""
    result = bare(*given, "serve")
    assert result.exit_code == 2
    assert "--root PATH" in " ".join(result.stderr.replace("│", " ").split())
