"""What Kafka wrote, read in place: through Spark, by ``scan``, planned over many segments, in flat memory, imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import txn_source
from benchmarks.harness import PEAK_MEGABYTES, Bench, Result, best_of, spark_session
from benchmarks.kafka_files import ROWS, write_empty_segments, write_partition
from benchmarks.scan import drain
from txn_source.importing import import_topics

_PARTITIONS = 2
_SCAN = f"""
import sys
import txn_source
{PEAK_MEGABYTES}
for batch in txn_source.connect(sys.argv[1]).scan("t"):
    pass
print(peak_megabytes())
"""


def run(bench: Bench) -> Iterator[Result]:
    """Measure values of 120 bytes with keys of 8, 1,000 to a batch, on two partitions."""
    batches = bench.size(6_000, 50)
    plain = bench.folder / "plain"
    spark = spark_session()
    for name, options, target in (
        ("plain", {}, 3.0),
        ("lz4", {"codec": "lz4"}, 2.5),
        ("half aborted", {"half_aborted": True}, 3.0),
    ):
        folder = bench.folder / name.split()[0]
        many = batches * 2 if name == "half aborted" else batches
        rows = sum(write_partition(folder, index, many, **options) for index in range(_PARTITIONS))  # type: ignore[arg-type]
        frame = spark.read.format("txnlog").option("topic", "t").load(f"kafka:{folder}")
        assert bench.quick is False or frame.count() == rows
        [took] = best_of(bench.runs, lambda frame=frame: drain(frame))  # type: ignore[misc]
        yield Result(f"Kafka's log through Spark, {name}", rows / took / 1e6, "M rows/s", ("≥", target), _size(rows))
    rows = _PARTITIONS * batches * ROWS
    [took] = best_of(bench.runs, lambda: _scan(plain))
    yield Result("Kafka's log by scan, without Spark", rows / took / 1e6, "M rows/s", ("≥", 5), _size(rows))
    yield from _memory(bench, plain)
    yield from _planning(bench)
    yield from _import(bench, plain, rows)


def _scan(folder: Path) -> None:
    with txn_source.connect(f"kafka:{folder}") as log:
        for _ in log.scan("t"):
            pass


def _memory(bench: Bench, large: Path) -> Iterator[Result]:
    """Compare the peaks of processes that read a small log and a large one, whose segments are as large as brokers'."""
    small = bench.folder / "small"
    write_partition(small, 0, bench.size(300, 5))
    peaks = []
    for folder in (small, large):
        done = subprocess.run(
            [sys.executable, "-c", _SCAN, f"kafka:{folder}"], capture_output=True, check=True, text=True
        )
        peaks.append(float(done.stdout))
    detail = f"{peaks[0]:.0f} MB for {bench.size(300, 5)} batches"
    yield Result("peak memory of a scan of Kafka's log", peaks[1], "MB", None, detail)


def _planning(bench: Bench) -> Iterator[Result]:
    count = bench.size(10_000, 200)
    folder = bench.folder / "many"
    write_empty_segments(folder, count)

    def plan() -> None:
        with txn_source.connect(f"kafka:{folder}") as log:
            log.scan("t").close()

    [took] = best_of(bench.runs, plan)
    yield Result(f"planning of {count:,} segments of Kafka's", took, "s", ("≤", 2), "")


def _import(bench: Bench, source: Path, rows: int) -> Iterator[Result]:
    runs = iter(range(100))

    def move() -> None:
        with txn_source.connect(bench.folder / f"target-{next(runs)}") as log:
            assert import_topics(f"kafka:{source}", "t", log).messages == rows

    [took] = best_of(1, move)
    yield Result("import of Kafka's log", rows / took / 1e6, "M rows/s", None, _size(rows))


def _size(rows: int) -> str:
    return f"{rows / 1e6:.1f} M rows"
