"""Half of the entries aborted: ``read_committed`` against ``read_uncommitted``, with few and with very many transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import txn_source
from benchmarks.harness import Bench, Result, best_of
from benchmarks.seed import Seeder
from txn_source.metadata.tables import (
    ABORT_MARKER,
    ABORTED,
    DATA,
    entries,
    log_info,
    transaction_partitions,
    transactions,
)
from txn_source.model.position import Position

MESSAGES = 10
VALUE_BYTES = 120


def run(bench: Bench) -> Iterator[Result]:
    """Measure ``scan`` over two topics that differ in the number of aborted transactions only.

    Every second entry of 10 messages is aborted; the entries of one aborted transaction lie next to each other but for
    the plain ones between them.
    """
    aborted = bench.size(1_000_000, 2_000)
    few, many = bench.size(1_000, 20), aborted
    paths = {count: bench.folder / f"log-{count}" for count in (few, many)}
    for count, path in paths.items():
        _seed(path, aborted, count)

    def scan(count: int, level: str) -> int:
        with txn_source.connect(paths[count]) as log, log.scan("t", level, columns=["key", "value"]) as reader:
            return sum(batch.num_rows for batch in reader)

    for count in paths:
        assert scan(count, "read_committed") * 2 == scan(count, "read_uncommitted") == 2 * aborted * MESSAGES
    runs = min(bench.runs, 3)
    few_committed, few_all, many_committed, many_all = best_of(
        runs,
        lambda: scan(few, "read_committed"),
        lambda: scan(few, "read_uncommitted"),
        lambda: scan(many, "read_committed"),
        lambda: scan(many, "read_uncommitted"),
    )
    for count, committed, everything in ((few, few_committed, few_all), (many, many_committed, many_all)):
        detail = f"{committed:.2f} s against {everything:.2f} s; {2 * aborted:,} entries of {MESSAGES} messages"
        what = f"half aborted by {count:,} transactions: time / read_uncommitted"
        yield Result(what, committed / everything, "×", ("≤", 0.7), detail)
    slower = max(many_committed / few_committed, few_committed / many_committed)
    yield Result(f"{many:,} against {few:,} aborted transactions: time", slower, "×", ("≤", 1.1))


def _seed(path: Path, aborted: int, txns: int) -> None:
    per_txn = aborted // txns
    batch = pa.record_batch(
        [pa.array([b"k" * 8] * MESSAGES), pa.array([b"v" * VALUE_BYTES] * MESSAGES)], ["key", "value"]
    )
    with txn_source.connect(path) as log:
        log.create_topic("t", ledger_max_entries=1 << 30, ledger_max_bytes=1 << 50)
        seed = Seeder(log, "t")
        segment = seed.segment(batch, 2 * aborted)
        length = segment.length

        def at(entry: int) -> int:
            return Position(seed.first_ledger_id, entry).key

        def row(entry: int, index: int, kind: int, txn: int | None) -> dict[str, object]:
            data = kind == DATA
            return {
                "partition_id": seed.partition_id,
                "position": at(entry),
                "kind": kind,
                "messages": MESSAGES if data else 0,
                "messages_before": index * MESSAGES,
                "bytes_before": index * length,
                "txn": txn,
                "producer_id": 1 if data else None,
                "base_sequence": index * MESSAGES if data else None,
                "publish_time_us": 1,
                **(
                    segment.columns(index)
                    if data
                    else {"segment_id": None, "offset": None, "length": 0, "crc32c": None}
                ),
            }

        def all_entries() -> Iterator[dict[str, object]]:
            entry = index = 0
            for txn in range(txns):
                for _ in range(per_txn):
                    for owner in (None, txn):
                        yield row(entry, index, DATA, owner)
                        entry, index = entry + 1, index + 1
                yield row(entry, index, ABORT_MARKER, txn)
                entry += 1

        per_block = 2 * per_txn + 1
        seed.insert(
            transactions,
            (
                {"txn": t, "state": ABORTED, "timeout_ms": 1, "created_at_ms": 1, "deadline_ms": 2, "ended_at_ms": 2,
                 "end_reason": "client", "decision": t + 1}
                for t in range(txns)
            ),
        )  # fmt: skip
        seed.insert(entries, all_entries())
        seed.insert(
            transaction_partitions,
            (
                {"txn": t, "partition_id": seed.partition_id, "state": ABORTED, "first_position": at(t * per_block + 1),
                 "marker_position": at((t + 1) * per_block - 1), "decision": t + 1, "messages": per_txn * MESSAGES,
                 "bytes": per_txn * length}
                for t in range(txns)
            ),
        )  # fmt: skip
        seed.set_ledger(entries=per_block * txns, messages=2 * aborted * MESSAGES, bytes=2 * aborted * length)
        seed.change(log_info, transactions=txns, decisions=txns)
        seed.close()
