"""kill -9 of Spark's driver, at the worst moments and at random ones, while tasks fail too: each row comes once.

The driver is a child process (this file, run as a program) with several streaming queries, each of which copies a
folder of files to a topic of its own, one file to a micro-batch. Python workers outlive their driver for a moment, as
they do in a cluster, and may still commit when the next driver is on its way.

A real driver takes seconds to start, so that only long runs have some. An imitation is killed in each run: a child that
does with the sink what Spark's micro-batches do, in their order, with a checkpoint like theirs. ``-rP`` prints what the
kills of each seed in a long run met.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from tests.log.reading import a_week_later
from txn_source import Log, connect
from txn_source.spark.sink import StreamWriter, TaskWrote
from txn_source.spark.source import TxnLogDataSource

SEED, LONG_SEEDS = 20260131, (20260131, 20260601, 20261120)
QUERIES, ROWS = 2, 50
FILES, LONG_FILES, LONG_DRIVERS = 6, 150, 25
IMITATED_KILLS, LONG_IMITATED_KILLS = 4, 50
DEADLINE_S = 240.0
NOTE_S = 0.035
"""How long Spark takes to note that a batch is done; a driver that dies meanwhile repeats a batch that counted."""
FAIL_EACH = 5
"""The first try of a task with every fifth file fails after its rows were written."""


# The children


class DeadlyWriter(StreamWriter):
    """Kills the driver, once, if a file ``deadly`` asks for it: when the first query has written a batch and not yet
    committed it, and the second one has committed a batch and Spark doesn't know it. Some tasks fail before that."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        """Fail where the first try has a file that is to fail: its rows lie on the disk then."""
        files: set[int] = set()

        def looked_at() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                files.update(int(value.split("/")[0]) for value in batch.column(0).to_pylist())
                yield batch

        wrote = super().write(looked_at())
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            for file in files:
                if file % FAIL_EACH == 0:
                    (Path(str(self._options.target.path)).parent / f"failed-{file}").touch()
                    raise RuntimeError("on purpose")
        return wrote

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        folder = Path(str(self._options.target.path)).parent
        deadly, written = folder / "deadly", folder / "written"
        first = str(self._options.topic).endswith("0")
        if deadly.exists() and first:
            written.touch()
            _wait_until(lambda: not deadly.exists())
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(messages, batchId)
        if deadly.exists():
            _wait_until(written.exists)
            os.killpg(int((folder / "driver").read_text()), signal.SIGKILL)
            deadly.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def _wait_until(holds: Callable[[], bool]) -> None:
    """Return when the condition holds, or when the test has given up: nobody else ends this process."""
    for _ in range(int(DEADLINE_S / 0.01)):
        if holds():
            return
        threading.Event().wait(0.01)


class DeadlySource(TxnLogDataSource):
    """The source under test, with a writer that kills."""

    @classmethod
    def name(cls) -> str:
        return "txnlog_deadly"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = DeadlyWriter
        return writer


