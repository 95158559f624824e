"""kill -9 of Spark's driver at random points, while each task runs twice: each row comes once.

What is killed is an imitation: a child process (this file, run as a program) that does with the sink what Spark's
micro-batches do, in their order, with a checkpoint like theirs. In ``test_stream_sink.py`` Spark itself repeats a
batch; ``test_subscription_stream.py`` kills a real driver. ``-rP`` prints what the kills of each seed met.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import a_week_later
from tests.spark.plain import schema_of, source_of
from txn_source import Log, connect
from txn_source.spark.sink import TaskWrote

SEEDS = (20260131, 20260601, 20261120)
ROWS = 50
KILLS = 50
DEADLINE_S = 240.0
NOTE_S = 0.035
"""How long Spark takes to note that a batch is done; a driver that dies meanwhile repeats a batch that counted."""


def imitate(folder: Path) -> None:
    """Run batches without end, as Spark's micro-batch engine does: the offsets first, two tasks of which each runs
    twice, the commit, and a note that it is done."""
    offsets, commits = folder / "checkpoint" / "offsets", folder / "checkpoint" / "commits"
    for checkpoint in (offsets, commits):
        checkpoint.mkdir(parents=True, exist_ok=True)
    schema = schema_of("value string")
    source = source_of({"path": str(folder / "log"), "topic": "copy"})
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


@contextmanager
def driver(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The imitation as a child process with a process group of its own, which is killed in the end."""
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder)], stdout=said, stderr=said, start_new_session=True
        )
    try:
        yield process
        assert process.poll() is None, (folder / "said").read_text(errors="replace")[-3000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)


def check(log: Log) -> int:
    """Check that the copy has the first batches, each once, in order, and in one transaction; return how many."""
    found: dict[str, list[str]] = {}
    for row in log.scan("copy", "read_uncommitted", ["value", "__txn_id"]).read_all().to_pylist():
        found.setdefault(row["__txn_id"], []).append(row["value"].decode())
    order = {str(t.id): t.id.least_sig_bits for t in log.transactions(state=None)}
    batches = [sorted(found[txn]) for txn in sorted(found, key=order.__getitem__)]
    assert batches == [sorted(f"{batch}/{n}" for n in range(ROWS)) for batch in range(len(batches))]
    return len(batches)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", SEEDS)
def test_batches_are_whole_wherever_their_driver_dies(tmp_path: Path, seed: int) -> None:
    """Kill 50 imitated drivers; check each time that what is noted as done is there, and all of it once."""
    source = random.Random(seed)
    met: Counter[str] = Counter()
    checkpoint = tmp_path / "checkpoint"
    with connect(tmp_path / "log") as log:
        log.create_topic("copy", partitions=2, ledger_max_entries=7)
        done = 0
        for _ in range(KILLS):
            more = done + source.randrange(1, 4)
            with driver(tmp_path) as process:
                while done < more and process.poll() is None:
                    done = len(list(checkpoint.glob("commits/*")))
                    threading.Event().wait(0.001)
                threading.Event().wait(source.uniform(0, 3 * NOTE_S))
            done, begun = (len(list((checkpoint / which).iterdir())) for which in ("commits", "offsets"))
            there = check(log)
            assert done <= there <= begun <= done + 1
            if begun > done:
                met["batches cut off after their commit" if there == begun else "batches cut off before it"] += 1
        a_week_later(log, log.root)
        assert len(log.collect_garbage(older_than=0).paths) > there, "of each task's two tries one is garbage"
        assert check(log) == there
        assert log.collect_garbage(older_than=0).paths == ()
    print(f"seed {seed}: {there} batches,", *(f"{count} {what}," for what, count in sorted(met.items())))
    assert met["batches cut off after their commit"], "else a repeated batch wasn't met"


if __name__ == "__main__":
    imitate(Path(sys.argv[1]))
