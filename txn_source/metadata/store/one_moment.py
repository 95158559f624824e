"""A transaction in place of a database: whatever is read sees what the transaction sees, and nothing is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection

from txn_source.metadata.store.database import Change, DatabaseUse, Wait
from txn_source.model.errors import StorageWriteError

T = TypeVar("T")


class OneMoment:
    """The database as one transaction sees it (``Database``); used by one thread. The transaction isn't ended."""

    read_only = True
    file = None
    use = DatabaseUse()

    def __init__(self, connection: Connection, now_us: int) -> None:
        self._connection = connection
        self._now_us = now_us
        self.on_change: Callable[[set[Change]], None] = lambda _: None
        self.before_write: Callable[[Connection], bool] = lambda _: False
        self.is_due: Callable[[Connection], bool] = lambda _: False

    def clock(self) -> int:
        """Return the one time there is, in microseconds since the epoch."""
        return self._now_us

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """The transaction."""
        yield self._connection

    def write(self, action: Callable[[Connection], T]) -> T:
        """Refuse it."""
        raise StorageWriteError("One moment of a database can't be written.", "Write to the database.")

    @contextmanager
    def changes(self, stop: threading.Event) -> Iterator[Wait]:
        """A function that waits; nothing changes."""

        def wait(timeout_s: float) -> set[Change] | None:
            stop.wait(timeout_s)
            return set()

        yield wait

    def close(self) -> None:
        """Leave the transaction to whoever began it."""