def drive(folder: Path) -> None:
    """Run all queries to the end of what is there."""
    (folder / "driver").write_text(str(os.getpgid(0)))
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder / "scratch"))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(DeadlySource)

    queries = []
    for number in range(QUERIES):
        lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder / "source"))
        writer = lines.writeStream.format("txnlog_deadly")
        options = {"path": str(folder / "log"), "topic": f"copy-{number}"}
        options["checkpointLocation"] = str(folder / f"checkpoint-{number}")
        queries.append(writer.options(**options).trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()
    spark.stop()


def imitate(folder: Path) -> None:
    """Run batches without end, as Spark's micro-batch engine does: the offsets first, two tasks of which each runs
    twice, the commit, and a note that it is done."""
    offsets, commits = folder / "checkpoint-0" / "offsets", folder / "checkpoint-0" / "commits"
    for checkpoint in (offsets, commits):
        checkpoint.mkdir(parents=True, exist_ok=True)
    options = {"path": str(folder / "log"), "topic": "copy-0"}
    schema = StructType([StructField("value", StringType())])
    source = TxnLogDataSource(CaseInsensitiveDict(options))
    batch_id = len(list(commits.iterdir()))
    while True:
        (offsets / str(batch_id)).touch()
        wrote: list[Any] = []
        for task in range(2):
            values = [f"{batch_id}/{n}" for n in range(ROWS) if n % 2 == task]
            tries = [source.streamWriter(schema, False).write(rows_of(values)) for _ in range(2)]
            wrote.append(TaskWrote(tries[-1].batches, "the query"))
        source.streamWriter(schema, False).commit(wrote, batch_id)
        threading.Event().wait(NOTE_S)
        (commits / str(batch_id)).touch()
        batch_id += 1


def rows_of(values: list[str]) -> Iterator[pa.RecordBatch]:
    """Return rows as Spark hands them to a task."""
    yield pa.record_batch({"value": values})


# The tests


class Driver:
    """A child process, with a process group of its own."""

    def __init__(self, folder: Path, what: str = "drive") -> None:
        self._said = folder / "said"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, __file__, what, str(folder)], stdout=said, stderr=said, start_new_session=True
            )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE_S)

    def wait(self) -> int:
        """Return the exit status, negative for a signal."""
        return self._process.wait(DEADLINE_S)

    def runs(self) -> bool:
        return self._process.poll() is None

    def __str__(self) -> str:
        return self._said.read_text(errors="replace")[-3000:]


def batches(log: Log, number: int) -> list[list[str]]:
    """Return the rows of a copy, by transaction, in the order of the transactions."""
    found: dict[str, list[str]] = {}
    for row in log.scan(f"copy-{number}", "read_uncommitted", ["value", "__txn_id"]).read_all().to_pylist():
        found.setdefault(row["__txn_id"], []).append(row["value"].decode())
    order = {str(t.id): t.id.least_sig_bits for t in log.transactions(state=None)}
    return [sorted(found[txn]) for txn in sorted(found, key=order.__getitem__)]


def check(log: Log) -> int:
    """Check that the copies have the first files, each once and in order, and in one transaction; return how many
    they have together.

    A driver that dies before it has planned a batch leaves its file to the next batch, which then has two.
    """
    together = 0
    for number in range(QUERIES):
        found = batches(log, number)
        at = 0
        for rows in found:
            more = len(rows) // ROWS
            assert rows == sorted(f"{file}/{n}" for file in range(at, at + more) for n in range(ROWS))
            at += more
        together += at
    return together


def cut_off(log: Log, folder: Path) -> Counter[str]:
    """Return how many queries were killed in a batch, and if it counted by then; a batch is a transaction."""
    met: Counter[str] = Counter()
    for number in range(QUERIES):
        begun, done = (last_batch(folder / f"checkpoint-{number}" / which) for which in ("offsets", "commits"))
        if begun > done:
            after = len(batches(log, number)) > begun
            met["batches cut off after their commit" if after else "batches cut off before it"] += 1
    return met


def last_batch(noted: Path) -> int:
    """Return the number of the last batch that a checkpoint has, -1 for none."""
    return max((int(path.name) for path in noted.glob("[0-9]*")), default=-1)


