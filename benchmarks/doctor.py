"""The doctor: how fast it reads against ``cat``, and what it takes for a million entries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import txn_source
from benchmarks.aborted import _seed
from benchmarks.harness import PEAK_MEGABYTES, Bench, Result, best_of
from benchmarks.prepared import ROWS
from benchmarks.scan import messages
from txn_source.upkeep.doctor.examination import examine
from txn_source.upkeep.doctor.findings import Report
from txn_source.upkeep.doctor.opening import Where, opened
from txn_source.upkeep.doctor.subject import Checksums

_CHILD = (
    PEAK_MEGABYTES
    + """
import sys, time
from txn_source.upkeep.doctor.examination import examine
from txn_source.upkeep.doctor.opening import Where, opened
from txn_source.upkeep.doctor.subject import Checksums
start = time.perf_counter()
with opened(Where(sys.argv[1]), checksums=Checksums.ALL) as log:
    report = examine(log)
assert not report.findings, report.findings
print(time.perf_counter() - start, peak_megabytes())
"""
)


def run(bench: Bench) -> Iterator[Result]:
    """Read all bytes of a log with the doctor and with ``cat``, in turns, from the page cache; then look at logs of few
    and of many entries, each in a process of its own."""
    path = bench.folder / "log"
    batch = messages(ROWS, 1_000)
    with txn_source.connect(path) as log:
        log.create_topic("t", ledger_max_bytes=256 << 20)
        with log.producer("t") as producer:
            for _ in range(bench.size(30, 2)):
                producer.send_batch(batch)
        log.roll_ledger("t")
        log.offload("t")
    files = [str(file) for folder in ("segments", "tiered") for file in (path / folder).rglob("*") if file.is_file()]
    size = sum(Path(file).stat().st_size for file in files)

    def look() -> Report:
        with opened(Where(str(path)), checksums=Checksums.ALL) as found:
            return examine(found)

    def cat() -> None:
        with open("/dev/null", "wb") as nowhere:
            subprocess.run(["cat", *files], check=True, stdout=nowhere)

    assert look().findings == ()
    doctor, plain = best_of(bench.runs, look, cat)
    detail = f"{size / doctor / 1e9:.2f} GB/s against {size / plain / 1e9:.2f}; {size / 1e9:.1f} GB, both tiers"
    yield Result("doctor with all checksums: time / cat of the files", doctor / plain, "×", None, detail)
    yield from _of_many_entries(bench)


def _of_many_entries(bench: Bench) -> Iterator[Result]:
    few, many = bench.size(50_000, 1_000), bench.size(500_000, 5_000)
    measured = {}
    for aborted in (few, many):
        path = bench.folder / f"entries-{aborted}"
        _seed(path, aborted, aborted // 100)
        child = subprocess.run([sys.executable, "-c", _CHILD, str(path)], check=True, capture_output=True, text=True)
        measured[aborted] = tuple(map(float, child.stdout.split()))
    seconds, megabytes = measured[many]
    yield Result(f"doctor of {2 * many:,} entries, all checksums", seconds, "s", None, "totals and pages among it")
    detail = f"{measured[few][1]:.0f} MB for {2 * few:,}"
    yield Result(f"memory of the doctor of {2 * many:,} entries", megabytes, "MB", ("≤", 300), detail)
