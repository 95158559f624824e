"""Processes that want to write at once take turns; the file that says who starves decides about nothing else."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.log.reading import eventually
from txn_source.metadata.store import write_turn
from txn_source.metadata.store.write_turn import StaleSnapshotError, WriteTurn
from txn_source.model.errors import UnavailableError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "metadata.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (x)")
    database.close()
    return path


@contextmanager
def writer(path: Path) -> Iterator[tuple[WriteTurn, sqlite3.Connection]]:
    raw = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    turn = WriteTurn(str(path), f"{path}-turn")
    try:
        yield turn, raw
    finally:
        raw.close()
        turn.close()


def test_newcomer_lets_those_that_starve_go_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one writer hold the lock, one starve, and another come later: the one that starves is first."""
    order: list[str] = []
    with writer(path) as (holds, holding), writer(path) as (starves, starving), writer(path) as (comes, coming):
        holds.begin(holding)

        def begin(name: str, turn: WriteTurn, raw: sqlite3.Connection) -> None:
            turn.begin(raw)
            order.append(name)
            raw.execute("INSERT INTO t VALUES (1)")
            raw.execute("COMMIT")

        first = threading.Thread(target=begin, args=("starves", starves, starving))
        first.start()
        eventually(lambda: starves._starving)
        assert comes._must_wait()
        second = threading.Thread(target=begin, args=("comes", comes, coming))

        def now_s() -> float:  # who comes later never starves, too, however busy the machine is
            return 0.0 if threading.current_thread() is second else time.monotonic()

        monkeypatch.setattr(write_turn, "time", SimpleNamespace(monotonic=now_s, sleep=time.sleep))
        second.start()
        holding.execute("COMMIT")
        first.join(60)
        second.join(60)
        assert order == ["starves", "comes"]
        assert not comes._must_wait()


def test_lane_that_somebody_stopped_in_is_left_alone(path: Path) -> None:
    """Keep the lane without ever writing, as a stopped process does: a writer waits for it once, and then no more."""
    with writer(path) as (turn, raw), open(f"{path}-turn") as lane:
        fcntl.flock(lane, fcntl.LOCK_SH)
        assert turn._must_wait()
        turn.begin(raw)
        raw.execute("COMMIT")
        assert not turn._must_wait()
        turn.begin(raw)
        raw.execute("COMMIT")


@pytest.mark.parametrize("lane", ["no locks", "no file"])
def test_writes_work_without_the_lane(path: Path, monkeypatch: pytest.MonkeyPatch, lane: str) -> None:
    """Take the locks away, or the place of their file."""
    if lane == "no locks":
        monkeypatch.setattr(write_turn, "fcntl", None)
    raw = sqlite3.connect(path, timeout=0, isolation_level=None)
    turn = WriteTurn(str(path), f"{path}-turn" if lane == "no locks" else f"{path}/no/folder")
    turn.begin(raw)
    raw.execute("COMMIT")
    turn.close()
    raw.close()


def test_waiting_ends_with_an_error_of_ours(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the lock for longer than a writer waits."""
    monkeypatch.setattr(write_turn, "LOCK_WAIT_S", 0.3)
    with writer(path) as (holds, holding), writer(path) as (turn, raw):
        holds.begin(holding)
        with pytest.raises(UnavailableError, match="stayed locked"):
            turn.begin(raw)
        assert not turn._starving


def test_statement_that_was_left_half_read_is_noticed(path: Path) -> None:
    """Read one row of two, let another connection write, and begin: this connection can't, and says so at once."""
    with writer(path) as (turn, raw), writer(path) as (other, writing):
        raw.execute("INSERT INTO t VALUES (1), (2)")
        half_read = raw.execute("SELECT x FROM t")
        half_read.fetchone()
        other.begin(writing)
        writing.execute("INSERT INTO t VALUES (3)")
        writing.execute("COMMIT")
        with pytest.raises(StaleSnapshotError):
            turn.begin(raw)
