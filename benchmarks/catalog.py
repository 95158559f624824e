"""The catalog and what a query leaves unread: columns, counts, filters; and tiered objects that Spark itself reads."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.harness import Bench, Result, best_of, spark_session
from benchmarks.prepared import ROWS
from benchmarks.scan import drain, messages
from txn_source.client.connecting import connect
from txn_source.client.log import Log
from txn_source.model.given_options import CATALOG_DEFAULTS
from txn_source.spark.frame import read

_COLUMNS = 10
_SCHEMA = pa.schema([pa.field(f"c{index}", pa.int64()) for index in range(_COLUMNS)])


def run(bench: Bench) -> Iterator[Result]:
    """Measure all of it."""
    spark = spark_session()
    root = str(bench.folder / "log")
    spark.conf.set("spark.sql.catalog.bench", "io.txnlog.spark.TxnLogCatalog")
    spark.conf.set("spark.sql.catalog.bench.path", root)
    with connect(root) as log:
        batches = bench.size(384, 2)
        _fill(log, "wide", batches)
        yield from _columns_and_count(bench, spark, root, batches * ROWS)
        yield from _planning(bench, spark, log, root)
        yield from _filters(bench, log, root)
        yield from _native(bench, spark, log, root)


def _fill(log: Log, topic: str, batches: int, **policies: Any) -> None:
    """Write rows of ten numbers, the first of which only grows; all others are random."""
    rng = np.random.default_rng(1)
    others = [pa.array(rng.integers(0, 1 << 62, ROWS)) for _ in range(_COLUMNS - 1)]
    log.create_topic(topic, schema=_SCHEMA, **policies)
    with log.producer(topic) as producer:
        for index in range(batches):
            growing = pa.array(np.arange(index * ROWS, (index + 1) * ROWS))
            producer.send_batch(pa.RecordBatch.from_arrays([growing, *others], schema=_SCHEMA))
            producer.flush()


def _columns_and_count(bench: Bench, spark: SparkSession, root: str, rows: int) -> Iterator[Result]:
    def loaded() -> None:
        drain(spark.read.format("txnlog").option("topic", "wide").load(root).select("c3"))

    def counted() -> None:
        assert spark.sql("SELECT count(*) FROM bench.public.wide").collect() == [(rows,)]

    t_catalog, t_loaded, t_count = best_of(
        bench.runs, lambda: drain(spark.sql("SELECT c3 FROM bench.public.wide")), loaded, counted
    )
    rates = f"{rows / t_catalog / 1e6:.1f} M rows/s against {rows / t_loaded / 1e6:.1f}; {rows / 1e6:.1f} M rows"
    yield Result("one column of ten, catalog / load()", t_loaded / t_catalog, "×", ("≥", 2), rates)
    yield Result(f"count(*) of {rows / 1e6:.1f} M rows through the catalog", t_count, "s", ("≤", 1))


def _planning(bench: Bench, spark: SparkSession, log: Log, root: str) -> Iterator[Result]:
    """A topic of one message: all the rest is planning."""
    log.create_topic("small")
    with log.producer("small") as producer:
        producer.send(b"x")
    t_catalog, t_loaded = best_of(
        bench.runs,
        lambda: spark.sql("SELECT value FROM bench.public.small").collect(),
        lambda: spark.read.format("txnlog").option("topic", "small").load(root).select("value").collect(),
    )
    detail = f"{t_catalog * 1000:.0f} ms against {t_loaded * 1000:.0f}; one message"
    yield Result("query through the catalog, more than load()", t_catalog - t_loaded, "s", ("≤", 0.2), detail)


_READ = """
import pickle, sys
from txn_source.spark.source import TxnLogDataSource

def bytes_read():
    return int(open("/proc/self/io").readline().split()[1])

source = TxnLogDataSource(pickle.loads(bytes.fromhex(sys.argv[1])))
reader = source.reader(source.schema())
tasks = reader.partitions()
for task in tasks:  # loads what reading needs, and opens the log
    next(iter(reader.read(task)), None)
before, rows = bytes_read(), 0
for task in tasks:
    rows += sum(batch.num_rows for batch in reader.read(task))
print(rows, bytes_read() - before)
"""


def _filters(bench: Bench, log: Log, root: str) -> Iterator[Result]:
    """What tasks read from files, of a topic whose ledgers are offloaded, with a filter that keeps the newest 1 %."""
    batches = bench.size(200, 20)
    _fill(log, "sorted", batches, ledger_max_entries=batches // 10)
    log.roll_ledger("sorted")
    log.offload("sorted")
    first = batches * ROWS * 99 // 100
    [since] = (
        log.scan("sorted", columns=["__publish_time"], start=f"{log.stats('sorted').ledgers[-2].ledger_id}:0")
        .read_all()["__publish_time"]
        .cast(pa.int64())
        .to_pylist()[-(batches * ROWS - first) :][:1]
    )
    rows, all_bytes = _read(root, None)
    assert rows == batches * ROWS
    for what, column, kind, value in (
        ("publish time", "__publish_time", "timestamp", since),
        ("a sorted column", "c0", "long", first),
    ):
        literal = {"type": kind, "value": value}
        kept, some_bytes = _read(root, [{"op": ">=", "column": [column], "value": literal}])
        assert kept >= rows // 100
        detail = f"{some_bytes / 1e6:.1f} of {all_bytes / 1e6:.1f} MB, {kept:,} rows handed on"
        share = some_bytes / all_bytes * 100
        yield Result(f"bytes read by a filter on {what} that keeps 1 %", share, "%", ("≤", 5), detail)


def _read(root: str, filters: list[dict[str, Any]] | None) -> tuple[int, int]:
    """Return how many rows a read in a process of its own has, and how many bytes it read from files."""
    options = {"path": root, "topic": "sorted", "dataReadPriority": "tiered-first", "maxPartitionBytes": "1g"}
    options[CATALOG_DEFAULTS] = ""  # as the catalog hands over filters
    if filters is not None:
        options["__pushedFilters"] = json.dumps(filters)
    command = [sys.executable, "-c", _READ, pickle.dumps(options).hex()]
    rows, size = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(rows), int(size)


def _native(bench: Bench, spark: SparkSession, log: Log, root: str) -> Iterator[Result]:
    """All of a topic that is offloaded, its default columns, against the files alone, and the Python source."""
    batches = bench.size(192, 2)
    batch = messages(ROWS, 120)
    log.create_topic("history", partitions=2, ledger_max_bytes=256 << 20)
    with log.producer("history") as producer:
        for index in range(batches):
            producer.send_batch(batch, partition=index % 2)
    log.roll_ledger("history")
    log.offload("history")
    names = [{"__batch_index": "__index"}.get(name, name) for name in log.scan("history").schema.names]

    def files() -> None:
        objects = spark.read.option("recursiveFileLookup", True).parquet(f"{root}/tiered/public/default/history")
        drain(objects.select(names))

    t_native, t_files = best_of(bench.runs, lambda: drain(read(spark, "history", path=root)), files)
    rows = batches * ROWS
    rates = f"{rows / t_native / 1e6:.1f} M rows/s against {rows / t_files / 1e6:.1f}; {rows / 1e6:.1f} M rows"
    yield Result("tiered, spark.read / Spark's Parquet reader on the files", t_files / t_native, "×", ("≥", 0.9), rates)
