"""Logs in memory: each is new and complete, and is deleted when it is closed."""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import txn_source
from tests.log.reading import eventually, values
from txn_source import InvalidArgumentError, connect


def folder_of(log: txn_source.Log) -> Path:
    assert log.target.path is not None
    return Path(log.target.path)


def test_it_is_a_whole_log_that_goes_when_it_is_closed() -> None:
    """Write with and without a transaction, consume, and close: two logs are independent."""
    with connect("memory:") as log, connect("memory:") as other:
        log.create_topic("orders", schema="id bigint not null")
        log.create_subscription("orders", "s")
        with log.producer("orders") as producer:
            producer.send({"id": 1})
            with log.begin_transaction() as txn:
                producer.send({"id": 2}, txn=txn)
            txn = log.begin_transaction()
            producer.send({"id": 3}, txn=txn)
            txn.abort()
        assert log.scan("orders").read_all().column("id").to_pylist() == [1, 2]
        with log.subscribe("orders", "s") as consumer:
            message = consumer.receive(timeout=60)
            assert message is not None
            assert message.value == {"id": 1}
            consumer.acknowledge(message)
        assert other.topics() == []
        folders = folder_of(log), folder_of(other)
        assert all(folder.exists() for folder in folders)
    assert not any(folder.parent.exists() for folder in folders)


def test_one_that_was_forgotten_goes_too() -> None:
    """Drop an open log: its folder is deleted."""
    log = connect("memory:")
    folder = folder_of(log)
    del log
    gc.collect()
    assert not folder.parent.exists()


def test_other_processes_use_it_while_it_is_open() -> None:
    """Read the log by a pickled copy: closing the copy deletes nothing."""
    with connect("memory:") as log:
        log.create_topic("orders")
        with log.producer("orders") as producer:
            producer.send(b"x")
        with pickle.loads(pickle.dumps(log)) as copy:
            assert values(copy, "orders") == [b"x"]
        assert values(log, "orders") == [b"x"]


KILLED = """
import os, signal, txn_source
log = txn_source.connect("memory:")
print(log.target.path, flush=True)
child = os.fork()
if child == 0:
    raise SystemExit  # the end of a child takes nothing with it
os.waitpid(child, 0)
assert os.path.exists(log.target.path)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_what_a_killed_program_left_is_removed_by_the_next() -> None:
    """Kill a program with such a log, after its forked child has ended: the next log deletes the folder."""
    command = [sys.executable, "-W", "ignore", "-c", KILLED]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == -9, found.stderr
    folder = Path(found.stdout.strip()).parent
    with connect("memory:"):
        eventually(lambda: not folder.exists())  # the log of another test may be at it


@pytest.mark.long
def test_log_that_is_being_made_is_no_leftover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another program make such a log while this one does: neither deletes the other's."""
    flock, another = fcntl.flock, "import txn_source; txn_source.connect('memory:').close()"

    def slowly(fd: int, how: int) -> None:
        subprocess.run([sys.executable, "-c", another], timeout=60, check=True)
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", slowly)
    with connect("memory:") as log:
        monkeypatch.undo()
        log.create_topic("orders")
        assert log.topics() == ["orders"]


def test_options_of_other_logs_and_other_doors_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass options of other logs, or name ``memory:`` in the command line: an error, and no folder of that name."""
    monkeypatch.chdir(tmp_path)
    for options in ({"endpoint": "localhost:1"}, {"metadata": "x.db"}, {"create": False}, {"token": "t"}):
        with pytest.raises(InvalidArgumentError):
            connect("memory:", **options)  # type: ignore[arg-type]
    command = [sys.executable, "-m", "txn_source.cli", "topics", "list", "--root", "memory:"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode != 0
    assert "belongs to the program that connects to it" in " ".join(found.stderr.split())
    assert os.listdir(tmp_path) == []
