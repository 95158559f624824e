from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import txn_source
from tests.cli.conftest import Served
from tests.log.reading import eventually
from txn_source.model.copies import Tier

STARTED = re.compile(r".* INFO serving on (127\.0\.0\.1:\d+), root (.+), log ([0-9a-f]{32})\n")


def address_of(process: subprocess.Popen[bytes]) -> str:
    """Wait for the line that says that it serves, and return the address in it."""
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    found = STARTED.fullmatch(line)
    assert found, line + process.stderr.read().decode()
    return found[1]


def test_service_starts_answers_and_stops(spawn: Any, bare: Any, root: Path) -> None:
    """The life of a service: a new root, its health, a topic made and listed through it, its metrics on a port of their
    own, a signal, three lines of log."""
    process = spawn("serve", "--root", root, "--port", "0", "--metrics-port", "0", "--maintenance-interval", "50ms")
    address = address_of(process)
    line = process.stderr.readline().decode()
    metrics = re.fullmatch(r".* INFO metrics on (http://127\.0\.0\.1:\d+)/metrics\n", line)
    assert metrics, line
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "txnlog.v1.MetadataService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert bare("--endpoint", address, "topics", "create", "orders").exit_code == 0
    assert bare("produce", "orders", "--endpoint", address, input="a\nb\n").exit_code == 0
    assert bare("--endpoint", address, "consume", "orders").stdout == "a\nb\n"

    def get(path: str) -> str:
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(f"{metrics[1]}{path}", timeout=60) as answer:
            return str(answer.read().decode())
        return ""

    assert get("/live") == "alive\n"
    eventually(lambda: '"ready":true' in get("/ready"))  # where a machine is busy a check may take too long at first
    assert 'txnlog_calls_total{call="CreateTopic",code="OK"} 1.0' in get("/metrics")
    eventually(lambda: 'txnlog_background_rounds_total{outcome="OK",task="policies"}' in get("/metrics"))
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate()
    assert (process.returncode, output) == (0, b"")
    assert re.fullmatch(rf".* INFO stopped serving on {address} \(SIGTERM\)\n", errors.decode())
    with txn_source.connect(root, create=False) as log:
        assert log.topics() == ["orders"]


