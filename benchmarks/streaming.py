"""Streams and the sink: a micro-batch, catching up, writing, the cut, and many partitions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, StructType

from benchmarks.harness import Bench, Result, best_of, spark_session
from benchmarks.prepared import ROWS, prepared_batch, prepared_frame
from benchmarks.scan import drain, messages
from txn_source.client.connecting import connect
from txn_source.client.log import Log
from txn_source.client.places import parse_side
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.client.streaming.own_guard import own_stream
from txn_source.client.writing.producer import Producer
from txn_source.client.writing.transaction import Transaction
from txn_source.model.position import EARLIEST, LATEST
from txn_source.reading.limits import StreamLimits
from txn_source.reading.places import Side
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream_offset import StreamOffset

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


class PreparedStream(DataSource):
    """``format("prepared-stream")``: a stream that does nothing but hand out one prepared batch again and again.

    Options: ``file`` (an Arrow stream with the batch), ``batches``, and ``at_once``, how many a micro-batch has.
    """

    @classmethod
    def name(cls) -> str:
        return "prepared-stream"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Prepared(self.options["file"], int(self.options["batches"]), int(self.options["at_once"]), schema)


class _Prepared(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, file: str, batches: int, at_once: int, schema: StructType) -> None:
        self._file, self._batches, self._at_once, self._schema = file, batches, at_once, schema

    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"at": min(start["at"] + self._at_once, self._batches)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        count = end["at"] - start["at"]
        return [InputPartition(count // 2), InputPartition(count - count // 2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = prepared_batch(self._file, self._schema)
        for _ in range(partition.value):
            yield batch


def _catch_up(bench: Bench, spark: SparkSession, log: Log) -> Iterator[Result]:
    """Read a backlog in batches of a million messages, against one batch read of it.

    The same of prepared rows, in as many batches and tasks, shows what is Spark's own part of it.
    """
    batches, limit = bench.size(160, 4), bench.size(1_000_000, 100_000)
    log.create_topic("backlog", partitions=2)
    with log.producer("backlog") as producer:
        for index in range(batches):
            producer.send_batch(messages(ROWS, _VALUE_BYTES), partition=index % 2)
    rows = batches * ROWS
    backlog = spark.read.format("txnlog").option("topic", "backlog").load(str(log.root))
    prepared = prepared_frame(spark, log, "backlog", bench.folder, batches, backlog.rdd.getNumPartitions())
    spark.dataSource.register(PreparedStream)
    at_once = 2 * -(-limit // 2 // ROWS)  # as ours: each of two partitions ends its half of a batch behind an entry
    nothing = {"file": str(bench.folder / "prepared.arrow"), "batches": str(batches), "at_once": str(at_once)}
    options = {"topic": "backlog", "startingOffsets": "earliest", "maxMessagesPerTrigger": str(limit)}
    times, micro_batches = iter(range(100)), []

    def drained(frame: DataFrame) -> None:
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(bench.folder / f"backlog-{next(times)}")).start()
        query.awaitTermination()
        assert sum(progress.numInputRows for progress in query.recentProgress) == rows
        micro_batches.append(len([progress for progress in query.recentProgress if progress.numInputRows]))

    t_stream, t_batch, t_nothing, t_prepared = best_of(
        bench.runs,
        lambda: drained(spark.readStream.format("txnlog").options(**options).load(str(log.root))),
        lambda: drain(spark.read.format("txnlog").option("topic", "backlog").load(str(log.root))),
        lambda: drained(spark.readStream.format("prepared-stream").options(**nothing).schema(backlog.schema).load()),
        lambda: drain(prepared()),
    )
    assert len(set(micro_batches)) == 1, micro_batches
    detail = f"{rows / t_stream / 1e6:.1f} M rows/s against {rows / t_batch / 1e6:.1f}; {rows / 1e6:.1f} M rows"
    yield Result("catch-up in batches of 1 M messages / batch read", t_batch / t_stream, "×", ("≥", 0.7), detail)
    detail = f"{rows / t_nothing / 1e6:.1f} M rows/s against {rows / t_prepared / 1e6:.1f}; what Spark itself leaves"
    yield Result("the same of a source of prepared rows", t_prepared / t_nothing, "×", None, detail)
    detail = f"{micro_batches[0]} batches; {1000 * (t_stream - t_nothing) / micro_batches[0]:.0f} ms more for each"
    yield Result("catch-up / stream of prepared rows", t_nothing / t_stream, "×", None, detail)


def _sink(bench: Bench, spark: SparkSession, log: Log) -> Iterator[Result]:
    """Write the backlog's rows to a topic, against writing them as Parquet; each run writes to a new place."""
    source = str(bench.folder / "source")
    frame = spark.read.format("txnlog").options(topic="backlog", metadataColumns="none").load(str(log.root))
    frame.write.parquet(source)
    rows = spark.read.parquet(source)
    count = rows.count()
    numbers = itertools.count()

    def to_topic() -> None:
        topic = f"written-{next(numbers)}"
        log.create_topic(topic, partitions=2)
        rows.write.format("txnlog").option("topic", topic).mode("append").save(str(log.root))

    def to_parquet() -> None:
        rows.write.parquet(str(bench.folder / f"target-{next(numbers)}"))

    t_ours, t_parquet = best_of(bench.runs, to_topic, to_parquet)
    detail = (
        f"{count / t_ours / 1e6:.2f} M rows/s against {count / t_parquet / 1e6:.2f}; {count / 1e6:.1f} M rows with keys"
    )
    yield Result("sink / df.write.parquet", t_parquet / t_ours, "×", ("≥", 0.8), detail)


