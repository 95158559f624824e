"""kill -9 of a copying pipeline, and of the service below it, at random points: the copy equals the source.

A child process copies a topic to another one through Spark. It is killed with its Java, and started again from its
checkpoint, until all is copied. After each kill the copy has whole transactions only, each of them once. ``--all -rP``
prints what the kills of each seed met.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.log.test_kills import FragileServer, insist
from txn_source import Log, connect

PIPELINE = Path(__file__).with_name("copying_pipeline.py")
SEEDS = (20260131, 20260601, 20261120)
LIMIT = 12
KILLS = 50


class Source:
    """Writes transactions over three partitions of ``source``; every fourth one is aborted."""

    def __init__(self, log: Log, seed: int) -> None:
        self.log = log
        self.committed: Counter[bytes] = Counter()
        self._random = random.Random(seed)
        self._count = 0
        log.create_topic("source", partitions=3, ledger_max_entries=7)
        log.create_topic("copy", partitions=2)

    def write(self, transactions: int) -> None:
        """Write some more; the service is there."""
        with self.log.producer("source") as producer:
            for _ in range(transactions):
                self._count += 1
                values = [f"{self._count} {leg}" for leg in range(self._random.randrange(2, 5))]
                transaction = self.log.begin_transaction()
                for leg, value in enumerate(values):
                    producer.send(value, key=value, partition=(self._count + leg) % 3, txn=transaction)
                producer.flush()
                if self._count % 4:
                    transaction.commit()
                    self.committed.update(value.encode() for value in values)
                else:
                    transaction.abort()

    def check(self, *, all_of_it: bool) -> int:
        """Check that the copy has each message at most once, and transactions whole and in one; return how many."""
        rows = insist(lambda: self.log.scan("copy", columns=["key", "value", "__txn_id"]).read_all().to_pylist())
        copied = Counter(row["value"] for row in rows)
        assert copied <= self.committed
        assert not all_of_it or copied == self.committed
        assert all(row["key"] == row["value"] for row in rows)
        legs = Counter(value.split()[0] for value in self.committed)
        seen, written_in = Counter(value.split()[0] for value in copied), defaultdict(set)
        assert seen == Counter({number: legs[number] for number in seen})
        for row in rows:
            written_in[row["value"].split()[0]].add(row["__txn_id"])
        assert all(len(txns) == 1 for txns in written_in.values())
        return len(seen)


class Pipeline:
    """The child process; one at a time."""

    def __init__(self, folder: Path) -> None:
        self._checkpoint = folder / "checkpoint"
        self._errors = folder / "errors"

    @contextmanager
    def started(self, kind: str, target: str, how: str) -> Iterator[Callable[[], str]]:
        """Start it, give what returns its next line, and kill it and its Java in the end, if it hasn't ended."""
        command = [sys.executable, str(PIPELINE), kind, target, str(self._checkpoint), str(LIMIT), how]
        with (
            self._errors.open("w") as errors,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            ) as child,
        ):

            def next_line() -> str:
                assert child.stdout is not None
                line = child.stdout.readline()
                assert line, self._errors.read_text()[-4000:]
                return line.strip()

            try:
                yield next_line
            finally:
                os.killpg(child.pid, signal.SIGKILL)

    def last(self, what: str) -> int:
        """Return the number of the last batch that the checkpoint has of ``offsets`` or ``commits``, -1 for none."""
        names = [path.name for path in (self._checkpoint / what).glob("*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)


def last_registered(root: Path) -> int:
    """Return the number of the last batch that counts in the log; only the metadata knows it."""
    with closing(sqlite3.connect(root / "metadata.db")) as database:
        [[number]] = database.execute("SELECT max(batch_id) FROM sinks")
    return -1 if number is None else int(number)


def kill_all(root: Path, folder: Path, rounds: int, seed: int) -> Counter[str]:
    """Kill the pipeline again and again, in every other round the service below it as well; then let it finish.

    In the other rounds the pipeline opens the root by itself. It has the same checkpoint in all of them. When it
    finishes the service is killed once more. Returns how often what was met.
    """
    source = random.Random(seed)
    met: Counter[str] = Counter()
    server = FragileServer(root)
    pipeline = Pipeline(folder)
    targets = [("endpoint", server.endpoint), ("path", str(root))]

    def a_moment() -> None:
        threading.Event().wait(source.uniform(0, 0.6))

    try:
        with connect(endpoint=server.endpoint) as log:
            topic = Source(log, seed)
            for number in range(rounds):
                topic.write(12)
                kind, target = targets[number % 2]
                with pipeline.started(kind, target, "follow") as next_line:
                    for _ in range(source.randrange(1, 3)):
                        while not next_line().startswith("batch"):
                            pass
                    if kind == "endpoint":
                        a_moment()
                        server.restart()
                        topic.write(4)
                    a_moment()
                topic.check(all_of_it=False)
                met["kills of the pipeline"] += 1
                if pipeline.last("offsets") > pipeline.last("commits"):
                    there = last_registered(root) == pipeline.last("offsets")
                    met["batches cut off after their commit" if there else "batches cut off before it"] += 1
            topic.write(8)
            with pipeline.started(*targets[0], "finish") as next_line:
                while next_line() != "running":
                    pass
                a_moment()
                server.restart()
                while next_line() != "done":
                    pass
            topic.check(all_of_it=True)
    finally:
        server.kill()
    with connect(root, create=False) as log:
        topic.log = log
        copied = topic.check(all_of_it=True)
        assert copied == len({value.split()[0] for value in topic.committed})
    return met + Counter({"batches": pipeline.last("commits") + 1, "transactions copied": copied})


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", SEEDS)
def test_copy_equals_the_source_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    """Kill the pipeline fifty times; some kills fall between a batch's commit and Spark's note of it."""
    met = kill_all(tmp_path / "log", tmp_path, KILLS, seed)
    print(f"seed {seed}:", *(f"{count} {what}," for what, count in sorted(met.items())))
    assert met["batches cut off after their commit"], "else a repeated batch wasn't met"
