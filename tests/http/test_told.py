"""What clients tell a service beside their calls: ids of requests, and what they read."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.http.watched import Watched
from tests.log.sites import Site, give_up_after
from tests.selection import for_each
from txn_source import InvalidArgumentError, UnavailableError, metrics
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.access.audit import Audit
from txn_source.metadata.access.door import Door
from txn_source.metadata.stub.transport import SERVICE_NAME
from txn_source.observing.log_format import JsonFormatter, TextFormatter
from txn_source.observing.read_counts import READS_KEY, ReadCounts, told
from txn_source.observing.request_ids import REQUEST_KEY
from txn_source.tracing import request_id


def test_reads_and_fallbacks_are_told_with_later_calls(tmp_path: Path) -> None:
    """Offload a topic, break the object: the service learns of the fallback, and this process counts it."""
    before = metrics.reads()
    with Watched(tmp_path / "log") as watched:
        log = watched.connect()
        log.create_topic("orders")
        with log.producer("orders") as producer:
            producer.send(b"a")
        log.roll_ledger("orders")
        log.offload("orders")
        assert log.scan("orders").read_all().num_rows == 1
        log.topics()  # the call that tells
        found = watched.scrape()
        assert found.one("txnlog_client_reads_total", tier="tiered") == 1
        assert {value for _, value in found.all("txnlog_client_fallbacks_total")} == {0}
        [thing] = (tmp_path / "log" / "tiered").rglob("ledger-*.parquet")
        thing.write_bytes(b"broken")
        assert log.scan("orders").read_all().num_rows == 1
        log.topics()
        found = watched.scrape()
        assert found.one("txnlog_client_fallbacks_total", tier="tiered") == 1
        assert found.one("txnlog_client_reads_total", tier="bookkeeper") == 2  # the offload was the first
    after = metrics.reads()
    assert after.fallbacks["tiered"] - before.fallbacks.get("tiered", 0) == 1
    assert after.ledgers["tiered"] - before.ledgers.get("tiered", 0) == 1
    registry = CollectorRegistry()
    metrics.register(registry)
    assert b'txnlog_reader_fallbacks_total{tier="tiered"}' in generate_latest(registry)


def test_what_could_not_be_told_is_told_later(remote_site: Site) -> None:
    """Count while the service is away: the next call that gets through has it all."""
    log = remote_site.connect()
    give_up_after(log, 0.2)
    port = remote_site.server.port  # type: ignore[union-attr]
    [_, untold] = log.metadata.reads
    untold.put_back("bookkeeper=2")
    remote_site.stop_server()
    with pytest.raises(UnavailableError):
        log.topics()
    untold.put_back("bookkeeper=1 tiered-left=1")
    assert untold.now() == ({"bookkeeper": 3}, {"tiered": 1})
    remote_site.start_server(port)


@for_each(
    "text", ["nonsense", "bookkeeper", "bookkeeper=-1", "bookkeeper=x", "disk=1", "tiered=²", "tiered=" + "9" * 50]
)
def test_nonsense_from_clients_counts_nothing(text: str) -> None:
    """A client may say anything: it makes no series, and no error."""
    assert told(text) == ({}, {})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_counts_from_zero() -> None:
    """Begin as a forked child does: what the parent has read isn't told twice."""
    counts = ReadCounts()
    counts.put_back("tiered=3")
    counts.begin()
    assert counts.taken() == ""


def test_request_ids_reach_the_log_and_the_audit(tmp_path: Path) -> None:
    """Give an id: the audit's line has it, and a line that the service logs meanwhile; after the block none."""
    audit = Audit(tmp_path / "audit.jsonl")
    with Watched(tmp_path / "log", door=Door(audit=audit)) as watched:
        log = watched.connect()
        lines = _logged_during(watched, "CreateTopic")
        with request_id("nightly-42"):
            log.create_topic("orders")
        log.create_topic("bills")
    audit.close()
    noted = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line.get("caller_request_id") for line in noted] == ["nightly-42", None]
    assert [json.loads(line[0]).get("request_id") for line in lines] == ["nightly-42", None]
    assert [line[1].endswith("(request nightly-42)") for line in lines] == [True, False]


def _logged_during(watched: Watched, call: str) -> list[tuple[str, str]]:
    """Return where a line for each call of a name is put, in both forms."""
    lines: list[tuple[str, str]] = []
    inner = watched.service.call

    def logged(name: str, request: Any) -> Any:
        if name == call:
            record = logging.makeLogRecord({"msg": "a line", "levelname": "INFO", "name": "x"})
            lines.append((JsonFormatter().format(record), TextFormatter().format(record)))
        return inner(name, request)

    watched.service.call = logged  # type: ignore[method-assign]
    return lines


def test_ids_that_could_forge_a_line_are_not_taken(tmp_path: Path) -> None:
    """Refuse them in the client; of a client that sends them anyway the service takes none."""
    for wrong in ("", "a b", "a\nb", "a" * 101, '"'):
        with pytest.raises(InvalidArgumentError), request_id(wrong):
            pass
    audit = Audit(tmp_path / "audit.jsonl")
    with Watched(tmp_path / "log", door=Door(audit=audit)) as watched:
        watched.connect().create_topic("orders")
        with grpc.insecure_channel(watched.server.address) as channel:
            delete = channel.unary_unary(
                f"/{SERVICE_NAME}/DeleteTopic", request_serializer=pb.DeleteTopicRequest.SerializeToString
            )
            request = pb.DeleteTopicRequest(request_id="1", name="persistent://public/default/orders")
            delete(request, timeout=60, metadata=((REQUEST_KEY, 'a" forged'), (READS_KEY, "x=1 " * 1000)))
    audit.close()
    assert "forged" not in (tmp_path / "audit.jsonl").read_text()


def test_json_lines_have_tracebacks_and_stay_one_line() -> None:
    """Format an error with line breaks in it."""
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "failed: %s", ("a\nb",), (ValueError, error, None))
    line = JsonFormatter().format(record)
    assert "\n" not in line
    parsed = json.loads(line)
    assert (parsed["message"], parsed["level"]) == ("failed: a\nb", "ERROR")
    assert "two\nlines" in parsed["traceback"]