def _cut(bench: Bench, log: Log) -> Iterator[Result]:
    """The cut's share of a batch: with many recent transactions behind a bound, in the batch itself, and open."""
    count = bench.size(10_000, 100)
    log.create_topic("transfers", partitions=8)
    with log.producer("transfers") as producer:
        hanging = log.begin_transaction(timeout=900)
        producer.send(b"x", txn=hanging, partition=0)
        for number in range(count):
            with log.begin_transaction() as txn:
                _transfer(producer, number, txn)
        hanging.abort()
        first = resolve(log.metadata, Selection.of("transfers")).partitions[0].view.bounds.log_start
        behind = {
            "transfers": {0: str(first)}
        }  # one bound is held back, and all the others lie behind the transactions
        yield _share(bench, log, f"{count:,} transactions behind a bound", lambda cut: _plan(log, cut, behind))
        yield _share(bench, log, f"a batch of {count:,} transactions", lambda cut: _limited(log, cut, 2 * count - 8))
        opened = [log.begin_transaction(timeout=900) for _ in range(count)]
        for number, txn in enumerate(opened):
            _transfer(producer, number, txn)
            producer.flush()
        yield _share(bench, log, f"{count:,} open transactions", lambda cut: _plan(log, cut, {}))
        for txn in opened:
            txn.abort()


def _transfer(producer: Producer, number: int, txn: Transaction) -> None:
    for leg in range(2):
        producer.send(b"%0100d" % number, txn=txn, partition=(number + leg) % 8)


def _plan(log: Log, cut: bool, end: dict[str, dict[int, str]]) -> None:
    """Plan a batch read."""
    request = ReadRequest(end=parse_side(end, LATEST), consistent_cut=cut)
    plan(OwnLog(log.access), resolve(log.metadata, Selection.of("transfers")), request)


def _limited(log: Log, cut: bool, most: int) -> None:
    """Find the end of a stream's batch of so many messages."""
    request = ReadRequest(start=Side(EARLIEST), consistent_cut=cut)
    stream = own_stream(log.access, Selection.of("transfers"), request, StreamLimits(max_messages=most))
    begin = stream.initial()
    assert stream.latest(begin) is not begin


def _share(bench: Bench, log: Log, what: str, planned: Callable[[bool], None]) -> Result:
    """Compare with the cut and without; the batch is a scan of all that is committed."""

    def read() -> None:
        for _ in log.scan("transfers"):
            pass

    t_with, t_without, t_batch = best_of(bench.runs, lambda: planned(True), lambda: planned(False), read)
    detail = f"{(t_with - t_without) * 1000:.1f} ms of {t_batch * 1000:.0f} ms"
    return Result(
        f"consistent cut, share of a batch: {what}", (t_with - t_without) / t_batch * 100, "%", ("≤", 5), detail
    )


def _many_partitions(bench: Bench, log: Log) -> Iterator[Result]:
    """How far, and in which tasks: a batch over 1,000 partitions with a message in each."""
    count = bench.size(1000, 20)
    log.create_topic("wide", partitions=count)
    stream = own_stream(log.access, Selection.of("wide"), ReadRequest(), StreamLimits())
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
