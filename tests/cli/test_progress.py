"""What takes long says how far it is, to people only: on a terminal's standard error."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import txn_source
from txn_source.cli import progress
from txn_source.cli.progress import Progress
from txn_source.cli.tail import tail
from txn_source.client.tiering.garbage import collect_garbage
from txn_source.client.tiering.maintenance import maintain
from txn_source.model.isolation import IsolationLevel
from txn_source.reading.request import ReadRequest


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A pseudo-terminal as standard error; what comes there can be read from the descriptor."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        yield ours
    os.close(ours)


def _read_until(descriptor: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown):
        assert select.select([descriptor], [], [], 60)[0], shown
        shown += os.read(descriptor, 65536)
    return shown


def test_progress_tells_how_much_and_how_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count two of three ledgers: number and rate are shown, and the time that is left."""
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.0)
    with terminal(monkeypatch) as screen, Progress("ledgers", 3) as shown:
        shown.advance()
        shown.advance()
        assert b"/s" in _read_until(screen, b"2 ledgers, ")
        _read_until(screen, b"0:00:")


def test_a_total_that_is_known_later_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without a total, then tell it: the time that is left is known from then on."""
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.0)
    with terminal(monkeypatch) as screen, Progress("topics", later=True) as shown:
        assert shown.wanted
        shown.update(0)
        _read_until(screen, b"0 topics, ")
        shown.of(1, 3)
        shown.of(2, 3)
        _read_until(screen, b"2 topics, ")
        assert shown._bar is not None
        assert [(task.completed, task.total) for task in shown._bar.tasks] == [(2, 3)]
        assert shown._bar.tasks[0].time_remaining is not None


def test_totals_are_what_is_done_in_the_end(tmp_path: Path) -> None:
    """Read, maintain and collect garbage: the totals that are told first are right, at the level that is read."""
    with txn_source.connect(tmp_path / "log") as log:
        for topic in ("bills", "orders"):
            log.create_topic(topic, partitions=2)
        producer = log.producer("orders")
        for number in range(6):
            producer.send(b"plain", partition=number % 2)
        txn = log.begin_transaction()
        producer.send(b"aborted", partition=0, txn=txn)
        producer.flush()
        txn.abort()
        producer.close()
        for level, there in (("read_committed", 6), ("read_uncommitted", 7)):
            expected: list[int] = []
            following = tail(log, "orders", ReadRequest(IsolationLevel.parse(level)))
            assert sum(batch.num_rows for batch in following.read(expected.append)) == there
            assert list(following.read(expected.append)) == []
            assert expected == [there]
        told: list[tuple[int, int]] = []
        maintain(log.access, told=lambda *of: told.append(of))
        assert told == [(0, 2), (1, 2)]
        told.clear()
        for number in range(3):
            stray = tmp_path / "log" / "segments" / "2" / "0" / f"1-1-{number:012x}.arrow"  # of the closed producer
            stray.parent.mkdir(parents=True, exist_ok=True)
            stray.write_bytes(b"stray")
        collect_garbage(log.access, 0.0, dry_run=False, told=lambda *of: told.append(of))
        assert told == [(0, 3), (3, 3)]


def test_what_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as screen:
        with Progress("ledgers", 3) as shown:
            shown.advance()
        assert not select.select([screen], [], [], 0)[0]


def test_pipes_get_no_progress(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    with Progress("messages") as shown:
        shown.update(5)
    assert capfd.readouterr() == ("", "")
