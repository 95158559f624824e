"""Planning a read of a topic with very many ledgers: time, and memory of the whole process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import txn_source
from benchmarks.harness import PEAK_MEGABYTES, Bench, Result
from benchmarks.seed import Seeder
from txn_source.metadata.store.tables import entries, ledgers, partitions
from txn_source.model.position import Position

_CHILD = (
    PEAK_MEGABYTES
    + """
import sys, time
import txn_source
from txn_source.client.reading.own_log import OwnLog
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.client.reading.source import resolve
log = txn_source.connect(sys.argv[1], create=False)
start = time.perf_counter()
source = resolve(log.metadata, Selection.of("t"))
planned = plan(OwnLog(log.access), source, ReadRequest())
seconds = time.perf_counter() - start
print(seconds, peak_megabytes(), len(planned.tasks))
"""
)


def run(bench: Bench) -> Iterator[Result]:
    """Measure resolve and plan in a fresh process; the memory is that of the process at its peak, imports included."""
    count = bench.size(100_000, 1_000)
    path = bench.folder / "log"
    _seed(path, count)
    measured = [
        tuple(float(x) for x in subprocess.run([sys.executable, "-c", _CHILD, str(path)], check=True,
              capture_output=True, text=True).stdout.split())
        for _ in range(bench.runs)
    ]  # fmt: skip
    seconds, megabytes = min(m[0] for m in measured), max(m[1] for m in measured)
    detail = f"{int(measured[0][2])} tasks"
    yield Result(f"planning {count:,} ledgers", seconds, "s", ("≤", 1.0), detail)
    yield Result(f"memory while planning {count:,} ledgers", megabytes, "MB", ("≤", 200))


def _seed(path: Path, count: int) -> None:
    with txn_source.connect(path) as log:
        log.create_topic("t")
        seed = Seeder(log, "t")
        first = seed.first_ledger_id
        size = 1 << 20
        done = {"entries": 1, "messages": 1, "bytes": size, "last_publish_time_us": 1, "closed_at_ms": 1}
        seed.set_ledger(**done)
        seed.insert(
            ledgers,
            (
                {"ledger_id": first + i, "partition_id": seed.partition_id, "messages_before": i,
                 "bytes_before": i * size, "created_at_ms": 1, **done}
                for i in range(1, count)
            ),
        )  # fmt: skip
        seed.insert(
            entries,
            (
                {"partition_id": seed.partition_id, "position": Position(first + i, 0).key, "kind": 0, "messages": 1,
                 "messages_before": i, "bytes_before": i * size, "producer_id": 1, "base_sequence": i,
                 "publish_time_us": 1, "segment_id": 1, "offset": i * size, "length": size, "crc32c": 0}
                for i in range(count)
            ),
        )  # fmt: skip
        seed.change(partitions, open_ledger_id=first + count - 1)
        seed.close()
        assert log.stats("t").messages == count
