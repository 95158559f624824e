"""Backups and restores of an embedded log, against ``cp`` of its folder with a sync."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import txn_source
from benchmarks.harness import Bench, Result, best_of
from benchmarks.scan import messages

_ROWS, _VALUE_BYTES = 10_000, 120


def run(bench: Bench) -> Iterator[Result]:
    """Measure each with the same log; the ratios are to the rate of ``cp``."""
    root, made = bench.folder / "log", bench.folder / "made"
    batch = messages(_ROWS, _VALUE_BYTES)
    batches = bench.size(800, 20)
    with txn_source.connect(root) as log:
        log.create_topic("t", partitions=4)
        with log.producer("t") as producer:
            for _ in range(batches):
                producer.send_batch(batch)
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    txn_source.backup(root, bench.folder / "base", check=False)

    def anew(action: Callable[[Path], object]) -> Callable[[], object]:
        def act() -> None:
            shutil.rmtree(made, ignore_errors=True)
            action(made)

        return act

    def copy(target: Path) -> None:
        subprocess.run(["cp", "-r", root, target], check=True)
        subprocess.run(["sync", "-f", target], check=True)

    times = best_of(
        bench.runs,
        anew(copy),
        anew(lambda target: txn_source.backup(root, target, check=False)),
        anew(lambda target: txn_source.backup(root, target)),
        anew(lambda target: txn_source.backup(root, target, base=bench.folder / "base", check=False)),
        anew(lambda target: txn_source.restore(bench.folder / "base", target, check=False)),
        anew(lambda target: txn_source.restore(bench.folder / "base", target)),
    )
    t_copy = times[0]
    whats = ("backup", "backup, checked by scans", "second backup of the same", "restore", "restore, checked by scans")
    for what, time_s in zip(whats, times[1:], strict=True):
        detail = f"{size / time_s / 1e6:,.0f} MB/s against {size / t_copy / 1e6:,.0f}, {size / 1e6:,.0f} MB"
        yield Result(f"{what} / cp", t_copy / time_s, "×", None, detail)
