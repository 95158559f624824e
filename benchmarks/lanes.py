"""How Spark gets the rows of a catalog's topic, against its own Parquet reader on the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness import Bench, Result, best_of, spark_session
from benchmarks.prepared import prepared_batch, prepared_frame
from benchmarks.scan import VALUE_BYTES, drain, messages
from benchmarks.streaming import PreparedStream
from txn_source.client.connecting import connect
from txn_source.client.log import Log

_IN_A_TRANSACTION = 10_000
_AT_ONCE = 1_000_000
_TARGETS: dict[str, dict[str, float | None]] = {
    "hot": {"one column": 0.9, "all columns": 0.85},
    "tiered": {"one column": None, "all columns": 0.9},
    "half hot, half tiered": {"one column": None, "all columns": 0.85},
    "half aborted, hot": {"one column": None, "all columns": 0.8},
    "half aborted, tiered": {"one column": None, "all columns": 0.9},
}


def run(bench: Bench) -> Iterator[Result]:
    """Measure plain queries of topics with the same visible rows: 120-byte values, transactions of 10,000."""
    spark = spark_session()
    root, parquet = str(bench.folder / "log"), str(bench.folder / "parquet")
    spark.conf.set("spark.sql.catalog.lanes", "io.txnlog.spark.TxnLogCatalog")
    spark.conf.set("spark.sql.catalog.lanes.path", root)
    rows = bench.size(400, 4) * _IN_A_TRANSACTION
    with connect(root) as log:
        for name in _TARGETS:
            _fill(log, _topic(name), rows, tiered=_tiered(name), aborted="aborted" in name)
        columns = ", ".join(log.scan("hot").schema.names)
        spark.sql(f"SELECT {columns} FROM lanes.public.hot").write.parquet(parquet)
        for name in _TARGETS:
            assert spark.table(f"lanes.public.{_topic(name)}").selectExpr("count(value)").collect() == [(rows,)]
            yield from _batch(bench, spark, name, "one column", "value", parquet, rows)
            yield from _batch(bench, spark, name, "all columns", columns, parquet, rows)
        yield from _stream(bench, spark, log, root, columns, rows)


def _topic(name: str) -> str:
    return name.replace(", ", "_").replace(" ", "_")


def _tiered(name: str) -> float:
    """Return which part of a topic is to be in objects."""
    return 0.5 if name.startswith("half hot") else 1.0 if name.endswith("tiered") else 0.0


def _fill(log: Log, topic: str, rows: int, *, tiered: float, aborted: bool) -> None:
    log.create_topic(topic, partitions=2)
    batch = messages(_IN_A_TRANSACTION, VALUE_BYTES)
    written = 0
    with log.producer(topic) as producer:
        while written < rows:
            for partition in range(2):
                with log.begin_transaction() as txn:
                    producer.send_batch(batch, partition=partition, txn=txn)
                written += batch.num_rows
                if aborted:
                    txn = log.begin_transaction()
                    producer.send_batch(batch, partition=partition, txn=txn)
                    txn.abort()
            if written == int(rows * tiered):
                log.roll_ledger(topic)
                log.offload(topic)


def _batch(
    bench: Bench, spark: SparkSession, name: str, which: str, columns: str, parquet: str, rows: int
) -> Iterator[Result]:
    """Read some columns of a topic by both lanes, and of the file."""
    topic = _topic(name)

    def read(lane: str) -> DataFrame:
        return spark.sql(f"SELECT {columns} FROM lanes.public.{topic} WITH (lane = '{lane}')")

    t_auto, t_python, t_parquet = best_of(
        bench.runs,
        lambda: drain(read("auto")),
        lambda: drain(read("python")),
        lambda: drain(spark.read.parquet(parquet).selectExpr(*columns.split(", "))),
    )
    target = _TARGETS[name][which]
    rates = f"{rows / t_auto / 1e6:.1f} M rows/s against {rows / t_parquet / 1e6:.1f}; {rows / 1e6:.1f} M rows"
    limit = None if target is None else ("≥", target)
    yield Result(f"{name}, {which} / Spark's Parquet reader", t_parquet / t_auto, "×", limit, rates)
    yield Result(f"{name}, {which}: lane auto / python", t_python / t_auto, "×", None)


def _stream(bench: Bench, spark: SparkSession, log: Log, root: str, columns: str, rows: int) -> Iterator[Result]:
    """Catch up in batches of a million messages, against a stream of prepared rows in as many batches and tasks."""
    spark.dataSource.register(PreparedStream)
    file = str(bench.folder / "prepared.arrow")
    schema = prepared_frame(spark, log, "hot", bench.folder, 1, 2)().schema
    size = prepared_batch(file, schema).num_rows
    batches, at_once = -(-rows // size), 2 * -(-_AT_ONCE // 2 // size)
    nothing = {"file": file, "batches": str(batches), "at_once": str(at_once)}
    runs = iter(range(1000))

    def ours(lane: str) -> None:
        options = {"startingOffsets": "earliest", "maxMessagesPerTrigger": str(_AT_ONCE), "lane": lane}
        frame = spark.readStream.options(**options).table("lanes.public.hot")
        drained(frame.selectExpr(*columns.split(", ")), rows)

    def drained(frame: DataFrame, count: int) -> None:
        checkpoint = str(bench.folder / f"checkpoint-{next(runs)}")
        writer: Any = frame.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", checkpoint).start()
        query.awaitTermination()
        assert sum(progress.numInputRows for progress in query.recentProgress) == count

    prepared = spark.readStream.format("prepared-stream").options(**nothing).schema(schema)
    t_auto, t_python, t_nothing = best_of(
        bench.runs, lambda: ours("auto"), lambda: ours("python"), lambda: drained(prepared.load(), batches * size)
    )
    rates = f"{rows / t_auto / 1e6:.1f} M rows/s against {batches * size / t_nothing / 1e6:.1f}"
    share = t_nothing / t_auto * rows / (batches * size)
    yield Result("stream in batches of 1 M / stream of prepared rows", share, "×", ("≥", 1.0), rates)
    yield Result("stream in batches of 1 M: lane auto / python", t_python / t_auto, "×", None)
