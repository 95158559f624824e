"""What takes long says how far it is, to people only: on a terminal's standard error."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from txn_source.cli import progress
from txn_source.cli.progress import Progress


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
