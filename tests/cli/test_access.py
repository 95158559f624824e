"""Tokens and certificates on the command line: the commands of docs/access.md, in their order, and wrong usage."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.access.authority import Authority, Signer
from tests.cli.conftest import Served

DOCS = (Path(__file__).parents[2] / "docs" / "access.md").read_text(encoding="utf-8")
SERVING = re.compile(r".* INFO serving on (\S+), root .*\n")


@pytest.fixture(autouse=True)
def _no_credentials_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "TOKEN_FILE", "TLS_CA", "TLS_CERT", "TLS_KEY"):
        monkeypatch.delenv(f"TXNLOG_{name}", raising=False)


def blocks(language: str) -> list[list[str]]:
    """Return the lines of the document's blocks of a language."""
    return [block.splitlines() for block in re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)]


def address_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    found = SERVING.fullmatch(line)
    assert found, line + process.stderr.read().decode()
    return found[1]


@pytest.mark.long
def test_commands_of_the_document(tmp_path: Path, bare: Any, spawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each of them in an empty folder with a certificate; only the address and the root are another one."""
    monkeypatch.chdir(tmp_path)
    authority = Authority(tmp_path)
    for made, name in zip(authority.issue("made"), ("service.crt", "service.key"), strict=True):
        made.rename(name)
    authority.ca.rename("ca.crt")
    keys, serving, after = blocks("bash")
    assert (len(keys), len(serving), len(after)) == (4, 1, 3)
    address = ""
    for line in [*keys, *serving, *after]:
        command, *words = shlex.split(line)
        words = [{"/srv/log": str(tmp_path / "log"), "0.0.0.0": "127.0.0.1"}.get(word, word) for word in words]
        if command == "export":
            for name, value in (word.split("=", 1) for word in words):
                monkeypatch.setenv(name, address if value == "localhost:6650" else value)
            continue
        assert command == "txnlog"
        if words[0] == "serve":
            address = address_of(spawn(*words, "--port", "0"))
            continue
        result = bare(*words)
        assert (result.exit_code, result.stderr) == (0, ""), line
        if words[:2] == ["tokens", "show"]:
            assert "subject: loader\n" in result.stdout
            assert "taken: True\n" in result.stdout
            assert "produce: bank/public/*\n" in result.stdout
    assert "persistent://bank/public/orders" in result.stdout
    [line] = (line for block in blocks("python") for line in block if line.startswith("log = "))
    names = {"txn_source": txn_source}
    exec(line.replace("localhost:6650", address), names)
    with names["log"] as log, log.producer("bank/public/orders") as producer:
        producer.send(b"1")
    audited = [json.loads(line) for line in Path("audit.jsonl").read_text().splitlines()]
    assert [(line["who"], line["call"], line["outcome"]) for line in audited] == [("ops", "CreateTopic", "ok")]
    assert stat.S_IMODE(os.stat("loader.token").st_mode) == stat.S_IMODE(os.stat("signing.key").st_mode) == 0o600


def test_token_is_shown_without_itself(tmp_path: Path, bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show a token from a file, standard input and the environment, as text and as JSON; the signature isn't there."""
    signer = Signer(tmp_path)
    token = signer.sign(signer.claims("bob", consume=["bank/*"]) | {"nbf": 1_700_000_000})
    file = tmp_path / "token"
    file.write_text(token)
    shown = [bare("tokens", "show", file), bare("tokens", "show", "-", input=f"{token}\n")]
    monkeypatch.setenv("TXNLOG_TOKEN_FILE", str(file))
    shown.append(bare("tokens", "show"))
    monkeypatch.setenv("TXNLOG_TOKEN", token)
    shown.append(bare("tokens", "show"))
    assert {(result.exit_code, result.stdout) for result in shown} == {(0, shown[0].stdout)}
    assert "subject: bob\n" in shown[0].stdout
    assert "valid from: 2023-11-14T22:13:20+00:00\n" in shown[0].stdout
    assert token[-20:] not in shown[0].stdout
    told = json.loads(bare("tokens", "show", file, "--json", "--keys", signer.public_file).stdout)
    assert (told["subject"], told["roles"], told["expired"], told["taken"]) == (
        "bob",
        {"consume": ["bank/*"]},
        False,
        True,
    )


def test_token_that_is_not_taken_is_shown_with_the_reason(tmp_path: Path, bare: Any) -> None:
    """Check an expired token, and one of another key: what it says, then one line, and status 1."""
    signer, other = Signer(tmp_path), Signer(tmp_path, name="other")
    file = tmp_path / "token"
    for token, keys, said in (
        (signer.sign(signer.claims() | {"exp": int(time.time()) - 60}), signer, "has expired at"),
        (signer.token(), other, "a key that this service doesn't have"),
    ):
        file.write_text(token)
        result = bare("tokens", "show", file, "--keys", keys.public_file)
        assert result.exit_code == 1
        assert "subject: alice\n" in result.stdout
        assert said in result.stderr
        assert result.stderr.count("\n") == 1


def test_keys_and_tokens_of_an_algorithm(tmp_path: Path, bare: Any) -> None:
    """Make keys, a token with all that can be said, and check it."""
    algorithm = "ES256"
    private, public = tmp_path / "a.key", tmp_path / "a.pub"
    assert bare("tokens", "keygen", private, public, "--algorithm", algorithm).exit_code == 0
    again = bare("tokens", "keygen", private, public, "--algorithm", algorithm)
    assert (again.exit_code, "is there already" in again.stderr) == (2, True)
    made = bare(
        *("tokens", "create", "--key", private, "--subject", "etl", "--expires", "2h", "--produce", "a/b/c*"),
        *("--produce", "a/*", "--consume", "a/b/d", "--audience", "other", "--issuer", "me", "--starts-in", "1h"),
    )
    assert made.exit_code == 0
    told = json.loads(bare("tokens", "show", "-", "--json", input=made.stdout).stdout)
    assert told["roles"] == {"produce": ["a/b/c*", "a/*"], "consume": ["a/b/d"]}
    assert (told["algorithm"], told["audience"], told["issuer"]) == (algorithm, "other", "me")
    refused = bare("tokens", "show", "-", "--keys", public, "--audience", "other", input=made.stdout)
    assert "isn't valid before" in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--subject", "", "--expires", "1h"], "is no subject"),
        (["--subject", "a", "--expires", "0"], "for no time, or for too long"),
        (["--subject", "a", "--expires", "20000d"], "for no time, or for too long"),
        (["--subject", "a", "--expires", "30"], "has no unit"),
        (["--subject", "a", "--expires", "1h", "--consume", "orders"], "is no pattern"),
        (["--subject", "a", "--expires", "1h", "--key", "nothing"], "can't be read"),
        (["--subject", "a", "--expires", "1h", "--out", "no/folder/token"], "can't be written"),
        (["--subject", "a", "--expires", "1h", *["--admin", "x" * 200 + "/*"] * 60], "more than|is the most"),
    ],
)
def test_tokens_that_cannot_be_made(words: list[str], said: str, tmp_path: Path, bare: Any) -> None:
    """Leave out or spoil what a token needs: one line, and nothing is printed."""
    signer = Signer(tmp_path)
    result = bare("tokens", "create", "--key", signer.private_file, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(said, result.stderr)


def test_rubbish_is_no_token(bare: Any) -> None:
    """Show what is no token: it isn't repeated."""
    result = bare("tokens", "show", "-", input="my-secret-thing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("[TXNLOG_INVALID_ARGUMENT] That is no token.")
    assert "my-secret" not in result.stderr
    nothing = bare("tokens", "show")
    assert nothing.exit_code == 2


# Serving


@pytest.mark.parametrize("host", ["0.0.0.0", "log.example"])
def test_plain_text_beyond_this_machine_is_refused(host: str, root: Path, bare: Any) -> None:
    """Serve there without TLS: one line, before a log is made."""
    result = bare("serve", "--root", root, "--host", host, "--port", "0")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"would listen on {host} in plain text" in result.stderr
    assert not root.exists()


def test_plain_text_may_be_meant(root: Path, served: Served) -> None:
    """Say so."""
    addresses: list[str] = []
    served("--root", root, "--host", "0.0.0.0", "--insecure", during=addresses.append)
    assert addresses[0].startswith("0.0.0.0:")


def test_options_that_do_not_go_together(root: Path, bare: Any, tmp_path: Path) -> None:
    """Give halves, files that aren't there, and keys that are none: nothing is made."""
    authority, signer = Authority(tmp_path), Signer(tmp_path)
    cert, key = authority.issue("a")
    for words, said in (
        (["--tls-cert", cert], "comes with its key"),
        (["--tls-key", key], "comes with its key"),
        (["--tls-client-ca", authority.ca], "over TLS only"),
        (["--tls-cert", cert, "--tls-key", signer.private_file], "isn't that of the certificate"),
        (["--tls-cert", tmp_path / "nothing", "--tls-key", key], "can't be read"),
        (["--token-keys", signer.private_file], "is no public key"),
        (["--token-keys", tmp_path / "nothing"], "can't be read"),
        (["--max-transactions", "3"], "belongs to nobody"),
        (["--max-request", "much"], "is not a size"),
        (["--audit-log", tmp_path / "no" / "audit"], "can't be written"),
    ):
        result = bare("serve", "--root", root, "--port", "0", *words)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), words
        assert said in result.stderr
    assert not root.exists()


@pytest.mark.long
def test_refusals_are_one_line(tmp_path: Path, root: Path, spawn: Any, bare: Any) -> None:
    """Use commands without a token, with one that may not, and with limits; the audit goes to the service's log."""
    signer = Signer(tmp_path)
    words = ["--token-keys", signer.public_file, "--audit-log", "-", "--max-calls", "1000", "--max-answers", "100m"]
    process = spawn("serve", "--root", root, "--port", "0", *words)
    address = address_of(process)
    for roles, code in ((None, "UNAUTHENTICATED"), ({"consume": ["*"]}, "PERMISSION_DENIED"), ({"admin": ["*"]}, None)):
        given: list[Any] = ["--endpoint", address, "topics", "create", "orders"]
        if roles is not None:
            file = tmp_path / "token"
            file.write_text(signer.token("alice", **roles))
            given += ["--token-file", file]
        result = bare(*given)
        assert result.exit_code == (0 if code is None else 1)
        assert (result.stderr == "") if code is None else result.stderr.startswith(f"[TXNLOG_{code}] ")
        assert result.stderr.count("\n") <= 1
    process.terminate()
    _, errors = process.communicate()
    told = errors.decode().splitlines()
    refused = [line.split(" WARNING ")[1].split(" from ")[0] for line in told if " WARNING " in line]
    ours = ["refused GetLog", "refused CreateTopic"]
    assert [each for each in refused if each in ours] == ours  # clients of another test's service had this port before
    audited = [json.loads(line[line.index("{") :]) for line in told if '"call"' in line]
    assert [line["outcome"] for line in audited] == ["PERMISSION_DENIED", "ok"]
