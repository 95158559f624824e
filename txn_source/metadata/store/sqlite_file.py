"""One process's connections to a SQLite file: some that read, and one that writes.

The file is in WAL mode, so that readers never wait, and a commit is synced before it returns.

**Nothing is left locked.** A transaction is the block of a ``with`` of the driver's own connection. That is C code: no
interrupt falls between its end and the ROLLBACK. SQLAlchemy, which would close a connection under an interrupt and
leave its lock to whatever still refers to it, is kept from doing so. A connection on which something was interrupted is
not used again, because a statement that nobody has read to its end would hold an old moment of the database.

**A file that can't be written here can be read.** While somebody writes it elsewhere, SQLite's own files beside it say
how. When nobody does and they can't be made, the file is taken for one that doesn't change, and each read looks before
and after whether that was so. What lies beside it and isn't merged yet can't be read without writing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from txn_source.metadata.store.database_errors import read_only, translated
from txn_source.metadata.store.driver_connection import DriverConnection
from txn_source.metadata.store.group_commit import Outcome
from txn_source.metadata.store.same_file import SameFile
from txn_source.metadata.store.write_turn import LOCK_WAIT_S, StaleSnapshotError, WriteTurn
from txn_source.model.errors import TxnLogError, UnavailableError
from txn_source.process.forks import check_sqlite, keep_for_ever

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

MAX_READERS = 32
"""So many threads may read at once; others wait their turn."""
_KEPT_READERS = 8
_READER_WAIT_S = 30.0
_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "cache_size = -16000")


_READ_ONLY_PRAGMAS = ("schema_version", "cache_size = -16000")  # the first one reads the file


class _Raw(sqlite3.Connection):
    """The driver's connection; whoever closes it, its transaction ends.

    In a process that was forked it is left alone, whoever closes or forgets it: SQLite's locks may be held there, by
    threads that are gone.
    """

    _pid: int | None = None  # of the class: until it is open, however early that was interrupted

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._pid = os.getpid()
        super().__init__(*arguments, **options)

    def __del__(self) -> None:
        if self._pid not in (None, os.getpid()):
            keep_for_ever(self)

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        with contextlib.suppress(sqlite3.Error):
            self.rollback()
        super().close()


class Session:
    """A connection of the driver, and what the store's functions take it for."""

    __slots__ = ("__weakref__", "connection", "raw")

    def __init__(self, raw: sqlite3.Connection, connection: DriverConnection) -> None:
        self.raw = raw
        self.connection = cast("Connection", connection)

    def close(self) -> None:
        self.raw.close()


