"""Segments on an object store that answers after 0, 10 and 50 ms, against local files: writing, and a hot scan.

The store is a Python process on the same cores. ``scan`` maps local files into memory and copies nothing, so its ratio
is about what this store can send; through Spark, which handles each row, it is what a job sees.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import txn_source
from benchmarks.access import served
from benchmarks.harness import Bench, Result, best_of, know_the_store, spark_session
from benchmarks.scan import messages
from txn_source.client.log import Log

_DELAYS_MS = (0, 10, 50)
_ROWS, _VALUE_BYTES = 10_000, 120


class _Store:
    """The store's process, and how often it was asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.endpoint = process.stdout.readline().strip()

    def count(self) -> int:
        with urllib.request.urlopen(f"http://{self.endpoint}/-/count") as answer:
            return int(answer.read())


@contextmanager
def _store(delay_ms: int) -> Iterator[_Store]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.slow_store", str(delay_ms)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield _Store(process)
    finally:
        process.communicate()


def run(bench: Bench) -> Iterator[Result]:
    """Measure writing and reading; each figure is a ratio to local files in the same run."""
    know_the_store()
    for delay_ms in _DELAYS_MS:
        folder = bench.folder / str(delay_ms)
        folder.mkdir()
        with _store(delay_ms) as store:
            yield from _measure(bench, store, delay_ms, folder)


def _measure(bench: Bench, store: _Store, delay_ms: int, folder: Path) -> Iterator[Result]:
    uri = f"s3://bucket/log?endpoint_override=http://{store.endpoint}"
    batch = messages(_ROWS, _VALUE_BYTES)
    batches = bench.size(200, 2)
    size = batches * batch.nbytes
    with txn_source.connect(folder / "log") as local, txn_source.connect(uri, metadata=folder / "log.db") as remote:
        topics = {local: 0, remote: 0}

        def write(log: Log) -> None:
            topics[log] += 1
            name = f"topic-{topics[log]}"
            log.create_topic(name)
            with log.producer(name) as producer:
                for _ in range(batches):
                    producer.send_batch(batch)

        t_local, t_remote = best_of(bench.runs, lambda: write(local), lambda: write(remote))
        before = store.count()
        write(remote)
        puts = store.count() - before
        rates = f"{size / t_remote / 1e6:,.0f} MB/s against {size / t_local / 1e6:,.0f}"
        what = f"send_batch, objects at {delay_ms} ms / local files"
        yield Result(what, t_local / t_remote, "×", ("≥", 0.7) if delay_ms == 50 else None, rates)

        def read(log: Log) -> None:
            for _ in log.scan("topic-1"):
                pass

        t_local, t_remote = best_of(bench.runs, lambda: read(local), lambda: read(remote))
        before = store.count()
        read(remote)
        gets = store.count() - before
        rates = f"{size / t_remote / 1e6:,.0f} MB/s against {size / t_local / 1e6:,.0f}"
        what = f"hot scan, objects at {delay_ms} ms / local files"
        yield Result(what, t_local / t_remote, "×", None, rates)
        if delay_ms == 10:
            yield from _measure_shared(bench, store, local, remote)
            yield from _measure_spark(bench, folder / "log", uri, folder / "log.db")
    if delay_ms == 0:
        yield Result("requests per GB written", puts / size * 1e9, "", None)
        yield Result("requests per GB read", gets / size * 1e9, "", None)


def _measure_shared(bench: Bench, store: _Store, local: Log, remote: Log) -> Iterator[Result]:
    """Read 16 partitions that a producer has filled in turns, so that they share objects."""
    batch = messages(_ROWS, _VALUE_BYTES)
    batches = bench.size(192, 16)
    for log in (local, remote):
        log.create_topic("shared", partitions=16)
        with log.producer("shared") as producer:
            for number in range(batches):
                producer.send_batch(batch, partition=number % 16)

    def read(log: Log) -> None:
        for _ in log.scan("shared"):
            pass

    t_local, t_remote = best_of(bench.runs, lambda: read(local), lambda: read(remote))
    before = store.count()
    read(remote)
    size = batches * batch.nbytes
    yield Result("hot scan of 16 partitions, objects at 10 ms / local files", t_local / t_remote, "×", None)
    yield Result("requests per GB read of 16 partitions", (store.count() - before) / size * 1e9, "", None)


def _measure_spark(bench: Bench, root: Path, uri: str, metadata: Path) -> Iterator[Result]:
    """Read the topic through Spark, every row of it."""
    spark = spark_session()
    with served(root) as local, served(uri, "--metadata", str(metadata)) as remote:

        def read(endpoint: str) -> None:
            frame = spark.read.format("txnlog").option("endpoint", endpoint).option("topic", "topic-1").load()
            frame.write.format("noop").mode("overwrite").save()

        read(local)
        t_local, t_remote = best_of(bench.runs, lambda: read(local), lambda: read(remote))
    rows = bench.size(200, 2) * _ROWS / 1e6
    rates = f"{rows / t_remote:.2f} M rows/s against {rows / t_local:.2f}"
    yield Result("hot scan through Spark, objects at 10 ms / local files", t_local / t_remote, "×", ("≥", 0.8), rates)
