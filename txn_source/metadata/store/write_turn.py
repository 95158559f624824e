"""Whose turn it is to write, where many processes want to: nobody starves.

SQLite's own waiting sleeps ever longer, so who waits longest has the worst chances. Here a writer looks again in short
steps, and once it has waited ``PATIENCE_S`` it *starves*: it holds a shared lock on a file beside the database. Whoever
hasn't waited so long sees that with one look at the lock, and lets those that starve go first.

The file decides about fairness only. What is safe is left to SQLite's own lock: where there are no such locks, or a
process that was stopped keeps one, some writers wait longer, and no more than that.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time

from txn_source.metadata.store.database_errors import locked, translated

try:
    import fcntl
except ImportError:  # pragma: no cover: not on Windows
    fcntl = None  # type: ignore[assignment]

LOCK_WAIT_S = 30.0
PATIENCE_S = 0.15
_PAUSES_S = (0.001, 0.01)  # between two looks: an interrupt gets through meanwhile
_PAUSE_OF_WAITED = 0.05
"""Who has waited longer looks less often, up to a point: many that look all the time would slow down the one they wait
for."""
_DISTRUST_S = 10.0
"""How long the lane is left alone after somebody stood in it who didn't write."""
_PRIMARY = 0xFF
_BUSY_SNAPSHOT = 517


class StaleSnapshotError(Exception):
    """The connection holds an old moment of the database, through a statement that somebody left half-read."""


class WriteTurn:
    """This process's place among those that write to one database; used by one thread at a time."""

    def __init__(self, place: str, lane: str) -> None:
        """``place`` names the database to people; ``lane`` is the path of the file beside it."""
        self._place = place
        self._starving = False
        self._trusted_from = 0.0
        self._lane = None if fcntl is None else _open(lane)

    def begin(self, raw: sqlite3.Connection) -> None:
        """Begin a transaction that holds the write lock.

        Raises:
            UnavailableError: it wasn't to be had in ``LOCK_WAIT_S``.
            StaleSnapshotError: this connection can't get it; another one can.
        """
        if not self._must_wait() and _begun(raw, self._place):
            return
        began, version = time.monotonic(), _version(raw)
        tried = False
        try:
            while True:
                waited = time.monotonic() - began
                if waited >= PATIENCE_S:
                    self._starve()
                    if not tried and _version(raw) == version:  # gave way to somebody who does nothing
                        self._trusted_from = time.monotonic() + _DISTRUST_S
                if waited >= PATIENCE_S or not self._must_wait():
                    tried = True
                    if _begun(raw, self._place):
                        return
                if waited >= LOCK_WAIT_S:
                    raise locked(self._place, LOCK_WAIT_S)
                shortest, longest = _PAUSES_S
                time.sleep(random.uniform(0.5, 1.5) * min(longest, max(shortest, waited * _PAUSE_OF_WAITED)))
        finally:
            self._leave()

    def close(self) -> None:
        """Close the file."""
        lane, self._lane = self._lane, None
        if lane is not None:
            os.close(lane)

    def _must_wait(self) -> bool:
        """True if somebody else starves."""
        if self._lane is None or time.monotonic() < self._trusted_from:
            return False
        try:
            fcntl.flock(self._lane, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        fcntl.flock(self._lane, fcntl.LOCK_UN)
        return False

    def _starve(self) -> None:
        if self._lane is not None and not self._starving:
            with contextlib.suppress(OSError):  # somebody is just looking: in a moment, then
                fcntl.flock(self._lane, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._starving = True

    def _leave(self) -> None:
        self._starving = False
        if self._lane is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(self._lane, fcntl.LOCK_UN)


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return None


def _begun(raw: sqlite3.Connection, place: str) -> bool:
    try:
        raw.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        if error.sqlite_errorcode == _BUSY_SNAPSHOT:
            raise StaleSnapshotError from None
        if error.sqlite_errorcode & _PRIMARY == sqlite3.SQLITE_BUSY:
            return False
        ours = translated(error, place)
        assert ours is not None
        raise ours from error
    return True


def _version(raw: sqlite3.Connection) -> object:
    return raw.execute("PRAGMA data_version").fetchone()