class SqliteFile:
    """One process's connections; safe in threads, never used across a fork."""

    def __init__(self, path: str, same: SameFile | None = None) -> None:
        """``same`` knows which file it must be, if this process, or the one that it is a fork of, has opened it."""
        self._path = path
        self._same = same or SameFile(path)
        self._closed = False
        self._read_only: bool | None = None
        self._fixed: tuple[int, ...] | None = None  # what the file looked like when it was taken for unchanging
        self._idle: deque[Session] = deque()
        self._readers: weakref.WeakSet[Session] = weakref.WeakSet()  # idle or not; one that was forgotten is no more
        self._opening = threading.Lock()
        self._writer: Session | None = None
        self._write_turn: WriteTurn | None = None

    @property
    def readers(self) -> tuple[int, int]:
        """How many connections read or could, and how many of them nobody uses now."""
        return len(self._readers), len(self._idle)

    @property
    def read_only(self) -> bool:
        """True if the file is there and can't be written by this process."""
        if self._read_only is None and os.path.exists(self._path):
            self._read_only = not (_writable(self._path) and _writable(os.path.dirname(self._path)))
        return bool(self._read_only)

    # Reading

    def read(self) -> _Reading:
        """Return a block that sees one moment of the database."""
        return _Reading(self)

    def take(self) -> Session:
        """Return a connection to read with.

        Raises:
            UnavailableError: all were busy for too long.
        """
        until: float | None = None
        while True:
            with contextlib.suppress(IndexError):
                return self._idle.pop()
            with self._opening:
                if len(self._readers) < MAX_READERS:
                    session = self._open()
                    self._readers.add(session)
                    return session
            now = time.monotonic()
            until = until or now + _READER_WAIT_S
            if now >= until:
                raise UnavailableError(
                    f"All {MAX_READERS} connections to the metadata database {self._path} were busy for"
                    f" {_READER_WAIT_S:.0f} s.",
                    "Try again, with fewer readers and consumers at once.",
                )
            time.sleep(0.002)

    def check_unchanged(self) -> None:
        """Raise UNAVAILABLE if another file lies in its place, or it was taken for one that doesn't change and has."""
        if not self.read_only:
            self._same.check()
        if self._fixed is not None and self._fixed != self._look():
            self._fixed = None
            while self._idle:
                self._idle.pop().close()
            raise UnavailableError(
                f"The metadata database {self._path}, which can only be read here, changed while it was read.",
                "Try again.",
            )

    def give_back(self, session: Session) -> None:
        """Take a connection back that is in no transaction."""
        if self._closed or len(self._idle) >= _KEPT_READERS:
            self._readers.discard(session)
            session.close()
        else:
            self._idle.append(session)

    # Writing; whoever calls these has this process's turn

    def transact(self, body: Callable[[Connection], None], outcome: Outcome) -> None:
        """Carry out a body in one write transaction, and commit it."""
        try:
            self._transact(body, outcome)
        finally:
            if self._closed:
                self.close_writer()

    def close_writer(self) -> None:
        """Close the connection that writes."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        turn, self._write_turn = self._write_turn, None
        if turn is not None:
            turn.close()

    def _transact(self, body: Callable[[Connection], None], outcome: Outcome) -> None:
        for _ in range(2):
            session, turn = self._to_write()
            raw = session.raw
            try:
                with raw, raw:  # twice: should the end of the inner one be interrupted, the outer one sees to it
                    turn.begin(raw)
                    self._same.check()
                    body(session.connection)
                    self._commit(raw, outcome)
                return
            except StaleSnapshotError:
                self._writer = None
            except TxnLogError:
                raise
            except BaseException:
                self._writer = None
                raise
        raise UnavailableError(f"The metadata database {self._path} is busy.", "Try again.")

    def _commit(self, raw: sqlite3.Connection, outcome: Outcome) -> None:
        failed = False
        try:
            try:
                raw.commit()
            except sqlite3.Error as error:
                failed = True
                raise translated(error, self._path) or error from error
            finally:
                outcome.committed = outcome.committed or not (failed or raw.in_transaction)
        finally:  # once more: an interrupt may have fallen between the commit and the line above
            outcome.committed = outcome.committed or not (failed or raw.in_transaction)

    def _to_write(self) -> tuple[Session, WriteTurn]:
        turn = self._write_turn
        if turn is None:
            turn = self._write_turn = WriteTurn(self._path, f"{self._path}-turn")
        session = self._writer
        if session is None:
            if self.read_only:
                raise read_only(self._path)
            session = self._open()
            session.raw.execute("PRAGMA busy_timeout = 0")  # the turn waits by itself
            self._writer = session
        return session, turn

    # Connections

    @contextlib.contextmanager
    def version(self) -> Iterator[Callable[[], object]]:
        """A function whose answer differs after other connections have changed the database."""
        raw = self.connect()
        try:
            yield lambda: raw.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise translated(error, self._path) or error from error
        finally:
            raw.close()

    def close(self) -> None:
        """Close the connections to read with that nobody uses; all others are closed after their use."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _open(self) -> Session:
        raw = self.connect()
        return Session(raw, DriverConnection(raw, lambda error: translated(error, self._path)))

    def connect(self) -> sqlite3.Connection:
        """Return a new connection of the driver."""
        check_sqlite()
        try:
            if not self.read_only:
                return self._checked(_opened(self._path, _PRAGMAS))
            uri = f"file:{quote(self._path)}?mode=ro"
            try:
                return with_new_tables(_opened(uri, _READ_ONLY_PRAGMAS))
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                    raise
            fixed = self._look()
            if fixed[-1]:
                raise UnavailableError(
                    f"The metadata database {self._path} can only be read here, and its last changes lie beside it in"
                    f" {self._path}-wal, which SQLite can't read without writing.",
                    "Open the log once where it can be written, or read a copy of it.",
                )
            self._fixed = fixed
            return with_new_tables(_opened(f"{uri}&immutable=1", _READ_ONLY_PRAGMAS))
        except sqlite3.Error as error:
            raise translated(error, self._path) or error from error

    def _checked(self, raw: sqlite3.Connection) -> sqlite3.Connection:
        try:
            self._same.opened(raw)
        except BaseException:
            raw.close()
            raise
        return raw

    def _look(self) -> tuple[int, ...]:
        """Return what differs after a change of the file, and last how much lies in the file beside it."""
        found = os.stat(self._path)
        beside = f"{self._path}-wal"
        return found.st_ino, found.st_size, found.st_mtime_ns, os.path.getsize(beside) if os.path.exists(beside) else 0


class _Reading:
    """A transaction that reads."""

    __slots__ = ("_file", "_session")

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def __enter__(self) -> Connection:
        self._file.check_unchanged()
        session = self._session = self._file.take()
        session.raw.execute("BEGIN")
        return session.connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = self._session
        session.raw.rollback()
        if kind is None:
            self._file.give_back(session)
            self._file.check_unchanged()
        else:
            session.close()


def _opened(path: str, pragmas: tuple[str, ...]) -> sqlite3.Connection:
    raw = sqlite3.connect(
        path,
        timeout=LOCK_WAIT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=_Raw,
        uri=pragmas is _READ_ONLY_PRAGMAS,
    )
    try:
        for pragma in pragmas:
            raw.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        raw.close()
        raise
    return raw


def with_new_tables(raw: sqlite3.Connection) -> sqlite3.Connection:
    """Return a connection that only reads, with empty tables in place of those that an older release didn't have."""
    there = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "log_info" in there:
        for table, columns in _NEW_TABLES.items():
            if table not in there:
                raw.execute(f"CREATE TEMP TABLE {table} ({columns})")
    return raw


_NEW_TABLES = {
    "roots": "root_id, name, uri",
    "segment_copies": "segment_id, roots",
    "short_entries": "partition_id, position, segment_id, needed",
}
"""Tables of version 5 that readers look at, and their columns."""


def _writable(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