@pytest.mark.long
def test_taken_port_leaves_no_log_behind(spawn: Any, bare: Any, root: Path, tmp_path: Path) -> None:
    """Start a service for a root that isn't there, on a port that is taken, or with such a port for metrics: one
    readable line, where gRPC's own report would be several, and nothing is made; a log stays as it is."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = f"[TXNLOG_UNAVAILABLE] The server can't listen on 127.0.0.1:{port}: the port is taken"
        metrics = bare("serve", "--root", root, "--port", 0, "--metrics-port", port)
        assert (metrics.exit_code, metrics.stdout, metrics.stderr.count("\n"), list(tmp_path.iterdir())) == (
            1,
            "",
            1,
            [],
        )
        assert metrics.stderr.startswith(told)
        process = spawn("serve", "--root", root, "--port", port)
        output, errors = process.communicate()
        assert (process.returncode, output, errors.count(b"\n"), list(tmp_path.iterdir())) == (1, b"", 1, [])
        assert errors.decode().startswith(told)
        txn_source.connect(root).close()
        assert bare("serve", "--root", root, "--port", port).exit_code == 1


@pytest.mark.parametrize("given", [[], ["--endpoint", "localhost:1"]])
def test_service_needs_a_root(given: list[str], bare: Any) -> None:
    """An endpoint is what it makes, not what it takes: serve without a root, and with an endpoint."""
    result = bare(*given, "serve")
    assert result.exit_code == 2
    assert "--root PATH" in " ".join(result.stderr.replace("│", " ").split())


CONFIGURATION = """
# which copy is read first
managedLedgerDataReadPriority=bookkeeper-first
managedLedgerOffloadThresholdInSeconds = 0
managedLedgerOffloadDeletionLagMs=0
"""


def closed_ledger(log: txn_source.Log, **policies: Any) -> None:
    log.create_topic("orders", **policies)
    with log.producer("orders") as producer:
        producer.send("a")
    log.roll_ledger("orders")


@pytest.mark.long
def test_server_carries_out_the_policies_of_its_configuration(
    spawn: Any, bare: Any, log: txn_source.Log, root: Path, tmp_path: Path
) -> None:
    """Nobody calls anything: serve with a configuration, and wait until a ledger is offloaded and its hot copy gone."""
    closed_ledger(log)
    config = tmp_path / "service.conf"
    config.write_text(CONFIGURATION)
    process = spawn("serve", "--root", root, "--port", "0", "--config", config, "--maintenance-interval", "50ms")
    address = address_of(process)
    eventually(lambda: log.stats("orders").ledgers[0].tiers == (Tier.TIERED,))
    applied = bare("--endpoint", address, "topics", "get-data-read-priority", "orders", "--applied", "--json")
    assert applied.stdout.split() == ["{", '"value":', '"bookkeeper-first",', '"source":', '"broker"', "}"]
    assert bare("--endpoint", address, "consume", "orders").stdout == "a\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 0
    maintained = [line for line in errors.decode().splitlines() if " INFO maintenance: " in line]
    assert "offloaded 1 ledger (1 message, " in maintained[0]
    assert "deleted the hot copies of 1 ledger" in "".join(maintained)


def test_configuration_in_the_root_is_taken_unless_another_is_given(
    served: Served, bare: Any, log: txn_source.Log, root: Path, tmp_path: Path
) -> None:
    """The file named broker.conf is there for embedded logs too: serve without --config, and with an empty one."""
    log.create_topic("orders")
    (root / "broker.conf").write_text("managedLedgerDataReadPriority=bookkeeper-first\n")
    (tmp_path / "empty.conf").write_text("")
    ask = ("topics", "get-data-read-priority", "orders", "--applied")
    assert bare("--root", root, *ask).stdout == "bookkeeper-first\n"
    for given, value in (((), "bookkeeper-first"), (("--config", tmp_path / "empty.conf"), "tiered-first")):
        answers: list[str] = []
        served("--root", root, *given, during=lambda at, to=answers: to.append(bare("--endpoint", at, *ask).stdout))
        assert answers == [f"{value}\n"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "can't be read: "),
        ("speed=1", "Line 1 of the configuration sets 'speed', which is not a setting. Use managedLedger"),
        (
            "\nmanagedLedgerDataReadPriority=warm",
            "Line 2 of the configuration, managedLedgerDataReadPriority: 'warm' is",
        ),
    ],
)
def test_configuration_that_cannot_be_used_is_one_line(
    text: str | None, error: str, bare: Any, root: Path, tmp_path: Path
) -> None:
    """The file and the line are named, and no log is made: serve with files that are missing, unknown and wrong."""
    config = tmp_path / "service.conf"
    if text is not None:
        config.write_text(text)
    result = bare("serve", "--root", root, "--config", config)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("[TXNLOG_INVALID_ARGUMENT]")
    assert str(config) in result.stderr
    assert error in result.stderr
    assert not root.exists()


def test_interval_that_is_no_duration_is_wrong_usage(bare: Any, root: Path) -> None:
    """Serve every fortnight."""
    result = bare("serve", "--root", root, "--maintenance-interval", "fortnight")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert not root.exists()


@pytest.mark.long
def test_server_stops_while_an_upload_hangs(spawn: Any, log: txn_source.Log, root: Path) -> None:
    """A store that never answers must not keep the server: offload to a socket that is silent, and stop."""
    with socket.create_server(("127.0.0.1", 0)) as store:
        endpoint = f"http://127.0.0.1:{store.getsockname()[1]}"
        uri = f"s3://bucket/folder?endpoint_override={endpoint}&request_timeout=600"
        closed_ledger(log, offload_after_age=0, offload_uri=uri)
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_EC2_METADATA_DISABLED": "true"}
        process = spawn("serve", "--root", root, "--port", "0", env={**os.environ, **keys})
        address = address_of(process)
        store.settimeout(60)
        upload, _ = store.accept()
        with upload:
            assert upload.recv(1000).startswith((b"POST ", b"PUT "))
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert re.fullmatch(rf".* INFO stopped serving on {address} \(SIGTERM\)\n", errors.decode())
    assert log.stats("orders").ledgers[0].tiers == (Tier.BOOKKEEPER,)


def test_metadata_in_another_sqlite_file_is_refused(tmp_path: Path, bare: Any) -> None:
    """Name a SQLite file as the metadata database of a service: nothing is made, neither a log nor the file."""
    root, file = tmp_path / "log", tmp_path / "other.db"
    result = bare("serve", "--root", root, "--port", "0", "--metadata", f"sqlite:///{file}")
    assert result.exit_code != 0
    assert "is not PostgreSQL. Use postgresql://" in result.stderr
    assert not root.exists()
    assert not file.exists()
