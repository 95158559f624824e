"""What may be seen: bounds of many partitions at one moment, ledgers, entries, decided transactions.

Big answers are Arrow tables, a page at a time; a page ends where the next one starts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Row, func, select

from txn_source.metadata.tables import (
    ABORTED,
    COMMITTED,
    DATA,
    OPEN,
    entries,
    ledgers,
    log_info,
    partitions,
    producers,
    segments,
    transaction_partitions,
)
from txn_source.model.bounds import Bounds
from txn_source.model.position import Position, PositionRange
from txn_source.model.visibility import NO_TXN

PAGE_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition at the moment of a view."""

    partition_id: int
    index: int
    bounds: Bounds
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a big answer; ``next_start`` is where to go on, None on the last page."""

    table: pa.Table
    next_start: int | None


def partition_views(connection: Connection, topic_ids: Sequence[int]) -> dict[int, list[PartitionView]]:
    """Return, by topic, the partitions with their bounds as of this transaction's moment.

    One copy of an entry is enough, so a partition's high watermark is its log end and no ended transaction is
    unreplicated: the ongoing ones alone hold the last stable position back.
    """
    of_topics = partitions.c.topic_id.in_(list(topic_ids))
    rows = connection.execute(
        select(partitions, ledgers)
        .join(ledgers, ledgers.c.ledger_id == partitions.c.open_ledger_id)
        .where(of_topics)
        .order_by(partitions.c.topic_id, partitions.c.partition_index)
    ).all()
    ongoing = connection.execute(
        select(transaction_partitions.c.partition_id, func.min(transaction_partitions.c.first_position).label("first"))
        .join(partitions, partitions.c.partition_id == transaction_partitions.c.partition_id)
        .where(of_topics, transaction_partitions.c.state == OPEN)
        .group_by(transaction_partitions.c.partition_id)
    ).all()
    firsts = {row.partition_id: [Position.from_key(row.first)] for row in ongoing}
    views: dict[int, list[PartitionView]] = defaultdict(list)
    for row in rows:
        bounds = Bounds.of(
            Position.from_key(row.log_start),
            Position(row.open_ledger_id, row.entries),
            firsts.get(row.partition_id, ()),
        )
        views[row.topic_id].append(
            PartitionView(
                row.partition_id,
                row.partition_index,
                bounds,
                row.messages_before + row.messages - row.messages_trimmed,
                row.bytes_before + row.bytes - row.bytes_trimmed,
            )
        )
    return views


def decisions(connection: Connection) -> int:
    """Return how many transactions have been decided in this log."""
    return int(connection.execute(select(log_info.c.decisions)).scalar_one())


def find_position(connection: Connection, partition_id: int, publish_time_us: int) -> Position | None:
    """Return the position of the first message published at or after a time; publish times never go back."""
    ledger_id = connection.execute(
        select(ledgers.c.ledger_id)
        .where(ledgers.c.partition_id == partition_id, ledgers.c.last_publish_time_us >= publish_time_us)
        .order_by(ledgers.c.ledger_id)
        .limit(1)
    ).scalar()
    if ledger_id is None:
        return None
    key = connection.execute(
        select(entries.c.position)
        .where(
            entries.c.partition_id == partition_id,
            entries.c.position >= Position(ledger_id, 0).key,
            entries.c.kind == DATA,
            entries.c.publish_time_us >= publish_time_us,
        )
        .order_by(entries.c.position)
        .limit(1)
    ).scalar()
    return None if key is None else Position.from_key(key)


def ledger_page(connection: Connection, partition_id: int, of: PositionRange) -> Page:
    """Return the ledgers that the range touches, ascending, the open one last."""
    query = (
        select(
            ledgers.c.ledger_id,
            ledgers.c.entries,
            ledgers.c.messages,
            ledgers.c.bytes,
            ledgers.c.created_at_ms,
            func.coalesce(ledgers.c.closed_at_ms, -1),
        )
        .where(
            ledgers.c.partition_id == partition_id,
            ledgers.c.ledger_id.between(of.start.ledger_id, of.end.ledger_id),
        )
        .order_by(ledgers.c.ledger_id)
        .limit(PAGE_ROWS + 1)
    )
    rows = connection.execute(query).all()
    table = _table(rows[:PAGE_ROWS], "ledger_id", "entries", "messages", "bytes", "created_at_ms", "closed_at_ms")
    more = len(rows) > PAGE_ROWS
    return Page(table, Position(rows[PAGE_ROWS].ledger_id, 0).key if more else None)


def split(
    connection: Connection, partition_id: int, of: PositionRange, target_bytes: int
) -> tuple[list[int], list[int]]:
    """Return where to cut a range into pieces of about so many bytes, and the bytes of each piece."""
    inside = (
        entries.c.partition_id == partition_id,
        entries.c.position >= of.start.key,
        entries.c.position < of.end.key,
        entries.c.kind == DATA,
    )
    base = connection.execute(select(func.min(entries.c.bytes_before)).where(*inside)).scalar()
    if base is None:
        return [], [0]
    piece = (entries.c.bytes_before - base) // target_bytes
    rows = connection.execute(
        select(func.min(entries.c.position), func.sum(entries.c.length)).where(*inside).group_by(piece).order_by(piece)
    ).all()
    return [row[0] for row in rows[1:]], [int(row[1]) for row in rows]


def entry_page(
    connection: Connection, partition_id: int, of: PositionRange
) -> tuple[Page, dict[int, str], dict[int, str]]:
    """Return a page of the data entries of a range, with the segments' paths and producers' names by id."""
    query = (
        select(
            entries.c.position,
            entries.c.messages,
            func.coalesce(entries.c.txn, NO_TXN),
            entries.c.producer_id,
            entries.c.base_sequence,
            entries.c.publish_time_us,
            entries.c.segment_id,
            entries.c.offset,
            entries.c.length,
            entries.c.crc32c,
        )
        .where(
            entries.c.partition_id == partition_id,
            entries.c.position >= of.start.key,
            entries.c.position < of.end.key,
            entries.c.kind == DATA,
        )
        .order_by(entries.c.position)
        .limit(PAGE_ROWS + 1)
    )
    rows = connection.execute(query).all()
    table = _table(
        rows[:PAGE_ROWS],
        "position",
        "messages",
        "txn",
        "producer_id",
        "base_sequence",
        "publish_time_us",
        "segment_id",
        "offset",
        "length",
        "crc32c",
    )
    more = len(rows) > PAGE_ROWS
    page = Page(table, rows[PAGE_ROWS].position if more else None)
    return (
        page,
        _names(connection, segments.c.segment_id, segments.c.path, table["segment_id"]),
        _names(connection, producers.c.producer_id, producers.c.name, table["producer_id"]),
    )


def decision_page(
    connection: Connection, partition_id: int, of: PositionRange, *, aborted_only: bool, up_to: int
) -> Page:
    """Return the decided transactions that a read of a range needs: ``marker >= start and first < end``.

    Pages are by marker: a page's ``next_start`` is the marker to go on from. Decisions after the first ``up_to`` are
    left out.
    """
    t = transaction_partitions
    rows: list[Any] = []
    for state in (ABORTED,) if aborted_only else (ABORTED, COMMITTED):
        query = (
            select(t.c.txn, t.c.first_position, t.c.marker_position, t.c.state)
            .where(
                t.c.partition_id == partition_id,
                t.c.state == state,
                t.c.marker_position >= of.start.key,
                t.c.first_position < of.end.key,
                t.c.decision <= up_to,
            )
            .order_by(t.c.marker_position)
            .limit(PAGE_ROWS + 1)
        )
        rows.extend(connection.execute(query).all())
    if len(rows) > PAGE_ROWS and not aborted_only:
        rows.sort(key=lambda row: row.marker_position)
    table = _table(rows[:PAGE_ROWS], "txn", "first_position", "marker_position", "state")
    more = len(rows) > PAGE_ROWS
    return Page(table, rows[PAGE_ROWS].marker_position if more else None)


def segment_page(connection: Connection, after: int) -> Sequence[Row[Any, Any]]:
    """Return the registered segments (id, path) after an id, ascending; one more than a page if there are more."""
    query = select(segments.c.segment_id, segments.c.path).where(segments.c.segment_id > after)
    return connection.execute(query.order_by(segments.c.segment_id).limit(PAGE_ROWS + 1)).all()


def _names(connection: Connection, key: Any, name: Any, ids: pa.ChunkedArray) -> dict[int, str]:
    wanted = [i for i in ids.unique().to_pylist() if i is not None]
    found: dict[int, str] = {}
    for start in range(0, len(wanted), 1000):
        rows = connection.execute(select(key, name).where(key.in_(wanted[start : start + 1000])))
        found.update((int(row[0]), str(row[1])) for row in rows)
    return found


def _table(rows: Sequence[Any], *names: str) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=list(names))
