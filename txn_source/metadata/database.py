"""The metadata database: SQLite under the root, through SQLAlchemy Core.

Many processes use one SQLite file at once: it is in WAL mode (readers never wait), a write transaction takes the write
lock at its beginning (so it can't fail half-way for another writer's sake), and a commit is synced before it returns.
An engine is never used across a fork: SQLite forbids it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import OperationalError

from txn_source.model.errors import StorageWriteError, TxnLogError, UnavailableError

_LOCK_WAIT_S = 30.0
_SQLITE = "sqlite:///"
_CHANGED = "txnlog_changes"


Change = tuple[int, int]
"""A topic's id, and the id of the one subscription of it that changed; 0 if the topic itself did."""


def note_change(connection: Connection, topic_id: int, subscription_id: int = 0) -> None:
    """Note that a write transaction changes what consumers wait for; they are told once it is committed."""
    connection.info.setdefault(_CHANGED, set()).add((topic_id, subscription_id))


class Database:
    """Transactions on the metadata database; safe in threads and after a fork."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._engines: dict[int, tuple[Engine, threading.Lock]] = {}
        self.on_change: Callable[[set[Change]], None] = lambda _: None
        """Is told what a write transaction of this object changed, after its commit."""

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one moment of the database."""
        with self._begin(writes=False) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may change things; all of it is durable when the block is left, or nothing."""
        _, lock = self._engine()
        with lock, self._begin(writes=True) as connection:  # threads queue here, more fairly than in SQLite
            connection.info.pop(_CHANGED, None)  # of one that was rolled back
            yield connection
            changed = connection.info.pop(_CHANGED, None)
        if changed:
            self.on_change(changed)

    @contextmanager
    def changes(self) -> Iterator[Callable[[], object]]:
        """A function whose answer differs after other connections have changed the database; asking it is cheap.

        Of a database that can't tell, each answer differs from the one before.
        """
        engine, _ = self._engine()
        if engine.dialect.name != "sqlite":
            yield object
            return
        raw = engine.raw_connection()
        try:
            cursor = raw.cursor()
            yield lambda: cursor.execute("PRAGMA data_version").fetchone()
        finally:
            raw.close()

    def close(self) -> None:
        """Close this process's connections."""
        found = self._engines.pop(os.getpid(), None)
        if found is not None:
            found[0].dispose()

    @contextmanager
    def _begin(self, *, writes: bool) -> Iterator[Connection]:
        engine, _ = self._engine()
        try:
            with engine.connect().execution_options(txnlog_writes=writes) as connection, connection.begin():
                yield connection
        except OperationalError as error:
            raise _translated(error, self._url) from error

    def _engine(self) -> tuple[Engine, threading.Lock]:
        pid = os.getpid()
        found = self._engines.get(pid)
        if found is None:
            found = self._engines.setdefault(pid, (_make_engine(self._url), threading.Lock()))
        return found


def _make_engine(url: str) -> Engine:
    # A path stands in its URL as it is; parsed, a "%" or "?" in it would lead to another file.
    parsed = URL.create("sqlite", database=url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else make_url(url)
    engine = create_engine(parsed, connect_args={"timeout": _LOCK_WAIT_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -16000"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("txnlog_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _translated(error: OperationalError, url: str) -> TxnLogError:
    text = str(error.orig)
    if "locked" in text or "busy" in text:
        return UnavailableError(
            f"The metadata database {url} stayed locked for {_LOCK_WAIT_S:.0f} s.",
            "Find the process that holds it, then try again.",
        )
    if "full" in text or "disk I/O" in text:
        return StorageWriteError(
            f"The metadata database {url} can't be written: {text}.", "Free some space, then try again."
        )
    return UnavailableError(f"The metadata database {url} can't be used: {text}.", "Check path and permissions.")
