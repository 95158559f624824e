"""Streams that Java has another process hold: a stream loses nothing when that process dies between two calls."""

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
        return json.loads(self._ask("streamLatest", start=json.dumps(start), limited=limited))

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
