"""Many small transactions: 1,000,000 messages in transactions of 10, against the same messages in full batches."""

from __future__ import annotations

from collections.abc import Iterator

import txn_source
from benchmarks.harness import Bench, Result, best_of, spark_session
from benchmarks.scan import VALUE_BYTES, drain, messages

MESSAGES = 10


def run(bench: Bench) -> Iterator[Result]:
    """Measure ``read_committed`` through Spark, and through ``scan`` in one thread."""
    count = bench.size(1_000_000, 2_000)
    root = bench.folder / "log"
    batch = messages(count, VALUE_BYTES)
    with txn_source.connect(root) as log:
        log.create_topic("small")
        log.create_topic("full")
        with log.producer("full") as producer:
            producer.send_batch(batch)
        with log.producer("small") as producer:
            for start in range(0, count, MESSAGES):
                with log.begin_transaction() as txn:
                    producer.send_batch(batch.slice(start, MESSAGES), txn=txn)
    spark = spark_session()

    def by_spark(topic: str) -> None:
        drain(spark.read.format("txnlog").option("topic", topic).option("minPartitions", 2).load(str(root)))

    def by_scan(topic: str) -> int:
        with txn_source.connect(root) as opened, opened.scan(topic) as reader:
            return sum(b.num_rows for b in reader)

    assert by_scan("small") == by_scan("full") == count
    small, full, small_scan, full_scan = best_of(
        bench.runs,
        lambda: by_spark("small"),
        lambda: by_spark("full"),
        lambda: by_scan("small"),
        lambda: by_scan("full"),
    )
    what = f"{count:,} messages in transactions of {MESSAGES} / in full batches"
    detail = f"{count / small / 1e6:.2f} M rows/s against {count / full / 1e6:.2f}"
    yield Result(f"{what}, Spark", full / small, "×", ("≥", 0.25), detail)
    detail = f"{count / small_scan / 1e6:.2f} M rows/s against {count / full_scan / 1e6:.2f}"
    yield Result(f"{what}, scan", full_scan / small_scan, "×", None, detail)
