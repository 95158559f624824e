"""The metadata database on PostgreSQL, which several services of a log use at once.

**One writer of a log at a time.** A write transaction takes the log's lock before anything else, as a statement of its
own. It runs at READ COMMITTED, so each of its statements sees all that was committed before it had the lock. Decisions
get their numbers in commit order, and each end of a transaction needs the same row for that, so more writers at once
would wait for each other a moment later. What waits meanwhile shares the next transaction (``group_commit.py``).

**Reads** are transactions at REPEATABLE READ that see one moment, and wait for nobody.

**Connections break.** One that is broken when a transaction begins is replaced; a write that had not come to its commit
is carried out again, and one whose commit wasn't confirmed is UNAVAILABLE and may be repeated by the caller.

Nothing that was opened is used across a fork.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event
from types import TracebackType
from typing import TypeVar

import psycopg
from sqlalchemy import Connection

from txn_source.metadata.store.conflicts import ConflictError, LockedError, LostConnectionError
from txn_source.metadata.store.database import Change, DatabaseUse, Wait, forget_changes, noted_changes, tell_changes
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.group_commit import GroupCommit, Outcome
from txn_source.metadata.store.postgres_clock import ServerClock
from txn_source.metadata.store.postgres_connections import CLOCK, Session, SessionPool
from txn_source.metadata.store.postgres_errors import ENDED_BEFORE, translated, unsure
from txn_source.metadata.store.postgres_notices import Notices
from txn_source.model.errors import TxnLogError

LOCK = "SELECT pg_advisory_xact_lock({space}, {key})"
LOCK_SPACE = 0x74786E6C
"""Tells our locks from those of others in the database."""
HUNG_S = 8.0
_END_HUNG_HOLDER = """
    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = {space} AND objid = {key}
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND state = 'active' AND wait_event IN ('ClientWrite', 'ClientRead')
    AND state_change < clock_timestamp() - make_interval(secs => {hung_s})
"""
"""Ends the session that has the lock, if its service was stopped while it took an answer, or sent rows (COPY): none of
PostgreSQL's time-outs does so then."""
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"  # a database that is set to be read only stays so
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WAIT_FOR_STANDBY = (
    "SELECT pg_logical_emit_message(true, 'txnlog', '') WHERE txid_current_if_assigned() IS NULL"
    " AND current_setting('synchronous_standby_names') <> ''; "
)
"""A call that is repeated may find what it did on this server alone, and write nothing: its answer must wait for the
standby like the first one."""
_ATTEMPTS = 6
_PATIENCE_S = 30.0
_CLOSE_WAIT_S = 10.0
T = TypeVar("T")


class PostgresDatabase:
    """Transactions on a PostgreSQL database (``Database``); safe in threads and after a fork."""

    read_only = False
    file = None

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._of_process: dict[int, _Connections] = {}
        self.on_change: Callable[[set[Change]], None] = lambda _: None
        self.before_write: Callable[[Connection], bool] = lambda _: False
        self.is_due: Callable[[Connection], bool] = lambda _: False

    @property
    def use(self) -> DatabaseUse:
        """How much of this process's connections is used now."""
        here = self._here()
        return DatabaseUse(*here.pool.sessions, here.commits.waiting)

    def clock(self) -> int:
        """Return the server's time in microseconds since the epoch."""
        here = self._here()
        while (now_us := here.clock.now_us()) is None:
            with here.read():  # opens a session, which asks
                pass
        return now_us

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment of the database."""
        return self._here().read()

    def write(self, action: Callable[[Connection], T]) -> T:
        """Carry out an action in a write transaction, see ``Database.write``.

        One that met another writer, or whose connection was lost before its commit, is carried out again.
        """
        until_s = time.monotonic() + _PATIENCE_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._here().commits.run(action)
            except ConflictError as conflict:
                if attempt == _ATTEMPTS or time.monotonic() >= until_s:
                    raise conflict.final from conflict
                time.sleep(random.uniform(0.5, 1.5) * 0.005 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def changes(self, stop: Event) -> Iterator[Wait]:
        """A function that waits for the changes of other services; they say what they changed."""
        with self._here().notices.heard(stop) as wait:
            yield wait

    def close(self) -> None:
        """Close this process's connections."""
        here = self._of_process.pop(os.getpid(), None)
        if here is not None:
            here.close()

    def _here(self) -> _Connections:
        pid = os.getpid()
        found = self._of_process.get(pid)
        if found is None:
            found = self._of_process.setdefault(pid, _Connections(self._url, self._before, self._after))
        return found

    def _before(self, connection: Connection) -> bool:
        forget_changes(connection)
        return self.before_write(connection)

    def _after(self, connection: Connection) -> None:
        tell_changes(connection, self.on_change)


