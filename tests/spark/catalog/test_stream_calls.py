"""Streams that the log's Python process holds for Java: it may die without a loss, and progress has its figures."""

from __future__ import annotations

import json
import pickle
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import BinaryType, StructType

import txn_source
from tests.spark.plain import Query
from txn_source.spark.catalog.stream_calls import STREAM_CALLS
from txn_source.spark.tasks import read_task


class Held:
    """A stream's reader that asks as Java does; ``forgotten``: each call finds a process that knows nothing."""

    def __init__(self, query: Query, options: dict[str, str], *, forgotten: bool) -> None:
        self._schema = query.schema.json()
        self._options = options
        self._forgotten = forgotten
        self._frozen = False
        self._id = str(id(self))

    def _ask(self, call: str, **more: Any) -> Any:
        if self._forgotten:  # with the process goes its hold on a subscription
            STREAM_CALLS["streamStop"]({"id": self._id})
            self._id += " again"
        of = {"id": self._id, "options": self._options, "schema": self._schema, "frozen": self._frozen}
        return json.loads(json.dumps(STREAM_CALLS[call](of, **more)))

    def initialOffset(self) -> Any:
        return json.loads(self._ask("streamInitial"))

    def getDefaultReadLimit(self) -> ReadLimit | None:
        return None

    def latestOffset(self, start: Any, limit: ReadLimit | None) -> Any:
        limited = not isinstance(limit, ReadAllAvailable)
        return json.loads(self._ask("streamLatest", start=json.dumps(start), limited=limited)["end"])

    def prepareForTriggerAvailableNow(self) -> None:
        self._ask("streamFreeze")
        self._frozen = True

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        planned = self._ask("streamPlan", start=json.dumps(start), end=json.dumps(end), objects=True)
        return [pickle.loads(b64decode(task["python"])) for task in planned["tasks"]]

    def read(self, task: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(task)

    def commit(self, end: Any) -> None:
        self._ask("streamCommit", end=json.dumps(end))

    def stop(self) -> None:
        self._ask("streamStop")


@pytest.mark.parametrize("forgotten", [False, True], ids=["one process", "another at each call"])
@pytest.mark.parametrize("subscription", [None, "watch"])
def test_each_row_comes_once(
    log: txn_source.Log, query: Query, root: Path, forgotten: bool, subscription: str | None
) -> None:
    log.create_topic("orders", partitions=2)
    options = {"path": str(root), "topic": "orders", "startingOffsets": "earliest", "maxMessagesPerTrigger": "3"}
    if subscription is not None:
        options |= {"subscription": subscription}
    sent = []
    for start in (0, 10):
        with log.producer("orders") as producer:
            for number in range(start, start + 10):
                sent.append(f"{number:02}")
                producer.send(sent[-1], partition=number % 2)
                producer.flush()
        query.start(**options)
        query.reader.stop()
        query.reader = Held(query, options, forgotten=forgotten)
        query.reader.prepareForTriggerAvailableNow()
        query.process()
        query.reader.stop()
    assert sorted(value for batch in query.values() for value in batch) == sent
    assert len(query.values()) >= 6


def send(log: txn_source.Log, count: int, partition: int = 0, txn: Any = None) -> None:
    """Write messages to ``a``, in one entry."""
    with log.producer("a") as producer:
        for _ in range(count):
            producer.send("x", partition=partition, txn=txn)


def behind(log: txn_source.Log, at: dict[str, Any], **options: str) -> dict[str, Any]:
    """Return what the progress of a stream over ``a`` says at an offset."""
    of = {"id": str(options), "options": {"path": str(log.root), "topic": "a", **options}, "frozen": False}
    schema = StructType().add("value", BinaryType()).json()
    found: dict[str, Any] = STREAM_CALLS["streamBehind"]({**of, "schema": schema}, at=json.dumps(at))
    STREAM_CALLS["streamStop"](of)
    return found


def test_a_stream_is_behind_by_what_it_could_read(log: txn_source.Log) -> None:
    log.create_topic("a", 2)
    send(log, 4)
    at = {"epoch": 0, "decisions": 0, "level": "read_committed", "positions": {"a": {"0": "1:1", "1": "2:0"}}}
    assert behind(log, at) == {"messagesBehind": 0, "secondsBehind": 0.0}
    send(log, 2)
    with log.begin_transaction() as older:
        send(log, 3, txn=older)
        send(log, 4)
        with log.begin_transaction() as newer:
            send(log, 5, partition=1, txn=newer)
            found = behind(log, at)
            assert found.pop("secondsBehind") > 0
            assert found == {"messagesBehind": 2, "heldBackBy": str(older.id), "heldBackMessages": 12}
            uncommitted = behind(log, at | {"level": None}, isolationLevel="read_uncommitted")
            assert uncommitted["messagesBehind"] == 14
            assert "heldBackBy" not in uncommitted


def test_a_stream_is_behind_what_was_trimmed_and_what_is_tiered_alone(log: txn_source.Log) -> None:
    log.create_topic("a", 2)
    at: dict[str, Any] = {"epoch": 0, "decisions": 0, "positions": {"a": {"0": "1:0", "1": "2:0"}}}
    send(log, 4)
    log.roll_ledger("a")
    send(log, 3)
    log.roll_ledger("a")
    log.offload("a")
    log.delete_hot("a")
    assert behind(log, at)["messagesBehind"] == 7
    second = log.stats("a").partitions[0].ledgers[1].ledger_id
    log.trim("a", before={"a": {0: f"{second}:0"}})
    with_another = at | {"positions": {**at["positions"], "gone": {"0": "7:0"}}}
    found = behind(log, with_another)
    assert found["messagesBehind"] == 3
    assert found["secondsBehind"] > 0
