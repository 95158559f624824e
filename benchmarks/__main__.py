"""Run the benchmarks: ``python -m benchmarks [--quick] [NAME ...]``.

Prints a table as it goes; a full run of all of them writes it to ``benchmarks/RESULTS.md`` too. With ``--quick``
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

from benchmarks import aborted, memory, planning, producing, scan, small_transactions, tiers
from benchmarks.harness import Bench, Result

BENCHMARKS = {
    "scan": scan.run,
    "aborted": aborted.run,
    "planning": planning.run,
    "producing": producing.run,
    "memory": memory.run,
    "small_transactions": small_transactions.run,
    "tiers": tiers.run,
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
    results = []
    for name in arguments.names or BENCHMARKS:
        with tempfile.TemporaryDirectory(prefix=f"txnlog-bench-{name}-") as folder:
            for result in BENCHMARKS[name](Bench(Path(folder), arguments.quick)):
                print(_line(result, quick=arguments.quick), flush=True)
                results.append(result)
    if not arguments.quick and not arguments.names:
        RESULTS.write_text(_report(results), encoding="utf-8")
        print(f"\nWritten to {RESULTS.relative_to(Path.cwd())}")
    return 0


def _line(result: Result, *, quick: bool) -> str:
    verdict = {None: "      ", True: "met   ", False: "MISSED"}[result.met]
    if quick:
        verdict = "works "  # on so little data no figure counts
    target = f"{result.target[0]} {result.target[1]:g}" if result.target else ""
    return f"{verdict} {result.what:<58} {result.figure:>8.3g} {result.unit:<12} {target:<8} {result.detail}"


def _report(results: list[Result]) -> str:
    versions = f"Python {platform.python_version()}, PySpark {pyspark.__version__}, PyArrow {pyarrow.__version__}"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {versions}."
    lines = [
        "# Benchmark results",
        "",
        "Written by `make bench`. Ratios (×) compare two things in one run, taken in turns; the best of five counts.",
        "",
        machine,
        "",
        "| what | figure | target | met | detail |",
        "|---|---|---|---|---|",
    ]
    for r in results:
        target = f"{r.target[0]} {r.target[1]:g}" if r.target else ""
        met = {None: "", True: "yes", False: "**no**"}[r.met]
        lines.append(f"| {r.what} | {r.figure:.3g} {r.unit} | {target} | {met} | {r.detail} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