class _Connections:
    """What one process has open."""

    def __init__(
        self, url: DatabaseUrl, before: Callable[[Connection], bool], after: Callable[[Connection], None]
    ) -> None:
        self._url = url
        self.clock = ServerClock()
        self.pool = SessionPool(url, self.clock)
        self.notices = Notices(url, self.pool)
        self.commits = GroupCommit(self._transact, before, after)
        self._writer: Session | None = None
        self._closed = False

    def read(self) -> _Reading:
        """Return a block that sees one moment of the database."""
        return _Reading(self._url, self.pool, self.clock)

    def close(self) -> None:
        """Close all that nobody uses; the rest is closed after its use."""
        self._closed = True
        self.pool.close()
        self.commits.while_nobody_writes(self._drop_writer, _CLOSE_WAIT_S)

    # Writing; whoever calls these has this process's turn

    def _transact(self, body: Callable[[Connection], None], outcome: Outcome) -> None:
        """Carry out a body in one write transaction, and commit it."""
        session = self._begun()
        try:
            body(session.connection)
            self._commit(session, outcome)
        finally:
            if self._closed or not session.end():
                self._drop_writer()

    def _begun(self) -> Session:
        """Return the session that writes, in a transaction that holds the log's lock."""
        for fresh in (False, True):
            session = self._writer
            if session is None:
                session, fresh = self.pool.open(), True
                self._writer = session
            lock = LOCK.format(space=LOCK_SPACE, key=session.key)
            try:
                [now_us] = session.run(f"{_BEGIN_WRITE}; {lock}; {CLOCK}")
            except BaseException as error:
                ours = translated(error, self._url)
                if not session.end():
                    self._drop_writer()
                if ours is None:
                    raise
                if isinstance(ours, LockedError):
                    self._end_hung_holder()
                if fresh or not isinstance(ours, LostConnectionError):
                    raise ours from error
                self.pool.close_idle()  # they are as old
            else:
                self.clock.set(now_us)
                return session
        raise AssertionError("a new session works or raises")

    def _commit(self, session: Session, outcome: Outcome) -> None:
        notice = self.notices.telling(noted_changes(session.connection), session.key)
        session.warned = ""
        try:
            said = session.run(f"{notice}{_WAIT_FOR_STANDBY}COMMIT")
        except psycopg.errors.InFailedSqlTransaction:
            said = ["ROLLBACK"]
        except psycopg.Error as error:
            ours = translated(error, self._url)
            if ours is None or (isinstance(ours, LostConnectionError) and error.sqlstate not in ENDED_BEFORE):
                raise unsure(self._url) from error
            raise ours from error
        except BaseException:
            outcome.failure = unsure(self._url)
            raise
        if said != ["COMMIT"]:  # the transaction had failed before, and somebody hid that
            raise ConflictError(f"The metadata database {self._url} rolled a change back.", "Try again.")
        if session.warned:  # as of a wait for the standby that was cancelled: it is committed here alone
            raise unsure(self._url, session.warned)
        outcome.committed = True

    def _end_hung_holder(self) -> None:
        session = self._writer
        if session is not None:
            with suppress(psycopg.Error):  # nothing comes of it where the accounts differ
                session.run(_END_HUNG_HOLDER.format(space=LOCK_SPACE, key=session.key & 0xFFFFFFFF, hung_s=HUNG_S))

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class _Reading:
    """A transaction that reads."""

    __slots__ = ("_clock", "_pool", "_session", "_url")

    def __init__(self, url: DatabaseUrl, pool: SessionPool, clock: ServerClock) -> None:
        self._url = url
        self._pool = pool
        self._clock = clock

    def __enter__(self) -> Connection:
        for last in (False, True):
            session = self._pool.take()
            try:
                if self._clock.fresh:
                    session.run(_BEGIN_READ)
                else:
                    [now_us] = session.run(f"{_BEGIN_READ}; {CLOCK}")
                    self._clock.set(now_us)
            except BaseException as error:
                self._pool.drop(session)
                ours = translated(error, self._url)
                if ours is None:
                    raise
                if last or not isinstance(ours, LostConnectionError):
                    raise _told(ours) from error
            else:
                self._session = session
                return session.connection
        raise AssertionError("the second session works or raises")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.give_back(self._session)
        if isinstance(error, ConflictError):
            raise _told(error) from error


def _told(error: TxnLogError) -> TxnLogError:
    """Return what a caller is told who isn't carried out again."""
    return error.final if isinstance(error, ConflictError) else error
