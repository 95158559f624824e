"""Whether a SQLite file is still the one that this process opened first.

A log's folder may be moved away, removed, or put back from a backup under a process that has it open. Its connections
go on with the file that was there, those that it opens later with the new one: what it writes would lie in one log, and
what is registered in another.
"""

from __future__ import annotations

import os
import sqlite3

from txn_source.model.errors import UnavailableError


class SameFile:
    """A file that must stay the one that was opened first, with the same log in it; safe in threads and forks."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None
        self._log_id: str | None = None

    def opened(self, raw: sqlite3.Connection) -> None:
        """Take notice of a new connection.

        Raises:
            UnavailableError: it is one to another file, or to another log.
        """
        log_id = None
        if raw.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'log_info'").fetchone():
            [log_id] = raw.execute("SELECT log_id FROM log_info").fetchone() or (None,)
        if None not in (self._log_id, log_id) and log_id != self._log_id:
            raise self._other()  # its file may have the number of one that is gone
        self._log_id = self._log_id or log_id
        if self._file is None:
            found = os.stat(self._path)
            self._file = found.st_dev, found.st_ino
        self.check()

    def check(self) -> None:
        """Raise UNAVAILABLE if another file lies in its place, or none."""
        if self._file is None:
            return
        try:
            found = os.stat(self._path)
        except OSError:
            raise self._other() from None
        if (found.st_dev, found.st_ino) != self._file:
            raise self._other()

    def _other(self) -> UnavailableError:
        return UnavailableError(
            f"The metadata database {self._path} isn't the one that was opened: the log was moved, removed or put"
            " back.",
            "Connect anew, or start the service again, if the log that is there now is meant; what wasn't acknowledged"
            " is to be sent again.",
        )
