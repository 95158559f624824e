"""Storing metadata that was made again from segments and tiered objects, many rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, insert, select, update

from txn_source.metadata.store.dialects import dialect_of
from txn_source.metadata.store.prepared import driver_cursor
from txn_source.metadata.store.sealing import seal
from txn_source.metadata.store.tables import log_info, metadata, topics
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.message_ranges import MessageRange, MessageRanges, index_of, packed, position_of

_AT_ONCE = 50_000
Columns = Mapping[str, Sequence[Any]]
"""Values of rows by column, all equally many."""


def check_empty(connection: Connection) -> None:
    """Raise INVALID_ARGUMENT if the database has topics."""
    found = connection.execute(select(topics.c.name).limit(1)).scalar()
    if found is not None:
        raise InvalidArgumentError(
            f"The database has topics already ({found!r}).", "Rebuild into a new one; it is never mixed with a log."
        )


def add_columns(connection: Connection, name: str, columns: Columns) -> None:
    """Insert rows into a table; columns that aren't given have their defaults, which are constants of the database."""
    table = metadata.tables[name]
    given = _with_defaults(table, columns)
    names, values = tuple(given), list(given.values())
    copy = dialect_of(connection.dialect.name).copy
    places = ", ".join("?" for _ in names)
    quoted = ", ".join(f'"{name}"' for name in names)
    for start in range(0, len(values[0]), _AT_ONCE):
        rows = list(zip(*(column[start : start + _AT_ONCE] for column in values), strict=True))
        with driver_cursor(connection) as cursor:
            if copy is not None:
                copy(cursor, table.name, names, rows)
            else:
                cursor.executemany(f"INSERT INTO {table.name} ({quoted}) VALUES ({places})", rows)


def add_rows(connection: Connection, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows of some columns into a table, if there are any."""
    if rows:
        add_columns(connection, name, dict(zip(columns, zip(*rows, strict=True), strict=True)))


def add_policies(
    connection: Connection, policies: Mapping[tuple[str, str], str], roots: Mapping[int, tuple[str, str]]
) -> None:
    """Insert policies by scope and name, and hot roots by their ids."""
    rows = [(scope, name, value) for (scope, name), value in policies.items()]
    add_rows(connection, "policies", ("scope", "name", "value"), rows)
    add_rows(connection, "roots", ("root_id", "name", "uri"), [(id_, name, uri) for id_, (name, uri) in roots.items()])


def set_counts(connection: Connection, transactions: int, decisions: int, now_ms: int) -> None:
    """Note how many transactions have begun and ended."""
    connection.execute(update(log_info).values(transactions=transactions, decisions=decisions, last_ended_at_ms=now_ms))


def add_subscription(
    connection: Connection, topic_id: int, described: Mapping[str, Any], starts: Mapping[int, int], now_ms: int
) -> None:
    """Insert a subscription; on a partition that its description doesn't name, it begins at ``starts``: positions by
    partition id, inclusive."""
    key = connection.execute(
        insert(metadata.tables["subscriptions"]).values(
            topic_id=topic_id,
            name=described["name"],
            type=described["type"],
            isolation_level=described["level"],
            durable=1,
            epoch=described["epoch"],
            created_at_ms=now_ms,
        )
    ).inserted_primary_key
    assert key is not None
    marks = {partition_id: (mark, ranges) for partition_id, mark, ranges in described["marks"]}
    rows = []
    for partition_id, start in starts.items():
        mark, ranges = marks.get(partition_id, (packed(start, 0), []))
        at = position_of(mark).key
        above = MessageRanges(MessageRange(*one) for one in ranges)
        rows.append((key[0], partition_id, at, index_of(mark), above.to_bytes(), at))
    names = ("subscription_id", "partition_id", "mark_position", "mark_index", "ranges", "read_position")
    add_rows(connection, "cursors", names, rows)


def seal_ledgers(connection: Connection, partition_id: int, closed: Mapping[int, int]) -> None:
    """Keep what belongs to closed ledgers as pages; ``closed`` are numbers of entries."""
    seal(connection, partition_id, closed)


def _with_defaults(table: Table, columns: Columns) -> dict[str, Sequence[Any]]:
    count = len(next(iter(columns.values())))
    found = dict(columns)
    for column in table.columns:
        default: Any = column.default
        if column.name not in found and default is not None and default.is_scalar:
            found[column.name] = [default.arg] * count
    return found
