"""kill -9 of consumers and of the server: at least once without transactions, exactly once with them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import BY_HAND, values
from tests.log.sites import Site
from tests.log.test_kills import DEADLINE_S, FragileServer, insist
from tests.log.two_ways import consume, prepare, write
from txn_source import Log, TransactionEndedError, connect

CHILD = Path(__file__).with_name("two_ways.py")
SEED = 20260131


def drain(log: Log, source: random.Random) -> list[list[Any]]:
    """Consume until nothing is left of either subscription; return the steps."""
    steps, deadline = [], time.monotonic() + DEADLINE_S
    with closing(consume(log, source, insist)) as consuming:
        for step in consuming:
            steps.append(step)
            if step == ["nothing"] and not any(p.backlog for info in log.subscriptions("t") for p in info.partitions):
                return steps
            assert time.monotonic() < deadline
    raise AssertionError("it doesn't end by itself")


def abort_open(log: Log) -> None:
    """Abort what a killed process left open; a commit that was on its way may still arrive before."""
    for left in log.transactions():
        with suppress(TransactionEndedError):
            log.abort_transaction(left.id)


def check(log: Log, written: list[str], steps: list[list[Any]]) -> None:
    """Compare what was written and committed with what was consumed in each way."""
    abort_open(log)
    got = Counter(value for what, *some in steps if what == "got" for value in some)
    assert set(got) == set(written)
    assert Counter(value.decode() for value in values(log, "out")) == Counter(written)
    committed = Counter(value for what, *some in steps if what == "committed" for value in some)
    assert set(committed) <= set(written)
    assert max(committed.values()) == 1


def kill_consumers(site: Site, rounds: int) -> None:
    """Run one consumer after the other, each killed after some steps and a moment more."""
    source = random.Random(SEED)
    log = site.connect()
    prepare(log)
    producer = log.producer("t", batching=BY_HAND)
    target = site.endpoint if site.kind == "remote" else str(site.root)
    written: list[str] = []
    steps: list[list[Any]] = []
    for number in range(rounds):
        written += write(log, producer, source, 20 * number, lambda call: call())
        command = [sys.executable, str(CHILD), site.kind, target, str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            steps += [json.loads(child.stdout.readline()) for _ in range(source.randrange(2, 25))]
            threading.Event().wait(source.uniform(0, 0.02))
            child.kill()
            rest = child.stdout.read()
        steps += [json.loads(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        abort_open(log)
    steps += drain(log, source)
    check(log, written, steps)
    acknowledged: set[str] = set()
    for what, *some in steps:  # the acknowledgement was stored before it was told
        if what == "got":
            assert acknowledged.isdisjoint(some)
        elif what == "acknowledged":
            acknowledged |= set(some)


def kill_servers(root: Path, rounds: int) -> None:
    """Kill the server while messages are written and consumed in both ways."""
    source = random.Random(SEED)
    server = FragileServer(root)
    written: list[str] = []
    steps: list[list[Any]] = []
    progress, over = threading.Semaphore(0), threading.Event()

    def kill() -> None:
        try:
            for _ in range(rounds):
                for _ in range(source.randrange(1, 15)):
                    progress.acquire()
                threading.Event().wait(source.uniform(0, 0.05))
                server.restart()
        finally:
            over.set()

    def produce() -> None:
        own = random.Random(SEED)
        with connect(endpoint=server.endpoint, timeout=5.0) as log:
            producer = log.producer("t", batching=BY_HAND)
            while not over.is_set():
                written.extend(write(log, producer, own, len(written) * 10, insist))
                while sum(s[0] == "committed" for s in steps) < len(written) // 20 and not over.is_set():
                    threading.Event().wait(0.01)

    threads = [threading.Thread(target=call, daemon=True) for call in (kill, produce)]
    try:
        with connect(endpoint=server.endpoint, timeout=5.0) as log:
            prepare(log)
            consuming = consume(log, source, insist)
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                steps.append(next(consuming))
                progress.release()
            consuming.close()
            steps += drain(log, source)
            check(log, written, steps)
    finally:
        over.set()
        server.kill()


def test_killed_consumers_lose_nothing_and_commit_nothing_twice(site: Site) -> None:
    """Kill a consumer's process."""
    kill_consumers(site, 1)


@pytest.mark.long
def test_consumers_survive_killed_servers(tmp_path: Path) -> None:
    """Kill the server once."""
    kill_servers(tmp_path / "log", 1)
