"""Two services over one PostgreSQL log, and one of them stopped in the middle of a call while the other one calls.

The first call is held right after it has run a statement that is named by a pattern, in a thread of its own. Then the
second call begins. It is let run until it is done, or until PostgreSQL says that it waits for a lock. Then the first
one goes on. No time is measured: what is forced is the order of statements.

What keeps the two apart is the log's lock, or, where a race is not ``locked``, the second defence alone: what met a
conflict is carried out again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, text

from tests.log.sites import log_on_postgres, service_over
from tests.metadata.postgres import server
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.store import postgres_database
from txn_source.metadata.store.database import Database
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.topic import TopicView
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId
from txn_source.storage.segment import segment_path

ORDERS = TopicName.parse("orders")
MINUTE_MS = 60_000
_PATIENCE_S = 30.0
_LOOK_S = 0.005


@dataclass
class Outcome:
    """What came of two calls: what each returned or raised, and how the second one went."""

    first: Any = None
    second: Any = None
    waited: bool = False
    """The second one waited for a lock while the first one was held."""
    overtook: bool = False
    """The second one was done while the first one was held."""

    def check_both(self) -> None:
        """Raise what a call has raised."""
        for result in (self.first, self.second):
            if isinstance(result, BaseException):
                raise result


class Services:
    """A log with one topic, ``orders``, and two services over its database."""

    def __init__(self, root: Path, url: DatabaseUrl, patch: pytest.MonkeyPatch, *, locked: bool) -> None:
        second = DatabaseUrl(f"{url.revealed}&application_name=second")
        self.services = [service_over(root, None, of) for of in (url, second)]
        self.a, self.b = (MetadataStub(InProcessTransport(service)) for service in self.services)
        self.databases: list[Database] = [open_database(of) for of in (url, second)]
        self._patch = patch
        self._locked = locked
        self._name = url.revealed.partition("?")[0].rpartition("/")[2]
        self.topic = self.a.create_topic(ORDERS, 2, None, LedgerLimits(), {})
        self.b.begin_transaction(MINUTE_MS)  # each has looked at the clock now, and won't in the race
        self._sequences: dict[int, int] = {}
        self._paths: dict[tuple[int, int], str] = {}
        self._ends: dict[str, int] = {}

    def close(self) -> None:
        """Close all connections."""
        for service in self.services:
            service.close()
        for database in self.databases:
            database.close()

    def race(self, first: Callable[[], Any], hold_after: str, second: Callable[[], Any]) -> Outcome:
        """Carry out two calls, the second one while the first is held after a statement that matches a pattern."""
        if not self._locked:
            self._patch.setattr(postgres_database, "LOCK", "SELECT 1")
        outcome = Outcome()
        held, go, done = threading.Event(), threading.Event(), threading.Event()

        def run(call: Callable[[], Any], name: str) -> None:
            try:
                setattr(outcome, name, call())
            except Exception as error:
                setattr(outcome, name, error)

        def run_second() -> None:
            run(second, "second")
            done.set()

        one = threading.Thread(target=run, args=(first, "first"))
        two = threading.Thread(target=run_second)
        with self._held(one, re.compile(hold_after), held, go):
            try:
                one.start()
                while not held.wait(_LOOK_S):
                    assert one.is_alive(), f"the first call never ran {hold_after!r}: {outcome.first!r}"
                two.start()
                while not done.wait(_LOOK_S):
                    if self._second_waits():
                        outcome.waited = True
                        break
                outcome.overtook = done.is_set()
            finally:
                go.set()
            for thread in (one, two):
                thread.join(_PATIENCE_S)
                assert not thread.is_alive()
        self._patch.undo()
        return outcome

    @contextmanager
    def _held(
        self, one: threading.Thread, pattern: re.Pattern[str], held: threading.Event, go: threading.Event
    ) -> Iterator[None]:
        inner = psycopg.Cursor.execute

        def execute(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            result = inner(cursor, query, *arguments, **options)
            statement = query.decode() if isinstance(query, bytes) else str(query)
            if threading.current_thread() is one and not held.is_set() and pattern.search(" ".join(statement.split())):
                held.set()
                assert go.wait(_PATIENCE_S)
            return result

        psycopg.Cursor.execute = execute  # type: ignore[method-assign]
        try:
            yield
        finally:
            psycopg.Cursor.execute = inner  # type: ignore[method-assign]

    def _second_waits(self) -> bool:
        query = (
            b"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'second' AND wait_event_type = 'Lock'"
            b" AND datname = current_database()"
        )
        with server().connect(self._name) as connection:
            [count] = connection.execute(query).fetchone() or [0]
        return bool(count)

    # Short ways

    def rows(self, query: str) -> list[Any]:
        """Return what a query finds, as plain values if it has one column."""
        with self.databases[0].read() as connection:
            found = connection.execute(text(query)).all()
        return [row[0] if len(row) == 1 else tuple(row) for row in found]

    def on(self, number: int, action: Callable[[Connection], Any]) -> Callable[[], Any]:
        """Return a call that carries out an action of the store, of the first or the second service (0, 1)."""
        return lambda: self.databases[number].write(action)

    def producer(self, transactional_id: str | None = None) -> tuple[OpenedProducer, TopicView]:
        """Open a producer."""
        return self.a.open_producer(ORDERS, transactional_id, None)

    def entry(
        self, producer: OpenedProducer, partition: int = 0, sequence: int | None = None, path: str | None = None
    ) -> NewEntry:
        """Return the producer's next entry of one message, behind the others in its segment."""
        number = producer.producer_id
        if sequence is None:
            sequence = self._sequences.get(number, 0)
            self._sequences[number] = sequence + 1
        if path is None:
            path = self._paths.setdefault((number, partition), segment_path(self.topic.topic_id, partition, 1, number))
        offset = self._ends.get(path, 1000)
        self._ends[path] = offset + 100
        [partition_id] = self.rows(f"SELECT partition_id FROM partitions WHERE partition_index = {partition}")
        return NewEntry(partition_id, sequence, 1, path, offset, 100, 7)

    def write(self, producer: OpenedProducer, partition: int = 0, txn: TxnId | None = None) -> NewEntry:
        """Append one entry and return it."""
        entry = self.entry(producer, partition)
        self.a.append(producer, txn, [entry])
        return entry

    def fill_ledgers(self, count: int, producer: OpenedProducer, partition: int = 0) -> list[int]:
        """Write an entry to each of so many ledgers, close them, and return their ids."""
        ids = []
        for _ in range(count):
            self.write(producer, partition)
            ids += self.a.roll_ledger(ORDERS, partition)
        return ids


@contextmanager
def services(root: Path, patch: pytest.MonkeyPatch, *, locked: bool = True) -> Iterator[Services]:
    """A new log and two services over it."""
    with log_on_postgres(root) as url:
        found = Services(root, url, patch, locked=locked)
        try:
            yield found
        finally:
            found.close()
