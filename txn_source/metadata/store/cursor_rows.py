"""Cursors as they are stored: of each subscription a row for each partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from txn_source.metadata.store.conflicts import expect
from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.tables import cursors
from txn_source.model.message_ranges import MessageRanges, index_of, message_key, position_of
from txn_source.model.position import Position
from txn_source.model.subscription import Cursor


class CursorRow(NamedTuple):
    """A subscription's cursor on a partition, as it is stored."""

    partition_id: int
    mark_position: int
    mark_index: int
    ranges: bytes
    read_position: int


def rows_of(connection: Connection, subscription_id: int) -> list[CursorRow]:
    """Return a subscription's, by partition id."""
    return [CursorRow(*row) for row in _CURSORS.rows(connection, {"subscription_id": subscription_id})]


def cursor_in(row: CursorRow | Row[Any]) -> Cursor:
    """Return what is acknowledged of the partition."""
    return Cursor(
        message_key(Position.from_key(row.mark_position), row.mark_index), MessageRanges.from_bytes(row.ranges)
    )


def store(
    connection: Connection, subscription_id: int, partition_id: int, cursor: Cursor, was: CursorRow | None = None
) -> None:
    """Write down what a subscription has acknowledged of a partition.

    Raises:
        ConflictError: it isn't any more what it was as read.
    """
    row = {"of_subscription": subscription_id, "of_partition": partition_id, "ranges": cursor.ranges.to_bytes()}
    row |= {"mark_position": position_of(cursor.mark).key, "mark_index": index_of(cursor.mark)}
    if was is None:
        _STORE.run(connection, row)
        return
    row |= {"was_position": was.mark_position, "was_index": was.mark_index, "were": was.ranges}
    expect(_STORE_UNLESS_CHANGED.run(connection, row))


def insert_all(connection: Connection, subscription_id: int, at: Mapping[int, int]) -> None:
    """Insert a subscription's, which stands at places (``message_key``), by partition id."""
    rows = [
        {
            "subscription_id": subscription_id,
            "partition_id": partition_id,
            "mark_position": position_of(key).key,
            "mark_index": index_of(key),
            "ranges": b"",
            "read_position": position_of(key).key,
        }
        for partition_id, key in at.items()
    ]
    connection.execute(insert(cursors), rows)


_CURSORS = Prepared(
    select(*(cursors.c[name] for name in CursorRow._fields))
    .where(cursors.c.subscription_id == bindparam("subscription_id"))
    .order_by(cursors.c.partition_id)
)
_UPDATE = (
    update(cursors)
    .where(
        cursors.c.subscription_id == bindparam("of_subscription"), cursors.c.partition_id == bindparam("of_partition")
    )
    .values({name: bindparam(name) for name in ("mark_position", "mark_index", "ranges")})
)
_STORE = Prepared(_UPDATE)
_STORE_UNLESS_CHANGED = Prepared(
    _UPDATE.where(
        cursors.c.mark_position == bindparam("was_position"),
        cursors.c.mark_index == bindparam("was_index"),
        cursors.c.ranges == bindparam("were"),
    )
)
