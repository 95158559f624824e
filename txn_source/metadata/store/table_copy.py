"""Copying the tables of a log from SQLite to PostgreSQL, and comparing them.

Both are read in the order of the primary key, in batches; a checksum is over all values of all rows in this order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, LargeBinary, Table, func, inspect, literal, select, text, tuple_, update
from sqlalchemy.schema import DropTable

from txn_source.metadata.store import consumers, postgres_dialect
from txn_source.metadata.store.log import unfinished
from txn_source.metadata.store.prepared import driver_cursor
from txn_source.metadata.store.table_making import make_tables
from txn_source.metadata.store.table_version import read_version
from txn_source.metadata.store.tables import consumers as consumer_table
from txn_source.metadata.store.tables import log_info, metadata, schema_versions
from txn_source.model.errors import InvalidArgumentError

_BATCH = 2000
_BATCH_OF_LARGE_ROWS = 50
_TOLD_EVERY = 100_000
_Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TableContent:
    """How many rows a table has, and a checksum of them."""

    name: str
    rows: int
    checksum: str


def prepare(target: Connection, log_id: str) -> bool:
    """Make the empty tables for a log, in a transaction; return True if an unfinished copy of it was removed.

    Raises:
        InvalidArgumentError: the database, or its schema, holds something else.
        LogVersionError: it holds tables of a newer release.
    """
    there = sorted(inspect(target).get_table_names())
    again = False
    if log_info.name in there:
        read_version(target)
        found = target.execute(select(log_info.c.log_id)).scalar()
        again = found == unfinished(log_id)
        if not again:
            raise _not_empty("this log" if found == log_id else f"the log {found}")
        for table in reversed(metadata.sorted_tables):
            target.execute(DropTable(table, if_exists=True))
    elif there:
        raise _not_empty(f"the table {there[0]!r}")
    make_tables(target)
    return again


def copy_tables(source: Connection, target: Connection, progress: Callable[[int], object]) -> list[TableContent]:
    """Copy all rows into empty tables, in a transaction; return what was read.

    What is counted by the database goes on behind the highest number that the source has ever given out. ``progress``
    is told from time to time how many rows were copied.
    """
    done = 0

    def copied_some(rows: int) -> None:
        nonlocal done
        before, done = done, done + rows
        if before // _TOLD_EVERY != done // _TOLD_EVERY:
            progress(done)

    copied = [_copy(source, target, table, copied_some) for table in _tables()]
    given_out = {row.name: int(row.seq) for row in source.execute(text("SELECT name, seq FROM sqlite_sequence"))}
    for table in _tables():
        for column in table.columns:
            if column.identity is not None and given_out.get(table.name):
                counter = func.pg_get_serial_sequence(table.name, column.name)
                target.execute(select(func.setval(counter, given_out[table.name])))
    return copied


def read_tables(connection: Connection) -> list[TableContent]:
    """Return what the tables hold."""
    return [_content(table, _batches(connection, table)) for table in _tables()]


def leave_out_consumers(target: Connection, log_id: str) -> None:
    """Disconnect the consumers, which aren't connected to what serves the copy; note that the copy isn't finished."""
    for consumer_id in target.execute(select(consumer_table.c.consumer_id)).scalars().all():
        consumers.remove(target, consumer_id)
    target.execute(update(log_info).values(log_id=unfinished(log_id)))


def _tables() -> list[Table]:
    return [table for table in metadata.sorted_tables if table is not schema_versions]


def _copy(source: Connection, target: Connection, table: Table, copied: Callable[[int], object]) -> TableContent:
    names = [column.name for column in table.columns]

    def stored() -> Iterator[list[_Row]]:
        for rows in _batches(source, table):
            with driver_cursor(target) as cursor:
                postgres_dialect.copy(cursor, table.name, names, rows)
            copied(len(rows))
            yield rows

    return _content(table, stored())


def _content(table: Table, batches: Iterator[list[_Row]]) -> TableContent:
    checksum, count = hashlib.sha256(), 0
    for rows in batches:
        count += len(rows)
        for row in rows:
            checksum.update(repr(row).encode())
    return TableContent(table.name, count, checksum.hexdigest())


def _batches(connection: Connection, table: Table) -> Iterator[list[_Row]]:
    keys = list(table.primary_key.columns)
    of_key = [list(table.columns).index(key) for key in keys]
    size = _BATCH_OF_LARGE_ROWS if any(isinstance(c.type, LargeBinary) for c in table.columns) else _BATCH
    query = select(table).order_by(*keys).limit(size)
    rows = [tuple(row) for row in connection.execute(query)]
    while rows:
        yield rows
        last = [literal(rows[-1][at], key.type) for at, key in zip(of_key, keys, strict=True)]
        rows = [tuple(row) for row in connection.execute(query.where(tuple_(*keys) > tuple_(*last)))]


def _not_empty(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The target database isn't empty: it holds {what}.",
        "Name an empty database, or an empty schema of one (?options=-csearch_path%3D<schema>).",
    )
