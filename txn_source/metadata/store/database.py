"""The metadata database, as the service sees it: transactions, and word of what others changed.

There are two kinds: a SQLite file under the root (``sqlite_database.py``) and PostgreSQL (``postgres_database.py``). In
both a log has one writer at a time, who sees all that was committed before, and readers see one moment each.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

_log = logging.getLogger(__name__)
_CHANGED, _AFTERWARDS = "txnlog_changes", "txnlog_afterwards"
T = TypeVar("T")

Change = tuple[int, int]
"""A topic's id, and the id of the one subscription of it that changed; 0 if the topic itself did."""

Wait = Callable[[float], "set[Change] | None"]
"""Waits for so many seconds at most, and returns what other connections have changed; None: something, or all."""


@dataclass(frozen=True, slots=True)
class DatabaseUse:
    """Of one process: connections that read or could, and writers that wait for their turn."""

    busy: int = 0
    idle: int = 0
    waiting_writes: int = 0


class Database(Protocol):
    """Transactions on a metadata database; safe in threads."""

    on_change: Callable[[set[Change]], None]
    """Is told what a write transaction of this object changed, after its commit."""
    before_write: Callable[[Connection], bool]
    """Is called first in each write transaction, and returns True if it changed anything. That stays, also if what
    comes after it is refused."""
    is_due: Callable[[Connection], bool]
    """Tells if ``before_write`` would change what a reader sees. Where nothing can be written, readers are shown a copy
    in which it has."""

    @property
    def file(self) -> Path | None:
        """The file that it is, which no process may use that inherited it open; None for a database server."""

    @property
    def read_only(self) -> bool:
        """True if this process can't write the database, but can read it."""

    @property
    def use(self) -> DatabaseUse:
        """How much of this process's connections is used now."""

    def clock(self) -> int:
        """Return the time that deadlines and leases go by, in microseconds since the epoch: the same for all services
        over the database."""

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment of the database."""

    def write(self, action: Callable[[Connection], T]) -> T:
        """Carry out an action in a write transaction; all that it does is durable when this returns, or nothing.

        It may be carried out more than once, and by another thread, together with actions of others; so it changes
        nothing outside the database, and takes no lock that its caller holds. If it raises, its error comes back.
        """

    def changes(self, stop: threading.Event) -> AbstractContextManager[Wait]:
        """A function that waits for changes by other connections; it returns at once when the event is set."""

    def close(self) -> None:
        """Close this process's connections."""


def note_change(connection: Connection, topic_id: int, subscription_id: int = 0) -> None:
    """Note that a write transaction changes what consumers wait for; they are told once it is committed."""
    connection.info.setdefault(_CHANGED, set()).add((topic_id, subscription_id))


def noted_changes(connection: Connection) -> set[Change]:
    """Return what a write transaction has noted."""
    return connection.info.get(_CHANGED) or set()


def once_committed(connection: Connection, action: Callable[[], None]) -> None:
    """Note what is to be done once a write transaction is committed, and only then. The last one noted counts."""
    connection.info[_AFTERWARDS] = action


def forget_changes(connection: Connection) -> None:
    """Forget what a transaction that was rolled back had noted."""
    connection.info.pop(_CHANGED, None)
    connection.info.pop(_AFTERWARDS, None)


def tell_changes(connection: Connection, on_change: Callable[[set[Change]], None]) -> None:
    """Tell what a committed transaction has noted; the commit counts, whatever becomes of that."""
    changed = connection.info.pop(_CHANGED, None)
    if changed:
        try:
            on_change(changed)
        except Exception:
            _log.exception("consumers were not told of a change")
    afterwards = connection.info.pop(_AFTERWARDS, None)
    if afterwards is not None:
        try:
            afterwards()
        except Exception:
            _log.exception("what follows a commit was not done")
