"""Streams and the sink: a micro-batch, catching up, writing, the cut, and many partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, StructType

from benchmarks.harness import Bench, Result, best_of, spark_session
from benchmarks.prepared import ROWS
from benchmarks.scan import drain, messages
from txn_source.client.admission import StreamLimits
from txn_source.client.log import Log, connect
from txn_source.client.plan import ReadRequest, plan, resolve
from txn_source.client.stream import StreamedTopics, TopicStream
from txn_source.client.stream_offset import StreamOffset

_VALUE_BYTES = 120


def run(bench: Bench) -> Iterator[Result]:
    """Measure all of it."""
    spark = spark_session()
    with connect(bench.folder / "log") as log:
        yield from _micro_batch(bench, spark, log)
        yield from _catch_up(bench, spark, log)
        yield from _sink(bench, spark, log)
        yield from _cut(bench, log)
        yield from _many_partitions(bench, log)


class TickingSource(DataSource):
    """A stream that has one row in each batch, and does nothing else."""

    @classmethod
    def name(cls) -> str:
        return "ticking"

    def schema(self) -> StructType:
        return StructType().add("value", BinaryType())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Ticking()


class _Ticking(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: object = None) -> dict[str, Any]:
        return {"at": start["at"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([b"x"], pa.binary())], names=["value"])


def _micro_batch(bench: Bench, spark: SparkSession, log: Log) -> Iterator[Result]:
    """The median time of a batch of one message, against that of a source that does nothing."""
    spark.dataSource.register(TickingSource)
    log.create_topic("idle")
    count = bench.size(40, 4)
    options = {"topic": "idle", "metadataColumns": "none", "startingOffsets": "earliest"}
    idle = spark.readStream.format("txnlog").options(**options).load(str(log.root))
    with log.producer("idle") as producer:

        def send() -> None:
            producer.send(b"x")
            producer.flush()

        ours = _median_batch(idle.select("value"), bench.folder / "idle", count, send)
    nothing = _median_batch(spark.readStream.format("ticking").load(), bench.folder / "ticking", count, lambda: None)
    detail = f"{ours:.0f} ms against {nothing:.0f} ms; median of {count} batches"
    yield Result("micro-batch of one message / of a source that does nothing", ours / nothing, "×", ("≤", 1.3), detail)


def _median_batch(frame: DataFrame, checkpoint: Path, count: int, feed: Callable[[], None]) -> float:
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    times: dict[int, float] = {}
    while len(times) < count + 3:
        done = len(times)
        feed()
        while len(times) == done:
            time.sleep(0.01)
            assert query.isActive, query.exception()
            for progress in query.recentProgress:
                if progress.numInputRows:
                    times[progress.batchId] = progress.durationMs["triggerExecution"]
    query.stop()
    kept = sorted([times[batch] for batch in sorted(times)][3:])
    return kept[len(kept) // 2]


def _catch_up(bench: Bench, spark: SparkSession, log: Log) -> Iterator[Result]:
    """Read a backlog in batches of a million messages, against one batch read of it."""
    batches = bench.size(160, 8)
    log.create_topic("backlog", partitions=2)
    with log.producer("backlog") as producer:
        for index in range(batches):
            producer.send_batch(messages(ROWS, _VALUE_BYTES), partition=index % 2)
    rows = batches * ROWS
    times = iter(range(100))

    def stream() -> None:
        frame = spark.readStream.format("txnlog").options(
            topic="backlog", startingOffsets="earliest", maxMessagesPerTrigger=str(bench.size(1_000_000, 200_000))
        )
        writer = frame.load(str(log.root)).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(bench.folder / f"backlog-{next(times)}")).start()
        query.awaitTermination()
        assert sum(progress.numInputRows for progress in query.recentProgress) == rows

    def batch() -> None:
        drain(spark.read.format("txnlog").option("topic", "backlog").load(str(log.root)))

    t_stream, t_batch = best_of(bench.runs, stream, batch)
    detail = f"{rows / t_stream / 1e6:.1f} M rows/s against {rows / t_batch / 1e6:.1f}; {rows / 1e6:.1f} M rows"
    yield Result("catch-up in batches of 1 M messages / batch read", t_batch / t_stream, "×", ("≥", 0.7), detail)


def _sink(bench: Bench, spark: SparkSession, log: Log) -> Iterator[Result]:
    """Write the backlog's rows to a topic, against writing them as Parquet."""
    log.create_topic("written", partitions=2)
    source = str(bench.folder / "source")
    frame = spark.read.format("txnlog").options(topic="backlog", metadataColumns="none").load(str(log.root))
    frame.write.parquet(source)
    rows = spark.read.parquet(source)
    count = rows.count()
    target = str(bench.folder / "target")
    t_ours, t_parquet = best_of(
        min(bench.runs, 3),
        lambda: rows.write.format("txnlog").option("topic", "written").mode("append").save(str(log.root)),
        lambda: rows.write.mode("overwrite").parquet(target),
    )
    detail = (
        f"{count / t_ours / 1e6:.2f} M rows/s against {count / t_parquet / 1e6:.2f}; {count / 1e6:.1f} M rows with keys"
    )
    yield Result("sink / df.write.parquet", t_parquet / t_ours, "×", ("≥", 0.8), detail)


def _cut(bench: Bench, log: Log) -> Iterator[Result]:
    """Plan a batch with many recent transactions behind an open one, with the cut and without."""
    count = bench.size(10_000, 100)
    log.create_topic("transfers", partitions=8)
    producer = log.producer("transfers")
    hanging = log.begin_transaction(timeout=900)
    producer.send(b"x", txn=hanging, partition=0)
    for number in range(count):
        with log.begin_transaction() as txn:
            for leg in range(2):
                producer.send(b"%0100d" % number, txn=txn, partition=(number + leg) % 8)
    hanging.abort()
    stub = log.metadata
    source = resolve(stub, ["transfers"])
    end = source.partitions[0].view.bounds.log_start  # one partition's bound is held back, all the others are behind it
    half = {"transfers": {0: str(end)}}

    def planned(cut: bool) -> None:
        request = ReadRequest(end=_offsets(half), consistent_cut=cut)
        plan(stub, log.root, source, request)

    def read() -> None:
        for _ in log.scan("transfers"):
            pass

    t_with, t_without, t_batch = best_of(bench.runs, lambda: planned(True), lambda: planned(False), read)
    share = (t_with - t_without) / t_batch
    detail = f"{(t_with - t_without) * 1000:.0f} ms of {t_batch * 1000:.0f} ms; {count:,} transactions behind the bound"
    yield Result("consistent cut, share of a batch", share * 100, "%", ("≤", 5), detail)
    producer.close()


def _offsets(value: dict[str, dict[int, str]]) -> Any:
    from txn_source.client.offsets import LATEST, Offsets

    return Offsets.parse(value, LATEST)


def _many_partitions(bench: Bench, log: Log) -> Iterator[Result]:
    """How far, and in which tasks: a batch over 1,000 partitions with a message in each."""
    count = bench.size(1000, 20)
    log.create_topic("wide", partitions=count)
    stream = TopicStream(log.metadata, log.root, StreamedTopics(["wide"], None, None), ReadRequest(), StreamLimits())
    begin = stream.newest()
    with log.producer("wide") as producer:
        for partition in range(count):
            producer.send(b"x", partition=partition)

    def batch() -> StreamOffset:
        end = stream.latest(begin)
        assert stream.plan(begin, end).tasks
        return end

    batch()
    [elapsed] = best_of(bench.runs, batch)
    yield Result(f"planning a stream's batch over {count:,} partitions", elapsed, "s", ("≤", 1))
