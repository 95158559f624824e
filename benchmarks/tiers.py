"""Tiered copies: scanning them, making them, touching only what is needed, and falling back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

from benchmarks.harness import Bench, Result, best_of, spark_session
from benchmarks.prepared import ROWS, prepared_frame
from benchmarks.scan import drain, messages
from txn_source.client.connecting import connect
from txn_source.client.log import Log

_VALUE_BYTES = 120


def run(bench: Bench) -> Iterator[Result]:
    """Measure all of it."""
    with connect(bench.folder / "log") as log:
        yield from _offload(bench, log)
        yield from _scan(bench, log)
        yield from _newest(bench, log)
        yield from _fallback(bench, log)


def _offload(bench: Bench, log: Log) -> Iterator[Result]:
    batches = bench.size(384, 2)
    batch = messages(ROWS, _VALUE_BYTES)
    log.create_topic("tiered", partitions=2, ledger_max_bytes=256 << 20)
    with log.producer("tiered") as producer:
        for index in range(batches):
            producer.send_batch(batch, partition=index % 2)
    log.roll_ledger("tiered")
    cpu, start = time.process_time(), time.perf_counter()
    report = log.offload("tiered")
    cpu, wall = time.process_time() - cpu, time.perf_counter() - start
    size = report.messages * batch.nbytes / ROWS / 1e6
    detail = f"zstd level 1, {wall:.1f} s for {size:,.0f} MB of keys and values; object / hot bytes"
    ratio = report.tiered_bytes / report.hot_bytes
    yield Result("offload, message bytes per second of a core", size / cpu, "MB/s", ("≥", 150), f"{detail} {ratio:.2f}")


def _scan(bench: Bench, log: Log) -> Iterator[Result]:
    root = str(bench.folder / "log")
    spark = spark_session()

    def tiered(priority: str = "tiered-first") -> None:
        options = {"topic": "tiered", "dataReadPriority": priority}
        drain(spark.read.format("txnlog").options(**options).load(root))

    frame = spark.read.format("txnlog").option("topic", "tiered").load(root)
    tasks, rows = frame.rdd.getNumPartitions(), frame.count()

    limit = prepared_frame(spark, log, "tiered", bench.folder, rows // ROWS, tasks)
    t_tiered, t_hot, t_limit = best_of(bench.runs, tiered, lambda: tiered("bookkeeper-first"), lambda: drain(limit()))
    rates = f"{rows / t_tiered / 1e6:.1f} M rows/s against {rows / t_limit / 1e6:.1f}"
    size = f"{rows / 1e6:.1f} M rows, {tasks} tasks"
    yield Result("tiered scan / prepared-batch source", t_limit / t_tiered, "×", ("≥", 0.8), f"{rates}; {size}")
    yield Result("tiered scan / hot scan, Spark", t_hot / t_tiered, "×", None)


def _newest(bench: Bench, log: Log) -> Iterator[Result]:
    """The newest 1 % of 100 ledgers, bookkeeper-first: no object is opened."""
    log.create_topic("hundred", ledger_max_entries=10)
    with log.producer("hundred") as producer:
        for _ in range(1000):
            producer.send_batch(messages(100, _VALUE_BYTES))
            producer.flush()
    log.offload("hundred")
    ledgers = log.stats("hundred").ledgers
    with log.scan("hundred", start=f"{ledgers[-2].ledger_id}:0", read_priority="bookkeeper-first") as reader:
        reader.read_all()
        copies = log.copies_read(reader)
    detail = f"{copies.hot_ledgers} of {len(ledgers) - 1} ledgers, hot"
    what = "objects that bookkeeper-first reads of the newest 1 %"
    yield Result(what, copies.tiered_ledgers, "objects", ("≤", 0), detail)


def _fallback(bench: Bench, log: Log) -> Iterator[Result]:
    """The same scan with the preferred copies there, and with all of them missing."""
    root = bench.folder / "log"

    def scan(priority: str) -> None:
        for _ in log.scan("tiered", read_priority=priority):
            pass

    t_tiered, t_hot = best_of(bench.runs, lambda: scan("tiered-first"), lambda: scan("bookkeeper-first"))
    objects = root / "tiered" / "public" / "default" / "tiered"
    shutil.move(objects, bench.folder / "away")
    [t_without] = best_of(bench.runs, lambda: scan("tiered-first"))
    shutil.move(bench.folder / "away", objects)
    yield Result("read with the tiered copies missing / with them", t_without / t_tiered, "×", ("≤", 1.2), "scan")
    segments = root / "segments" / "1"
    shutil.move(segments, bench.folder / "away")
    [t_without] = best_of(bench.runs, lambda: scan("bookkeeper-first"))
    shutil.move(bench.folder / "away", segments)
    yield Result(
        "read with the hot copies missing / tiered-first", t_without / t_tiered, "×", ("≤", 1.2),
        f"scan; {t_without / t_hot:.1f} × of reading them hot",
    )  # fmt: skip