def kill_drivers(folder: Path, at_random: int, files: int, seed: int) -> Counter[str]:
    """Kill a driver at the worst moments of its two queries, and others when they have committed a few batches more;
    check each time, and in the end that all is there. Returns how often what was met."""
    source = random.Random(seed)
    met: Counter[str] = Counter()
    (folder / "source").mkdir()
    for file in range(files):
        path = folder / "source" / f"{file:04}.txt"
        path.write_text("".join(f"{file}/{n}\n" for n in range(ROWS)))
        os.utime(path, (path.stat().st_mtime - files + file,) * 2)  # Spark takes files by age
    with connect(folder / "log") as log:
        for number in range(QUERIES):
            log.create_topic(f"copy-{number}", partitions=2, ledger_max_entries=7)
        (folder / "deadly").touch()
        with Driver(folder) as driver:
            assert driver.wait() == -signal.SIGKILL, f"{driver}"
        assert [len(batches(log, number)) for number in range(QUERIES)] == [0, 1]
        for _ in range(at_random):
            more = len(log.transactions(state=None)) + source.randrange(1, 6)
            with Driver(folder) as driver:
                while len(log.transactions(state=None)) < more and driver.runs():
                    threading.Event().wait(0.01)
                threading.Event().wait(source.uniform(0, 0.3))
                met["kills"] += driver.runs()
            met["batches"] = check(log)
            met += cut_off(log, folder)
        with Driver(folder) as driver:
            assert driver.wait() == 0, f"{driver}"
        assert check(log) == QUERIES * files
        assert len(list(folder.glob("failed-*"))) == len(range(0, files, FAIL_EACH)), "tasks have failed, too"
        assert log.collect_garbage(older_than=0).paths != (), "a driver was killed before it could commit"
        assert check(log) == QUERIES * files
        assert {t.state.value for t in log.transactions(state=None)} == {"committed"}
    return met


def kill_imitations(folder: Path, kills: int, seed: int) -> Counter[str]:
    """Kill the imitation at random points; check each time that what is noted as done is there, and all of it once.
    Returns how often what was met."""
    source = random.Random(seed)
    met: Counter[str] = Counter()
    with connect(folder / "log") as log:
        for number in range(QUERIES):
            log.create_topic(f"copy-{number}", partitions=2, ledger_max_entries=7)
        done = 0
        for _ in range(kills):
            more = done + source.randrange(1, 4)
            with Driver(folder, "imitate") as driver:
                while done < more and driver.runs():
                    done = len(list((folder / "checkpoint-0").glob("commits/*")))
                    threading.Event().wait(0.001)
                assert driver.runs(), f"{driver}"
                threading.Event().wait(source.uniform(0, 3 * NOTE_S))
            done = len(list((folder / "checkpoint-0" / "commits").iterdir()))
            begun = len(list((folder / "checkpoint-0" / "offsets").iterdir()))
            assert done <= check(log) <= begun <= done + 1
            assert len(batches(log, 0)) == check(log), "a transaction is one batch"
            met["kills"] += 1
            met["batches"] = check(log)
            met += cut_off(log, folder)
        there = check(log)
        a_week_later(log, log.root)
        assert len(log.collect_garbage(older_than=0).paths) > there, "of each task's two tries one is garbage"
        assert check(log) == there
        assert log.collect_garbage(older_than=0).paths == ()
    return met


def told(met: Counter[str], seed: int) -> None:
    """Print what was met, and check that it proves something."""
    print(f"seed {seed}:", *(f"{count} {what}," for what, count in sorted(met.items())))
    assert met["batches cut off after their commit"], "else a repeated batch wasn't met"


@pytest.mark.long
def test_killed_driver_writes_each_batch_once(tmp_path: Path) -> None:
    """Kill a driver before a commit of one query and after a commit of the other."""
    kill_drivers(tmp_path, 0, FILES, SEED)


@pytest.mark.long
def test_batches_are_whole_wherever_their_driver_dies(tmp_path: Path) -> None:
    """Kill imitated drivers."""
    kill_imitations(tmp_path, IMITATED_KILLS, SEED)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_killed_drivers_for_long(tmp_path: Path, seed: int) -> None:
    """Kill 25 more drivers of two queries each, at random points."""
    told(kill_drivers(tmp_path, LONG_DRIVERS, LONG_FILES, seed), seed)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_killed_imitations_for_long(tmp_path: Path, seed: int) -> None:
    """Kill 50 imitated drivers."""
    told(kill_imitations(tmp_path, LONG_IMITATED_KILLS, seed), seed)


if __name__ == "__main__":
    {"drive": drive, "imitate": imitate}[sys.argv[1]](Path(sys.argv[2]))
