"""One process's connections to a PostgreSQL database: a bounded pool of them that read.

A transaction is begun and ended by statements of its own on the driver's connection, which SQLAlchemy knows nothing of:
it takes the connection for one without transactions. What a session may wait for, and how long it may hold others up,
is set when it is opened.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any, cast

import psycopg
from psycopg import pq
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.pool import NullPool

from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.postgres_clock import ServerClock
from txn_source.metadata.store.postgres_errors import not_connected, translated
from txn_source.metadata.store.prepared import ERRORS
from txn_source.model.errors import InvalidArgumentError, TxnLogError, UnavailableError

MAX_READERS = 16
"""So many threads may read at once; others wait their turn."""
READER_WAIT_S = 30.0
OLDEST_SERVER = 12
CLOCK = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"

SETTINGS = {
    "lock_timeout": "10s",
    "statement_timeout": "60s",  # others wait for the lock for half as long; what may take longer says so
    "idle_in_transaction_session_timeout": "8s",  # a service that hangs doesn't hold the log's lock for longer
    "tcp_keepalives_idle": "5",  # nor does one whose machine is gone
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",  # also in the middle of an answer, for which there are no keepalives
}
CHECK_CLIENT = "SET client_connection_check_interval = '2s'"
"""Ends a statement whose service was killed. Servers before version 14, and on some systems, don't know it."""
_CONNECT = {
    "application_name": "txnlog",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""Unless the URL says otherwise."""
_PRIMARY = {"target_session_attrs": "primary" if pq.version() >= 140000 else "read-write"}
"""A standby shows what the primary had a while ago."""
_LOG_SCHEMA = (
    "coalesce((SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE pg_class.oid = to_regclass('log_info')), current_schema())"
)

_ASK = (
    "SELECT current_setting('server_version_num'), current_setting('server_encoding'), "
    f"hashtext(CAST({_LOG_SCHEMA} AS text)), "
    # A commit that was told is durable.
    "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)"
)


def _opening_statement() -> str:
    """Return what is asked, and set, when a session is opened."""
    settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in SETTINGS.items())
    return f"{_ASK}, {settings}"


def without_idle_limit(connection: Connection) -> None:
    """Let the transaction of a connection go on after it has waited for long; only where it holds nobody up."""
    connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")


class Session:
    """A connection of the driver, with SQLAlchemy's around it."""

    __slots__ = ("connection", "key", "raw", "warned")

    def __init__(self, connection: Connection, key: int) -> None:
        self.connection = connection
        self.warned = ""
        """What the server has warned of last."""
        raw = connection.connection.dbapi_connection
        assert isinstance(raw, psycopg.Connection)
        self.raw: psycopg.Connection[Any] = raw
        raw.add_notice_handler(self._noticed)
        self.key: int = key
        """Tells the log's schema from others of the database."""

    def run(self, statements: str) -> list[Any]:
        """Carry out statements of ours that have no parameters; return the last one's first row, if it has any."""
        cursor = self.raw.execute(statements.encode(), prepare=False)
        while cursor.nextset():
            pass
        return list(cursor.fetchone() or ()) if cursor.description else [cursor.statusmessage]

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warned = str(notice.message_primary)

    @property
    def usable(self) -> bool:
        """True unless it is broken, or in the middle of a statement."""
        states = (pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)
        return not self.raw.closed and self.raw.info.transaction_status in states

    def end(self) -> bool:
        """End its transaction, if it is in one, without keeping anything; return False if it can't be used again."""
        if not self.usable:
            return False
        if self.raw.info.transaction_status == pq.TransactionStatus.IDLE:
            return True
        try:
            self.run("ROLLBACK")
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self.raw.close()


class SessionPool:
    """Sessions of one process; safe in threads."""

    def __init__(self, url: DatabaseUrl, clock: ServerClock) -> None:
        self._url = url
        self._clock = clock
        self._free = threading.Condition()
        self._idle: deque[Session] = deque()
        self._taken = 0
        self._closed = False

    @property
    def sessions(self) -> tuple[int, int]:
        """How many are taken, and how many nobody uses now."""
        with self._free:
            return self._taken, len(self._idle)

    def take(self) -> Session:
        """Return a session in no transaction.

        Raises:
            UnavailableError: all were busy for too long, or the database can't be reached.
        """
        with self._free:
            if not self._free.wait_for(lambda: self._idle or self._taken < MAX_READERS, READER_WAIT_S):
                raise UnavailableError(
                    f"All {MAX_READERS} connections to the metadata database {self._url} were busy for"
                    f" {READER_WAIT_S:.0f} s.",
                    "Try again, with fewer readers and consumers at once.",
                )
            self._taken += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self.open()
        except BaseException:
            self._left()
            raise

    def give_back(self, session: Session) -> None:
        """Take a session back; one that can't be used again is closed."""
        keep = session.end()
        with self._free:
            keep = keep and not self._closed
            if keep:
                self._idle.append(session)
        if not keep:
            session.close()
        self._left()

    def drop(self, session: Session) -> None:
        """Close a session that was taken, and all that nobody uses: they are as old."""
        session.close()
        self._left()
        self.close_idle()

    def close_idle(self) -> None:
        """Close the sessions that nobody uses."""
        with self._free:
            idle, self._idle = self._idle, deque()
        for session in idle:
            session.close()

    def close(self) -> None:
        """Close the sessions that nobody uses now, and all others after their use."""
        self._closed = True
        self.close_idle()

    def open(self) -> Session:
        """Return a new session, which doesn't belong to the pool."""
        _opening.pool = self
        try:
            connection = _ENGINE.connect()
        finally:
            del _opening.pool
        connection.info[ERRORS] = lambda error: translated(error, self._url)
        return Session(connection, _opening.key)

    def connect(self) -> tuple[psycopg.Connection[Any], int]:
        """Return a new connection of the driver, and the key of the log's schema."""
        url = self._url
        given = {name: value for name, value in conninfo_to_dict(url.revealed).items() if value is not None}
        parameters: dict[str, Any] = {**_CONNECT, **given, **_PRIMARY, "client_encoding": "utf8"}
        try:
            raw = psycopg.connect(**parameters, autocommit=True)
        except psycopg.Error as error:
            raise not_connected(error, url) from None
        try:
            raw.adapters.register_loader("numeric", _Whole)
            row = raw.execute(_opening_statement().encode(), prepare=False).fetchone()
            assert row is not None
            version, encoding, key = int(row[0]) // 10_000, row[1], row[2]
            clock = raw.execute(CLOCK.encode(), prepare=False).fetchone()
            assert clock is not None
            self._clock.set(clock[0])
            _check(url, version, encoding)
            with contextlib.suppress(psycopg.NotSupportedError, psycopg.DataError, psycopg.ProgrammingError):
                raw.execute(CHECK_CLIENT.encode(), prepare=False)
        except psycopg.Error as error:
            raw.close()
            raise translated(error, url) or error from None
        except BaseException:
            raw.close()
            raise
        return raw, key

    def _left(self) -> None:
        with self._free:
            self._taken -= 1
            self._free.notify()


class _Whole(Loader):
    """Reads what PostgreSQL makes of a sum of integers as one."""

    def load(self, data: Any) -> int:
        return int(bytes(data))


def _check(url: DatabaseUrl, version: int, encoding: str) -> None:
    """Raise INVALID_ARGUMENT for a database that can't hold a log."""
    if version < OLDEST_SERVER:
        raise InvalidArgumentError(
            f"The metadata database {url} is PostgreSQL {version}.", f"Use PostgreSQL {OLDEST_SERVER} or newer."
        )
    if encoding != "UTF8":
        raise InvalidArgumentError(
            f"The metadata database {url} has the encoding {encoding}, which can't hold every name.",
            "Create it with ENCODING 'UTF8' (and TEMPLATE template0).",
        )


def _connect() -> psycopg.Connection[Any]:
    raw, _opening.key = cast("SessionPool", _opening.pool).connect()
    return raw


_opening = threading.local()
_ENGINE = create_engine("postgresql+psycopg://", creator=_connect, poolclass=NullPool, pool_reset_on_return=None)
"""One for all databases, so that a process compiles each statement once."""


@event.listens_for(_ENGINE, "handle_error", retval=True)
def _on_error(context: ExceptionContext) -> BaseException | None:
    context.is_disconnect = False  # else SQLAlchemy would close the connection by itself
    if context.connection is None:
        return None
    ours: TxnLogError | None = context.connection.info[ERRORS](context.original_exception)
    return ours
