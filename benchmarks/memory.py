"""Memory of a reader: it doesn't grow with the ledger."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import txn_source
from benchmarks.harness import PEAK_MEGABYTES, Bench, Result
from benchmarks.prepared import ROWS
from benchmarks.scan import messages

_CHILD = (
    PEAK_MEGABYTES
    + """
import sys
import txn_source
rows = sum(batch.num_rows for batch in txn_source.connect(sys.argv[1], create=False).scan("t"))
print(peak_megabytes(), rows)
"""
)


def run(bench: Bench) -> Iterator[Result]:
    """Measure the peak of a process that scans one ledger, imports included."""
    batch = messages(ROWS, 1_000)
    for gigabytes in (1, 10):
        copies = bench.size(gigabytes * 15, gigabytes)
        path = bench.folder / str(gigabytes)
        with txn_source.connect(path) as log:
            log.create_topic("t", ledger_max_bytes=1 << 50)
            with log.producer("t") as producer:
                for _ in range(copies):
                    producer.send_batch(batch)
            size = log.stats("t").bytes
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(path)], check=True, capture_output=True, text=True
        ).stdout.split()
        assert int(child[1]) == copies * ROWS
        yield Result(f"memory of a reader of a {size / 1e9:.2g} GB ledger", float(child[0]), "MB", ("≤", 300))
