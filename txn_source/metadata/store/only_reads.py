"""A database that is only looked at: whatever a service over it is asked, nothing is written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from txn_source.metadata.store.database import Change, Database, DatabaseUse, Wait
from txn_source.model.errors import StorageWriteError

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

T = TypeVar("T")


class OnlyReads:
    """Another database (``Database``), of which this shows what is stored: an open transaction past its deadline is
    shown as open, since aborting it would be a write."""

    read_only = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self.on_change: Callable[[set[Change]], None] = lambda _: None
        self.before_write: Callable[[Connection], bool] = lambda _: False
        self.is_due: Callable[[Connection], bool] = lambda _: False

    @property
    def file(self) -> Path | None:
        """The file that it is; None for a database server."""
        return self._database.file

    @property
    def use(self) -> DatabaseUse:
        """How much of this process's connections is used now."""
        return self._database.use

    def clock(self) -> int:
        """Return the time that deadlines go by, in microseconds since the epoch."""
        return self._database.clock()

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment of the database."""
        return self._database.read()

    def write(self, action: Callable[[Connection], T]) -> T:
        """Refuse it."""
        raise StorageWriteError("The log is only looked at, and the call would change it.", "Open it to change it.")

    def changes(self, stop: threading.Event) -> AbstractContextManager[Wait]:
        """A function that waits for changes by other connections."""
        return self._database.changes(stop)

    def close(self) -> None:
        """Close this process's connections."""
        self._database.close()
