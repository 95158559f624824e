"""How far streaming queries are behind: real queries, listeners, and progress of any kind."""

from __future__ import annotations

import json
import queue
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession

import txn_source
from tests.foreign.kafka.live_log import LiveLog
from tests.selection import for_each
from txn_source.model.isolation import IsolationLevel
from txn_source.spark.progress import ProgressListener, QueryBehind, behind


def progress_at(offset: Any, **more: Any) -> dict[str, Any]:
    """Return a progress as Spark Connect gives it, a dictionary."""
    source = {"endOffset": offset if offset is None or isinstance(offset, str) else json.dumps(offset)}
    return {"id": "id-1", "name": None, "batchId": 3, "sources": [source], **more}


def test_a_query_tells_how_far_it_is_behind(spark: SparkSession, tmp_path: Path) -> None:
    """Let a query read two messages at a time, behind an open transaction: each batch is told, and at last nothing."""
    told: queue.Queue[QueryBehind] = queue.Queue()
    with txn_source.connect(tmp_path / "log") as log:
        log.create_topic("orders")
        with log.producer("orders") as producer:
            for value in ("a", "b", "c", "d"):
                producer.send(value)
                producer.flush()
            txn = log.begin_transaction()
            producer.send("open", txn=txn)
            producer.flush()
            producer.send("waits")
        listener, registry = ProgressListener(log, told.put, every=0.0), CollectorRegistry()
        listener.register(registry)
        spark.streams.addListener(listener)
        try:
            reader = spark.readStream.format("txnlog").options(
                path=str(tmp_path / "log"), topic="orders", startingOffsets="earliest", maxMessagesPerTrigger="2"
            )
            writer = reader.load().writeStream.queryName("booking").foreachBatch(lambda rows, _: None)
            running = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            try:
                first, second = told.get(timeout=120), told.get(timeout=120)
                exported = generate_latest(registry).decode()
            finally:
                running.stop()
        finally:
            spark.streams.removeListener(listener)
        txn.abort()
    assert [found.messages for found in (first, second)] == [2, 0]
    assert (first.query, first.level, first.held_back) == ("booking", IsolationLevel.READ_COMMITTED, 2)
    assert first.seconds is not None
    assert first.seconds > 0
    assert second.seconds == 0
    assert str(first).startswith("query booking, batch 0: 2 messages behind, ")
    labels = '{level="read_committed",partition="0",query="booking",topic="orders"}'
    assert f"txnlog_stream_held_back_messages{labels} 2.0" in exported


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with txn_source.connect(tmp_path / "log") as made:
        made.create_topic("orders", partitions=2)
        yield made


def offset_of(log: txn_source.Log, level: str, **positions: str) -> dict[str, Any]:
    return {"epoch": 0, "decisions": 0, "level": level, "positions": {"orders": positions}}


@pytest.mark.parametrize(("level", "messages"), [("read_committed", [1, 2]), ("read_uncommitted", [3, 2])])
def test_messages_are_those_of_the_level(log: txn_source.Log, level: str, messages: list[int]) -> None:
    """Write plain, aborted and committed messages: a stream at the start is behind by what its level shows."""
    with log.producer("orders") as producer:
        producer.send(b"plain", partition=0)
        for commit in (True, False):
            txn = log.begin_transaction()
            for _ in range(2):
                producer.send(b"in it", txn=txn, partition=1 if commit else 0)
            producer.flush()
            txn.commit() if commit else txn.abort()
    starts = {str(part.partition): str(part.log_start) for part in log.stats("orders").partitions}
    [found] = behind(log, progress_at(offset_of(log, level, **starts)))
    assert [(part.partition, part.messages) for part in found.partitions] == list(enumerate(messages))
    assert (found.query, found.batch, found.level) == ("id-1", 3, IsolationLevel(level))


@for_each("offset", [None, "None", "5", "not JSON", '{"topic": {"0": 5}}', '{"logOffset": 0}'])
def test_other_sources_are_left_out(log: txn_source.Log, offset: Any) -> None:
    """Offsets of Kafka's connector, of files, of a source that has none yet."""
    assert behind(log, progress_at(offset)) == []


def test_a_query_goes_on_whose_log_can_not_be_asked(log: txn_source.Log, caplog: pytest.LogCaptureFixture) -> None:
    """Tell of a topic that is gone, and of a function that fails: the listener raises nothing."""

    class Event:
        class progress(dict[str, Any]):
            id = "id-1"

    def listen(listener: ProgressListener, offset: dict[str, Any]) -> None:
        event: Any = Event()
        event.progress = Event.progress(progress_at(offset))
        listener.onQueryProgress(event)

    gone = {"epoch": 0, "decisions": 0, "level": "read_committed", "positions": {"gone": {"0": "1:0"}}}
    listen(ProgressListener(log), gone)
    assert "TXNLOG_TOPIC_NOT_FOUND" in caplog.text

    def fail(_: QueryBehind) -> None:
        raise ValueError("told")

    starts = {str(part.partition): str(part.log_start) for part in log.stats("orders").partitions}
    listen(ProgressListener(log, fail), offset_of(log, "read_committed", **starts))
    assert "isn't known: told" in caplog.text


def test_foreign_logs_are_counted_in_their_offsets(tmp_path: Path) -> None:
    """A Kafka directory: a stream at the start is behind by all that its level shows."""
    live = LiveLog(tmp_path / "kafka", 3)
    for _ in range(30):
        live.step()
    live.finish()
    with txn_source.connect(live.path) as log:
        offset = {"t": {str(part): 0 for part in range(len(live.parts))}, "$log": {"level": "read_uncommitted"}}
        [found] = behind(log, progress_at(offset))
        assert found.messages == log.count("t", "read_uncommitted", consistent_cut=False)
        assert found.messages > 0
        assert found.seconds is not None
        assert len(found.partitions) == len(live.parts)
