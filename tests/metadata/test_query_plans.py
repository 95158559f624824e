"""No statement reads all of a table that grows: each that the service runs is explained by SQLite."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.log.sites import ManualClock, Site
from txn_source.metadata.store import prepared
from txn_source.metadata.store.tables import metadata
from txn_source.storage.root import LogRoot

SMALL = {
    "log_info": "one row",
    "topics": "listed as a whole, by name or for a namespace",
    "policies": "a few rows for each topic that has its own",
    "doomed_files": "empty but for a moment; read a page at a time",
    "consumers": "those that are connected now",
    "roots": "a log has 61 at most",
}
"""Tables that may be read as a whole, and why."""
WHOLE = {
    "SELECT segments.segment_id, segments.path": "gc goes through all of them, a page at a time",
    "SELECT transactions.txn": "a listing of any state or topic begins at the newest, and stops after so many",
    "UPDATE ledgers SET": "once, after a clock that was ahead",
    "UPDATE copies SET begun_at_ms": "once, after a clock that was ahead",
    "UPDATE transactions SET": "once, after a clock that was ahead",
    "SELECT short_entries.partition_id, short_entries.position, short_entries.segment_id, short_entries.needed FROM": (
        "the first one, to know whether there is any"
    ),
    "SELECT partitions.partition_id": "once, after a clock that was ahead",
}
"""Statements that may, by their beginning, and why."""

Statements = dict[str, Any]


@contextmanager
def recorded() -> Iterator[Statements]:
    """Collect what is executed, each statement with parameters of its first use."""
    found: Statements = {}

    def note(_c: object, _u: object, statement: str, parameters: Any, _x: object, many: bool) -> None:
        found.setdefault(statement, parameters[0] if many else parameters)

    inner = prepared._run

    def run(connection: Any, sql: str, values: Any, result: Any, *, many: bool = False) -> Any:
        note(None, None, sql, values, None, many)
        return inner(connection, sql, values, result, many=many)

    event.listen(Engine, "before_cursor_execute", note)
    prepared._run = run
    try:
        yield found
    finally:
        prepared._run = inner
        event.remove(Engine, "before_cursor_execute", note)


def scans(database: sqlite3.Connection, statement: str, parameters: Any) -> list[str]:
    """Return the growing tables that a statement reads as a whole."""
    if statement.lstrip().startswith(("PRAGMA", "CREATE", "SAVEPOINT", "RELEASE", "ROLLBACK")):
        return []
    plan = database.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    tables = {name: name for name in metadata.tables}
    tables |= {alias: table for table, alias in re.findall(r"(\w+) AS (\w+)", statement)}
    found = []
    for row in plan:
        # Of an index of all traces of a partition, only those in a span of markers are to be read.
        scan = re.match(
            r"SCAN (\w+)|SEARCH (\w+) USING (?:COVERING )?INDEX traces_by_marker \(partition_id=\?\)$", row[3]
        )
        table = tables.get(scan.group(1) or scan.group(2)) if scan else None
        if (
            table in metadata.tables
            and table not in SMALL
            and not any(map(" ".join(statement.split()).startswith, WHOLE))
        ):
            found.append(f"{row[3]}: {' '.join(statement.split())}")
    return found


@pytest.fixture
def statements(tmp_path: Any, clock: ManualClock) -> Iterator[tuple[Statements, sqlite3.Connection]]:
    """What the service runs in a life of producing, consuming, looking, offloading, trimming and deleting."""
    with recorded() as found, Site("embedded", tmp_path / "log", clock) as site:
        live(site, clock)
        database = sqlite3.connect(LogRoot.at(site.root).database_url.removeprefix("sqlite:///"))
        yield found, database
        database.close()


def live(site: Site, clock: ManualClock) -> None:
    """Let a log be used in all the ways that run statements of their own."""
    log = site.connect()
    for name in ("orders", "bills"):
        log.create_topic(name, partitions=2, ledger_max_entries=4)
    producer = log.producer("orders", transactional_id="teller")
    consumer = log.subscribe("orders", "each", initial_position="earliest", isolation_level="read_committed")
    shared = log.subscribe(
        "orders", "shared", type="shared", initial_position="earliest", isolation_level="read_committed"
    )
    for number in range(12):
        transaction = log.begin_transaction()
        producer.send(b"%d" % number, txn=transaction, partition=number % 2)
        producer.flush()
        (transaction.abort if number % 3 == 0 else transaction.commit)()
        producer.send(b"plain", partition=number % 2)
        producer.flush()
        clock.advance(1)
    left = log.begin_transaction()
    producer.send(b"left", txn=left)
    producer.flush()
    for one in (consumer, shared):
        for _ in range(3):
            message = one.receive(timeout=30)
            assert message is not None
            one.acknowledge(message)
        one.flush()
    shared.redeliver()
    consumer.seek("earliest")
    consumer.close()
    shared.close()
    log.subscriptions("orders")
    with log.reader("orders", isolation_level="read_committed") as reader:
        assert reader.has_message_available()
    log.stats("orders")
    log.transactions()
    log.transactions(topic="orders", state=None)
    log.scan("orders").read_all()
    log.scan("orders", "read_uncommitted").read_all()
    log.producer("orders", transactional_id="teller")
    clock.advance(100)
    log.offload("orders")
    clock.advance(7200)
    log.delete_hot("orders")
    log.maintain()
    log.seek("orders", "each", "latest")
    log.seek("orders", "shared", "latest")
    log.trim("orders", older_than=1)
    clock.advance(-100_000)
    log.roll_ledger("orders")
    log.delete_topic("orders")


def test_no_statement_reads_a_whole_table(statements: tuple[Statements, sqlite3.Connection]) -> None:
    """Explain every statement of a life of the log."""
    found, database = statements
    assert len(found) > 120
    assert [line for statement, parameters in found.items() for line in scans(database, statement, parameters)] == []


@pytest.mark.long
def test_every_foreign_key_can_be_followed_backwards(statements: tuple[Statements, sqlite3.Connection]) -> None:
    """A row that goes takes others with it, and each table that refers to it has an index to find them by."""
    _, database = statements
    missing = []
    for name, table in metadata.tables.items():
        for key in table.foreign_keys:
            plan = database.execute(
                f'EXPLAIN QUERY PLAN SELECT 1 FROM {name} WHERE "{key.parent.name}" = ?', (1,)
            ).fetchall()
            missing += [f"{name}.{key.parent.name}" for row in plan if row[3].startswith("SCAN")]
    assert missing == []
