"""Half of the entries aborted: ``read_committed`` against ``read_uncommitted``, with few and with many transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import txn_source
from benchmarks.harness import Bench, Result, best_of
from benchmarks.seed import Seeder
from txn_source.metadata.store.tables import entries, log_info, transaction_partitions, transactions
from txn_source.model.kinds import ABORT_MARKER, ABORTED, DATA
from txn_source.model.position import Position

MESSAGES = 10
VALUE_BYTES = 120
LEDGER_ENTRIES = 50_000


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
    """Write blocks of one transaction each: plain and aborted entries in turns, then the abort marker."""
    per_txn = aborted // txns
    per_block = 2 * per_txn + 1
    total = per_block * txns
    batch = pa.record_batch(
        [pa.array([b"k" * 8] * MESSAGES), pa.array([b"v" * VALUE_BYTES] * MESSAGES)], ["key", "value"]
    )
    with txn_source.connect(path) as log:
        log.create_topic("t")
        seed = Seeder(log, "t")
        segment = seed.segment(batch, 2 * aborted)

        def at(entry: int) -> int:
            return Position(seed.first_ledger_id + entry // LEDGER_ENTRIES, entry % LEDGER_ENTRIES).key

        def before(entry: int) -> int:
            """Return how many data entries lie before an entry."""
            return entry - entry // per_block

        def entry_row(entry: int) -> dict[str, object]:
            txn, inside = divmod(entry, per_block)
            row: dict[str, object] = {
                "partition_id": seed.partition_id,
                "position": at(entry),
                "messages_before": before(entry) * MESSAGES,
                "bytes_before": before(entry) * segment.length,
                "publish_time_us": 1,
            }
            if inside == per_block - 1:
                nothing = dict.fromkeys(("producer_id", "base_sequence", "segment_id", "offset", "crc32c"))
                return row | nothing | {"kind": ABORT_MARKER, "messages": 0, "txn": txn, "length": 0}
            index = before(entry)
            data = {"kind": DATA, "messages": MESSAGES, "producer_id": 1, "base_sequence": index * MESSAGES}
            return row | segment.columns(index) | data | {"txn": txn if inside % 2 else None}

        def txn_row(txn: int) -> dict[str, object]:
            return {"txn": txn, "state": ABORTED, "timeout_ms": 1, "created_at_ms": 1, "deadline_ms": 2,
                    "ended_at_ms": 2, "end_reason": "client", "decision": txn + 1}  # fmt: skip

        def trace_row(txn: int) -> dict[str, object]:
            return {"txn": txn, "partition_id": seed.partition_id, "state": ABORTED, "decision": txn + 1,
                    "first_position": at(txn * per_block + 1), "last_position": at((txn + 1) * per_block - 2),
                    "marker_position": at((txn + 1) * per_block - 1),
                    "messages": per_txn * MESSAGES, "bytes": per_txn * segment.length}  # fmt: skip

        seed.insert(transactions, map(txn_row, range(txns)))
        seed.insert(entries, map(entry_row, range(total)))
        seed.insert(transaction_partitions, map(trace_row, range(txns)))
        seed.roll(total, LEDGER_ENTRIES, before, MESSAGES, segment.length)
        seed.change(log_info, transactions=txns, decisions=txns)
        seed.close()
