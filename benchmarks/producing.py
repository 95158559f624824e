"""Producers: batches of 10,000 messages, and single messages."""

from __future__ import annotations

from collections.abc import Iterator

import txn_source
from benchmarks.harness import Bench, Result, best_of
from benchmarks.scan import messages

VALUE_BYTES = 120


def run(bench: Bench) -> Iterator[Result]:
    """Measure from the first send until everything is synced and registered."""
    batches, singles = bench.size(300, 3), bench.size(500_000, 5_000)
    batch = messages(10_000, VALUE_BYTES)
    value = b"x" * VALUE_BYTES
    with txn_source.connect(bench.folder / "log") as log:
        log.create_topic("t", partitions=2)
        with log.producer("t") as producer:

            def send_batches() -> None:
                for index in range(batches):
                    producer.send_batch(batch, partition=index % 2)
                producer.flush()

            def send_singles() -> None:
                for _ in range(singles):
                    producer.send(value)
                producer.flush()

            t_batches, t_singles = best_of(bench.runs, send_batches, send_singles)
    detail = f"{VALUE_BYTES}-byte values, synced"
    yield Result("send_batch of 10,000", batches * batch.num_rows / t_batches / 1e6, "M msg/s", ("≥", 2), detail)
    yield Result("send one by one", singles / t_singles / 1e3, "k msg/s", ("≥", 150), detail)
