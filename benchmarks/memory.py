"""Memory of a reader, of either copy, and of an offload: it doesn't grow with the ledger."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import txn_source
from benchmarks.harness import PEAK_MEGABYTES, Bench, Result
from benchmarks.prepared import ROWS
from benchmarks.scan import messages

_CHILD = (
    PEAK_MEGABYTES
    + """
import sys
import txn_source
log = txn_source.connect(sys.argv[1], create=False)
if sys.argv[2] == "offload":
    rows = log.offload("t").messages
else:
    rows = sum(batch.num_rows for batch in log.scan("t", read_priority=sys.argv[2]))
print(peak_megabytes(), rows)
"""
)


def run(bench: Bench) -> Iterator[Result]:
    """Measure the peaks of processes that scan and offload one ledger, imports included."""
    batch = messages(ROWS, 1_000)
    for gigabytes in (1, 10):
        copies = bench.size(gigabytes * 15, min(gigabytes, 2))
        path = bench.folder / str(gigabytes)
        with txn_source.connect(path) as log:
            log.create_topic("t", ledger_max_bytes=1 << 50)
            with log.producer("t") as producer:
                for _ in range(copies):
                    producer.send_batch(batch)
            size = log.stats("t").bytes
            log.roll_ledger("t")

        def peak(work: str, path: Path = path, rows: int = copies * ROWS) -> float:
            child = subprocess.run(
                [sys.executable, "-c", _CHILD, str(path), work], check=True, capture_output=True, text=True
            ).stdout.split()
            assert int(child[1]) == rows
            return float(child[0])

        what = f"{size / 1e9:.2g} GB ledger"
        yield Result(f"memory of a reader of a {what}", peak("bookkeeper-first"), "MB", ("≤", 300))
        yield Result(f"memory of an offload of a {what}", peak("offload"), "MB", ("≤", 300))
        yield Result(f"memory of a reader of the object of a {what}", peak("tiered-first"), "MB", ("≤", 300))
