"""What every benchmark shares: results with their targets, timing, a Spark session, a folder for the data."""

from __future__ import annotations

import gc
import operator
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from txn_source.spark.catalog.configure import configure

_COMPARE = {"≥": operator.ge, "≤": operator.le}


@dataclass(frozen=True, slots=True)
class Result:
    """One measured figure; ``target`` is such as ("≥", 0.9), None where the figure is only shown."""

    what: str
    figure: float
    unit: str
    target: tuple[str, float] | None
    detail: str = ""

    @property
    def met(self) -> bool | None:
        """True or False against the target; None without one."""
        return None if self.target is None else bool(_COMPARE[self.target[0]](self.figure, self.target[1]))


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a benchmark keeps its data, and how much of it there is to be."""

    folder: Path
    quick: bool

    def size(self, full: int, quick: int) -> int:
        """Return how much to use."""
        return quick if self.quick else full

    def seconds(self, full: float) -> float:
        """Return how long to do what is counted: just long enough to see it happen, if quick."""
        return 0.2 if self.quick else full

    @property
    def runs(self) -> int:
        """How often each thing is measured; the best run counts."""
        return 1 if self.quick else 5


PEAK_MEGABYTES = """
def peak_megabytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
"""
"""For child processes: ``ru_maxrss`` would count the parent's memory too, since Linux keeps it over an exec."""


def best_of(runs: int, *actions: Callable[[], object]) -> list[float]:
    """Return the shortest time in seconds of each action; they take turns, so that a slow moment hits all of them."""
    times = [float("inf")] * len(actions)
    for _ in range(runs):
        for index, action in enumerate(actions):
            gc.collect()
            start = time.perf_counter()
            action()
            times[index] = min(times[index], time.perf_counter() - start)
    return times


def know_the_store() -> None:
    """Have credentials in the environment for the stores that benchmarks start, which take any."""
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "benchmark")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "benchmark")


def spark_session() -> SparkSession:
    """Return the one Spark session of the run: two local cores, quiet, with the catalog's jar."""
    know_the_store()  # its workers keep the environment that they began with
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)  # workers import the prepared source
    spark = (
        configure(SparkSession.builder.master("local[2]"))
        .appName("txnlog-benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
