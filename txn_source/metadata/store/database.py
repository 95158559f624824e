"""The metadata database: SQLite under the root, through SQLAlchemy Core.

Many processes use one SQLite file at once. A write transaction takes the write lock at its beginning, so it can't fail
half-way for another writer's sake; writers of one process share transactions (``group_commit.py``), those of several
take turns (``write_turn.py``). Nothing that was opened is used across a fork: SQLite forbids it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from sqlalchemy import Connection

from txn_source.metadata.store.group_commit import GroupCommit
from txn_source.metadata.store.read_only import read_brought_up_to_date
from txn_source.metadata.store.sqlite_file import SqliteFile, path_of
from txn_source.model.errors import InvalidArgumentError

_log = logging.getLogger(__name__)
_CHANGED = "txnlog_changes"
_CLOSE_WAIT_S = 10.0
"""So long the end of a write is waited for; whoever writes closes its connection then."""
T = TypeVar("T")

Change = tuple[int, int]
"""A topic's id, and the id of the one subscription of it that changed; 0 if the topic itself did."""


def note_change(connection: Connection, topic_id: int, subscription_id: int = 0) -> None:
    """Note that a write transaction changes what consumers wait for; they are told once it is committed."""
    connection.info.setdefault(_CHANGED, set()).add((topic_id, subscription_id))


class Database:
    """Transactions on the metadata database; safe in threads and after a fork."""

    def __init__(self, url: str) -> None:
        path = path_of(url)
        if path is None:
            raise InvalidArgumentError(f"{url!r} is not a metadata database.", "Use sqlite:///<path>.")
        self._path = path
        self._of_process: dict[int, tuple[SqliteFile, GroupCommit]] = {}
        self.on_change: Callable[[set[Change]], None] = lambda _: None
        """Is told what a write transaction of this object changed, after its commit."""
        self.before_write: Callable[[Connection], bool] = lambda _: False
        """Is called first in each write transaction, and returns True if it changed anything. That stays, also if what
        comes after it is refused."""
        self.is_due: Callable[[Connection], bool] = lambda _: False
        """Tells if ``before_write`` would change what a reader sees. Where nothing can be written, readers are shown a
        copy in memory in which it has."""

    @property
    def read_only(self) -> bool:
        """True if this process can't write the database."""
        return self._here()[0].read_only

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment of the database."""
        file, _ = self._here()
        return read_brought_up_to_date(file, self.is_due, self.before_write) if file.read_only else file.read()

    def write(self, action: Callable[[Connection], T]) -> T:
        """Carry out an action in a write transaction; all that it does is durable when this returns, or nothing.

        It may be carried out more than once, and by another thread, together with actions of others; so it changes
        nothing outside the database, and takes no lock that its caller holds. If it raises, its error comes back.
        """
        return self._here()[1].run(action)

    @contextmanager
    def changes(self) -> Iterator[Callable[[], object]]:
        """A function whose answer differs after other connections have changed the database; asking it is cheap."""
        with self._here()[0].version() as version:
            yield version

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
            file = SqliteFile(self._path)
            commits = GroupCommit(file.transact, self._before, self._after)
            found = self._of_process.setdefault(pid, (file, commits))
        return found

    def _before(self, connection: Connection) -> bool:
        connection.info.pop(_CHANGED, None)  # of one that was rolled back
        return self.before_write(connection)

    def _after(self, connection: Connection) -> None:
        changed = connection.info.pop(_CHANGED, None)
        if changed:
            try:
                self.on_change(changed)
            except Exception:  # the commit counts, whatever becomes of telling it
                _log.exception("consumers were not told of a change")
