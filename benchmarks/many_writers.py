"""Many writers on one log, each a producer that flushes after every message: commits a second, and how long one waits.

As processes that embed the log, as threads of one process, and as threads through one service. The figures are those of
calls of ``flush``; a ratio compares with one writer of the same kind, so that the machine's disk falls out of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import txn_source
from benchmarks.harness import Bench, Result
from txn_source.client.log import Log
from txn_source.client.target import Target
from txn_source.metadata.service.server import Server

WRITERS = 40
LONGEST_S = 5.0


def run(bench: Bench) -> Iterator[Result]:
    """Measure one writer and many, in each of three ways."""
    writers, seconds = bench.size(WRITERS, 3), bench.seconds(12)
    numbers = count()

    def root() -> Path:
        path = bench.folder / f"log{next(numbers)}"
        with txn_source.connect(path) as log:
            log.create_topic("t", partitions=8)
        return path

    for kind, measure in (("processes", _processes), ("threads", _threads), ("threads over a service", _remote)):
        alone, many = measure(root(), 1, seconds), measure(root(), writers, seconds)
        waits = sorted(wait for one in many for wait in one)
        p50, p99 = (waits[int(len(waits) * share)] * 1000 for share in (0.5, 0.99))
        detail = (
            f"{len(waits) / seconds:.0f}/s against {len(alone[0]) / seconds:.0f}; p50 {p50:.0f} ms, p99 {p99:.0f} ms"
        )
        detail += f"; fewest by one: {min(map(len, many))}, most: {max(map(len, many))}"
        yield Result(f"flushes of {writers} {kind} / of one", len(waits) / len(alone[0]), "×", None, detail)
        yield Result(f"longest flush among {writers} {kind}", max(waits), "s", ("≤", LONGEST_S))


def write(log: Log, number: int, seconds: float) -> list[float]:
    """Flush message by message for a time; return how long each took."""
    waits = []
    with log.producer("t") as producer:
        until = time.monotonic() + seconds
        while (began := time.monotonic()) < until:
            producer.send(b"message", partition=number % 8)
            producer.flush()
            waits.append(time.monotonic() - began)
    return waits


def _processes(root: Path, writers: int, seconds: float) -> list[list[float]]:
    command = [sys.executable, __file__, str(root)]
    children = [
        subprocess.Popen([*command, str(n), str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in range(writers)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()  # it is ready
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
    return [json.loads(child.communicate()[0]) for child in children]


def _threads(root: Path, writers: int, seconds: float) -> list[list[float]]:
    with txn_source.connect(root) as log:
        return _in_threads(log, writers, seconds)


def _remote(root: Path, writers: int, seconds: float) -> list[list[float]]:
    server = Server(Target.of(root, None).service(), "127.0.0.1", 0)
    with server, txn_source.connect(endpoint=server.address) as log:
        return _in_threads(log, writers, seconds)


def _in_threads(log: Log, writers: int, seconds: float) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in range(writers)]

    def one(number: int) -> None:
        found[number] = write(log, number, seconds)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _child() -> None:
    with txn_source.connect(sys.argv[1]) as log:
        write(log, 0, 0.001)  # what a first flush loads and makes isn't measured
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(write(log, int(sys.argv[2]), float(sys.argv[3]))))


if __name__ == "__main__":
    _child()
