"""From a session's start to the first rows of a batch and of a stream, against a source that does nothing.

Each measurement has a session and processes of its own. A query is over when all its rows are there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness import Bench, Result
from txn_source.client.connecting import connect

_TICKS = os.sysconf("SC_CLK_TCK")
_PLACE = Path(__file__).resolve().parent.parent


def run(bench: Bench) -> Iterator[Result]:
    """Measure sessions of both sources in turns; the best of each counts."""
    root = str(bench.folder / "log")
    with connect(root) as log:
        log.create_topic("orders", partitions=2)
        with log.producer("orders") as producer:
            for partition in range(2):
                producer.send(b"x", partition=partition)
    best: dict[str, dict[str, tuple[float, float]]] = {}
    for turn in range(bench.runs):
        for source in ("txnlog", "nothing") if turn % 2 else ("nothing", "txnlog"):
            for query, (wall, cpu) in _session(source, root).items():
                known = best.setdefault(query, {}).get(source, (wall, cpu))
                best[query][source] = min(wall, known[0]), min(cpu, known[1])
    for query, what in (("batch", "first query of a session"), ("stream", "start of a stream behind it")):
        ours, nothing = best[query]["txnlog"], best[query]["nothing"]
        detail = f"{ours[0]:.1f} s against {nothing[0]:.1f}; Python's CPU {ours[1]:.1f} s against {nothing[1]:.1f}"
        yield Result(f"{what} / source that does nothing", ours[0] / nothing[0], "×", ("≤", 1.1), detail)


def _session(source: str, root: str) -> dict[str, tuple[float, float]]:
    """Return what a session of its own measured: seconds, and seconds of CPU of Python's processes, by query."""
    environment = {**os.environ, "PYTHONPATH": str(_PLACE), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "benchmarks.first_row", source, root]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=_PLACE)
    measured: dict[str, tuple[float, float]] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _measure(source: str, root: str) -> dict[str, tuple[float, float]]:
    from benchmarks.harness import spark_session
    from benchmarks.nothing import NothingSource

    spark = spark_session()
    spark.dataSource.register(NothingSource)
    spark.range(2).write.format("noop").mode("overwrite").save()  # what any first query of a session takes
    options = {"topic": "orders", "metadataColumns": "none"} if source == "txnlog" else {}

    def batch() -> None:
        assert len(spark.read.format(source).options(**options).load(root).collect()) == 2

    def stream() -> None:
        given = {**options, "startingOffsets": "earliest"} if options else {}
        frame = spark.readStream.format(source).options(**given).load(root)
        query = frame.writeStream.format("noop").trigger(once=True).start()
        query.awaitTermination()
        assert sum(progress.numInputRows for progress in query.recentProgress) == 2

    measured = {name: _timed(query) for name, query in (("batch", batch), ("stream", stream))}
    spark.stop()
    return measured


def _timed(query: Callable[[], None]) -> tuple[float, float]:
    cpu, start = _cpu_below(os.getpid()), time.perf_counter()
    query()
    return time.perf_counter() - start, _cpu_below(os.getpid()) - cpu


def _cpu_below(pid: int) -> float:
    """Return the CPU seconds of a process and of all below it, ended ones included, but for the JVM."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # it has just ended
        fields = rest.split()
        used = fields[13:15] if head.endswith("(java") else fields[11:15]  # of the JVM, what its children had
        found[int(head.split()[0])] = int(fields[1]), sum(map(int, used))
    below, new = {pid}, {pid}
    while new:
        new = {child for child, (parent, _) in found.items() if parent in new}
        below |= new
    return sum(found[child][1] for child in below if child in found) / _TICKS


if __name__ == "__main__":
    print(json.dumps(_measure(*sys.argv[1:])))
