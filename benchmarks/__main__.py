"""Run the benchmarks: ``python -m benchmarks [--quick] [NAME ...]``.

Prints a table as it goes, and keeps it in ``benchmarks/RESULTS.md``, a section for each benchmark. With ``--quick``
everything runs on little data to see that it works, and no figure counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path

import pyarrow
import pyspark

from benchmarks import (
    aborted,
    access,
    backups,
    catalog,
    console,
    consumers,
    consuming,
    doctor,
    first_row,
    kafka_logs,
    lanes,
    many_writers,
    memory,
    metrics,
    objects,
    planning,
    producing,
    pulsar_ledgers,
    real_time,
    scan,
    services,
    small_transactions,
    streaming,
    tiers,
    tpch,
)
from benchmarks.harness import Bench, Result

BENCHMARKS = {
    "scan": scan.run,
    "aborted": aborted.run,
    "planning": planning.run,
    "producing": producing.run,
    "many_writers": many_writers.run,
    "services": services.run,
    "memory": memory.run,
    "objects": objects.run,
    "small_transactions": small_transactions.run,
    "tiers": tiers.run,
    "catalog": catalog.run,
    "lanes": lanes.run,
    "real_time": real_time.run,
    "tpch": tpch.run,
    "streaming": streaming.run,
    "consuming": consuming.run,
    "consumers": consumers.run,
    "first_row": first_row.run,
    "kafka_logs": kafka_logs.run,
    "pulsar_ledgers": pulsar_ledgers.run,
    "access": access.run,
    "backups": backups.run,
    "metrics": metrics.run,
    "console": console.run,
    "doctor": doctor.run,
}
RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> int:
    """Run what was asked for; the exit status is 0 even if a target is missed: a figure is not a test."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure txnlog.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="little data, one run: only see that it works")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {sorted(unknown)[0]!r}")
    if arguments.quick:
        os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")
    for name in arguments.names or BENCHMARKS:
        results = []
        with tempfile.TemporaryDirectory(prefix=f"txnlog-bench-{name}-") as folder:
            for result in BENCHMARKS[name](Bench(Path(folder), arguments.quick)):
                print(_line(result, quick=arguments.quick), flush=True)
                results.append(result)
        if not arguments.quick:
            _keep(name, results)
    return 0


def _keep(name: str, results: list[Result]) -> None:
    """Replace a benchmark's section of the results; those of the others stay."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    _, *kept = text.split("\n## ")
    sections = {section.split("\n", 1)[0]: section.split("\n", 1)[1].strip() for section in kept}
    sections[name] = _table(results)
    others = [n for n in sections if n not in BENCHMARKS]
    parts = [_heading(), *(f"## {n}\n\n{sections[n]}\n" for n in (*BENCHMARKS, *others) if n in sections)]
    RESULTS.write_text("\n".join(parts), encoding="utf-8")


def _line(result: Result, *, quick: bool) -> str:
    verdict = {None: "      ", True: "met   ", False: "MISSED"}[result.met]
    if quick:
        verdict = "works "  # on so little data no figure counts
    target = f"{result.target[0]} {result.target[1]:g}" if result.target else ""
    return f"{verdict} {result.what:<58} {result.figure:>8.3g} {result.unit:<12} {target:<8} {result.detail}"


def _heading() -> str:
    versions = f"Python {platform.python_version()}, PySpark {pyspark.__version__}, PyArrow {pyarrow.__version__}"
    return (
        "# Benchmark results\n\n"
        "Written by `make bench`. Ratios (×) compare two things in one run, in turns; the best of five counts.\n\n"
        f"{os.cpu_count()} cores, {platform.machine()}, {versions}.\n"
    )


def _table(results: list[Result]) -> str:
    lines = ["| what | figure | target | met | detail |", "|---|---|---|---|---|"]
    for r in results:
        target = f"{r.target[0]} {r.target[1]:g}" if r.target else ""
        met = {None: "", True: "yes", False: "**no**"}[r.met]
        lines.append(f"| {r.what} | {r.figure:.3g} {r.unit} | {target} | {met} | {r.detail} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
