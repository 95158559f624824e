"""The metadata database in a SQLite file under the root.

Many processes use one SQLite file at once. A write transaction takes the write lock at its beginning, so it can't fail
half-way for another writer's sake; writers of one process share transactions (``group_commit.py``), those of several
take turns (``write_turn.py``). Nothing that was opened is used across a fork: SQLite forbids it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from txn_source.metadata.store.database import Change, DatabaseUse, Wait, forget_changes, tell_changes
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.group_commit import GroupCommit
from txn_source.metadata.store.same_file import SameFile
from txn_source.metadata.store.sqlite_file import SqliteFile
from txn_source.model.errors import InvalidArgumentError

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

_CLOSE_WAIT_S = 10.0
"""So long the end of a write is waited for; whoever writes closes its connection then."""
T = TypeVar("T")


class SqliteDatabase:
    """Transactions on a SQLite file (``Database``); safe in threads and after a fork."""

    def __init__(self, url: str | DatabaseUrl) -> None:
        path = DatabaseUrl.of(url).sqlite_path
        if path is None:
            raise InvalidArgumentError(f"{url} is not a SQLite file.", "Use sqlite:///<path>.")
        self._path = path
        self._same = SameFile(path)
        self._of_process: dict[int, tuple[SqliteFile, GroupCommit]] = {}
        self.on_change: Callable[[set[Change]], None] = lambda _: None
        self.before_write: Callable[[Connection], bool] = lambda _: False
        self.is_due: Callable[[Connection], bool] = lambda _: False

    @property
    def file(self) -> Path | None:
        """The SQLite file."""
        return Path(self._path)

    @property
    def read_only(self) -> bool:
        """True if this process can't write the database."""
        return self._here()[0].read_only

    @property
    def use(self) -> DatabaseUse:
        """How much of this process's connections is used now."""
        file, commits = self._here()
        readers, idle = file.readers
        return DatabaseUse(readers - idle, idle, commits.waiting)

    def clock(self) -> int:
        """Return this machine's time: SQLite is used by processes of one machine."""
        return time.time_ns() // 1000

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment of the database."""
        file, _ = self._here()
        if file.read_only:
            from txn_source.metadata.store.read_only import read_brought_up_to_date  # which few readers need

            return read_brought_up_to_date(file, self.is_due, self.before_write)
        return file.read()

    def write(self, action: Callable[[Connection], T]) -> T:
        """Carry out an action in a write transaction, see ``Database.write``."""
        return self._here()[1].run(action)

    @contextmanager
    def changes(self, stop: threading.Event) -> Iterator[Wait]:
        """A function that waits, and returns None if other connections have changed the database meanwhile."""
        with self._here()[0].version() as version:
            seen = version()

            def wait(timeout_s: float) -> set[Change] | None:
                nonlocal seen
                if stop.wait(timeout_s):
                    return set()
                before, seen = seen, version()
                return set() if seen == before else None

            yield wait

    def close(self) -> None:
        """Close this process's connections."""
        found = self._of_process.pop(os.getpid(), None)
        if found is not None:
            file, commits = found
            file.close()
            commits.while_nobody_writes(file.close_writer, _CLOSE_WAIT_S)

    def _here(self) -> tuple[SqliteFile, GroupCommit]:
        pid = os.getpid()
        found = self._of_process.get(pid)
        if found is None:
            file = SqliteFile(self._path, self._same)
            commits = GroupCommit(file.transact, self._before, self._after)
            found = self._of_process.setdefault(pid, (file, commits))
        return found

    def _before(self, connection: Connection) -> bool:
        forget_changes(connection)
        return self.before_write(connection)

    def _after(self, connection: Connection) -> None:
        tell_changes(connection, self.on_change)
