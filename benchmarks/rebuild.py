"""Making the metadata of a log again: entries a minute, and the memory it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import txn_source
from benchmarks.harness import PEAK_MEGABYTES, Bench, Result
from txn_source.client.writing.batching import Batching

_PARTITIONS = 8
_CHILD = (
    PEAK_MEGABYTES
    + """
import sys, time
from txn_source.upkeep.rebuild import rebuild
start = time.perf_counter()
report = rebuild(sys.argv[1], undecided="refuse")
print(time.perf_counter() - start, peak_megabytes(), sum(topic.messages for topic in report.topics))
"""
)


def run(bench: Bench) -> Iterator[Result]:
    """Write entries of one message, lose the database, and make it again, with its check, in a process of its own."""
    few, many = bench.size(100_000, 2_000), bench.size(400_000, 4_000)
    measured = {entries: _rebuilt(bench.folder / str(entries), entries) for entries in (few, many)}
    seconds, megabytes = measured[many]
    detail = f"{many:,} entries of a message each, {_PARTITIONS} partitions; {seconds:.1f} s with the check"
    yield Result("entries a minute of a rebuild", many / seconds * 60 / 1e6, "M/min", ("≥", 1), detail)
    yield Result(
        f"memory of a rebuild of {many:,} entries", megabytes, "MB", None, f"{measured[few][1]:.0f} for {few:,}"
    )


def _rebuilt(root: Path, entries: int) -> tuple[float, float]:
    # What is written here needs to survive nothing.
    with (
        mock.patch.object(os, "fsync", return_value=None),
        mock.patch.object(os, "fdatasync", return_value=None),
        txn_source.connect(root) as log,
    ):
        log.create_topic("t", partitions=_PARTITIONS)
        with log.producer("t", batching=Batching(linger_s=3600)) as producer:
            for _ in range(entries // _PARTITIONS):
                for partition in range(_PARTITIONS):
                    producer.send(b"a message", partition=partition)
                producer.flush()
    for file in root.glob("metadata.db*"):
        file.unlink()
    child = subprocess.run([sys.executable, "-c", _CHILD, str(root)], check=True, capture_output=True, text=True)
    seconds, megabytes, messages = map(float, child.stdout.split())
    assert messages == entries
    return seconds, megabytes
