"""Streaming queries over a Kafka topic that a broker rolls, moves, trims and compacts under them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.foreign.kafka.live_log import LiveLog
from tests.spark.plain import Query
from txn_source import DataLossError
from txn_source.model.isolation import IsolationLevel


class Sink:
    """Keeps the partition and offset of each row by batch; one that comes again replaces what it was."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.batches[batch] = [(row.partition, row.offset) for row in rows.select("partition", "offset").collect()]

    def offsets(self, partition: int) -> list[int]:
        return [at for _, rows in sorted(self.batches.items()) for number, at in rows if number == partition]


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Callable[..., StreamingQuery]:
    def begin(log: LiveLog, sink: Sink, *, available_now: bool = False, **options: Any) -> StreamingQuery:
        reader = spark.readStream.format("txnlog").options(topic="t", startingOffsets="earliest", **options)
        writer = reader.load(log.path).writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        return writer.trigger(**trigger).start()

    return begin


def test_query_reads_each_row_once_while_the_log_lives(start: Callable[..., StreamingQuery], tmp_path: Path) -> None:
    """Let a query run over a log that changes, stop it, let the log change, and go on from the checkpoint."""
    log, sink = LiveLog(tmp_path / "kafka", 5), Sink()
    for restart in range(2):
        query = start(log, sink, maxMessagesPerTrigger="20")
        try:
            for step in range(30):
                log.step()
                if step == 20 and restart:
                    for part, next_offset in zip(log.parts, next_offsets(query), strict=False):
                        log.trim(part, next_offset)
            query.processAllAvailable()
        finally:
            query.stop()
        for _ in range(30):
            log.step()
    log.finish()
    query = start(log, sink, available_now=True)
    assert query.awaitTermination(240)
    for index, part in enumerate(log.parts):
        found, wanted = sink.offsets(index), part.visible(IsolationLevel.READ_COMMITTED, 0, part.writer.end)
        assert len(set(found)) == len(found)
        assert set(found) <= set(wanted)
        assert [at for at in wanted if at not in part.removed] == [at for at in found if at not in part.removed]


def next_offsets(query: StreamingQuery) -> list[int]:
    """Return where the next batch begins on each partition."""
    query.processAllAvailable()
    progress = query.lastProgress
    assert progress is not None
    positions = json.loads(progress["sources"][0]["endOffset"])["t"]
    return [positions[name] for name in sorted(positions, key=int)]


def test_query_tells_what_is_lost(query: Query, tmp_path: Path) -> None:
    """Trim what a query hasn't read, between two runs of it."""
    log = LiveLog(tmp_path / "kafka", 3, partitions=1, segment_bytes=400)
    for _ in range(20):
        log.send_plain()
    log.finish()
    query.run(topic="t", path=log.path)
    read = log.parts[0].writer.end
    for _ in range(40):
        log.send_plain()
    log.finish()
    log.trim(log.parts[0], log.parts[0].writer.bases[-1])
    begin = log.parts[0].start
    with pytest.raises(DataLossError, match=rf"t-0 begins at {begin}: \[{read}, {begin}\)"):
        query.run(topic="t", path=log.path)
    query.run(topic="t", path=log.path, failOnDataLoss="false")
    offsets = [row["offset"] for _, rows in sorted(query.batches.items()) for row in rows]
    assert offsets == [*range(read), *range(begin, log.parts[0].writer.end)]
