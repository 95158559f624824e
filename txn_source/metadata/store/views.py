"""What may be seen: bounds of many partitions at one moment, positions by time, ledgers and where to cut them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, literal_column, select

from txn_source.metadata.store.pages import PAGE_ROWS, Page, to_table
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.metadata.store.tables import (
    entries,
    is_in,
    ledgers,
    log_info,
    partitions,
    segments,
    transaction_partitions,
    transactions,
)
from txn_source.model.bounds import Bounds
from txn_source.model.kinds import DATA, OPEN
from txn_source.model.position import MAX_ENTRY_ID, Position, PositionRange
from txn_source.model.topic import PartitionView

LEDGER_COLUMNS = (
    "ledger_id",
    "entries",
    "messages",
    "bytes",
    "created_at_ms",
    "closed_at_ms",
    "offloaded_at_ms",
    "hot_deleted_at_ms",
    "purged",
)
"""Of a page of ledgers; a time that has not come is -1."""
_TIMES = ("first_publish_time_us", "last_publish_time_us")
"""Of a page's ledgers as its messages have them, -1 if it has none or their entries are gone. Inside a ledger publish
times never go back. What ledgers themselves say was lowered where a clock was ahead, and their messages' times weren't.
"""


def partition_views(connection: Connection, topic_ids: Sequence[int]) -> dict[int, list[PartitionView]]:
    """Return, by topic, the partitions with their bounds as of this transaction's moment.

    One copy of an entry is enough, so a partition's high watermark is its log end and no ended transaction is
    unreplicated: the ongoing ones alone hold the last stable position back.
    """
    topics = set(topic_ids)
    found = sorted(_PARTITIONS.rows(connection, topics))
    firsts = {row[0]: [Position.from_key(row[1])] for row in _ONGOING.rows(connection, topics)}
    views: dict[int, list[PartitionView]] = defaultdict(list)
    for row in found:
        topic_id, index, partition_id, log_start, trimmed_end, ledger_id, entries_there, *totals = row
        messages_before, messages, messages_trimmed, bytes_before, bytes_there, bytes_trimmed = totals
        bounds = Bounds.of(
            Position.from_key(log_start), Position(ledger_id, entries_there), firsts.get(partition_id, ())
        )
        views[topic_id].append(
            PartitionView(
                partition_id,
                index,
                bounds,
                messages_before + messages - messages_trimmed,
                bytes_before + bytes_there - bytes_trimmed,
                Position.from_key(trimmed_end),
            )
        )
    return views


def partitions_by_id(connection: Connection, partition_ids: Sequence[int]) -> list[PartitionView]:
    """Return partitions with their bounds as of this transaction's moment; those that are gone are left out."""
    query = select(partitions.c.topic_id).where(partitions.c.partition_id.in_(partition_ids)).distinct()
    of_topics = partition_views(connection, list(connection.execute(query).scalars()))
    return [view for views in of_topics.values() for view in views if view.partition_id in partition_ids]


def decisions(connection: Connection) -> int:
    """Return how many transactions have been decided in this log."""
    [(count,)] = _DECISIONS.rows(connection, {})
    return int(count)


def decisions_at(connection: Connection, time_ms: int) -> int:
    """Return how many transactions had ended at a time."""
    query = select(func.max(transactions.c.decision)).where(transactions.c.ended_at_ms <= time_ms)
    return int(connection.execute(query).scalar() or 0)


def find_position(connection: Connection, partition_id: int, publish_time_us: int) -> tuple[Position, bool] | None:
    """Return the position of the first message published at or after a time; publish times never go back.

    True beside it: it is only the start of the message's ledger, whose entries are no longer in the database.
    """
    ledger = connection.execute(
        select(ledgers.c.ledger_id, ledgers.c.purged)
        .where(ledgers.c.partition_id == partition_id, ledgers.c.last_publish_time_us >= publish_time_us)
        .order_by(ledgers.c.ledger_id)
        .limit(1)
    ).first()
    if ledger is None:
        return None
    if ledger.purged:
        return Position(ledger.ledger_id, 0), True
    key = connection.execute(
        select(entries.c.position)
        .where(
            entries.c.partition_id == partition_id,
            entries.c.position >= Position(ledger.ledger_id, 0).key,
            entries.c.kind == DATA,
            entries.c.publish_time_us >= publish_time_us,
        )
        .order_by(entries.c.position)
        .limit(1)
    ).scalar()
    return None if key is None else (Position.from_key(key), False)


def ledger_page(connection: Connection, partition_id: int, of: PositionRange, *, times: bool = False) -> Page:
    """Return the ledgers that the range touches, ascending, the open one last; with ``times``, these too."""
    of_page = {"partition_id": partition_id, "first": of.start.ledger_id, "last": of.end.ledger_id}
    query, columns = (_LEDGERS_WITH_TIMES, (*LEDGER_COLUMNS, *_TIMES)) if times else (_LEDGERS, LEDGER_COLUMNS)
    rows = query.rows(connection, of_page | {"most": PAGE_ROWS + 1})
    table = to_table(rows[:PAGE_ROWS], columns)
    more = len(rows) > PAGE_ROWS
    return Page(table, Position(rows[PAGE_ROWS][0], 0).key if more else None)


def ledger_end(connection: Connection, partition_id: int, ledger_id: int) -> tuple[Position, int]:
    """Return where a closed ledger ends, which is where the next one begins, and how many messages it has."""
    rows = connection.execute(
        select(ledgers.c.ledger_id, ledgers.c.messages)
        .where(ledgers.c.partition_id == partition_id, ledgers.c.ledger_id >= ledger_id)
        .order_by(ledgers.c.ledger_id)
        .limit(2)
    ).all()
    return Position(rows[1].ledger_id, 0), int(rows[0].messages)


@dataclass(frozen=True, slots=True)
class Split:
    """Where to cut a range, and of each piece the bytes and the publish times of its first and last message; of none
    if there are no messages."""

    cuts: Sequence[int] = ()
    sizes: Sequence[int] = (0,)
    first_times_us: Sequence[int] = ()
    last_times_us: Sequence[int] = ()


def split(connection: Connection, partition_id: int, of: PositionRange, target_bytes: int) -> Split:
    """Return where to cut a range into pieces of about so many bytes."""
    inside = (
        entries.c.partition_id == partition_id,
        entries.c.position >= of.start.key,
        entries.c.position < of.end.key,
        entries.c.kind == DATA,
    )
    base = connection.execute(select(func.min(entries.c.bytes_before)).where(*inside)).scalar()
    if base is None:
        return Split()
    piece = (entries.c.bytes_before - base) // target_bytes
    times = func.min(entries.c.publish_time_us), func.max(entries.c.publish_time_us)
    rows = connection.execute(
        select(func.min(entries.c.position), func.sum(entries.c.length), *times)
        .where(*inside)
        .group_by(piece)
        .order_by(piece)
    ).all()
    positions, sizes, firsts, lasts = zip(*rows, strict=True)
    return Split(positions[1:], [int(size) for size in sizes], firsts, lasts)


def segment_page(connection: Connection, after: int) -> list[tuple[int, str]]:
    """Return the registered segments (id, path) after an id, ascending; one more than a page if there are more."""
    query = select(segments.c.segment_id, segments.c.path).where(segments.c.segment_id > after, segments.c.deleted == 0)
    rows = connection.execute(query.order_by(segments.c.segment_id).limit(PAGE_ROWS + 1))
    return [(row.segment_id, row.path) for row in rows]


_OF_LEDGERS = (
    ledgers.c.ledger_id,
    ledgers.c.entries,
    ledgers.c.messages,
    ledgers.c.bytes,
    ledgers.c.created_at_ms,
    *(func.coalesce(ledgers.c[name], -1) for name in ("closed_at_ms", "offloaded_at_ms", "hot_deleted_at_ms")),
    ledgers.c.purged,
)


def _publish_time(*, last: bool) -> ColumnElement[int]:
    """Return the publish time of a ledger's first or last message, -1 if there is none: one look at the entries."""
    start = ledgers.c.ledger_id * literal_column(str(Position(1, 0).key))
    order = entries.c.position.desc() if last else entries.c.position
    time = (
        select(entries.c.publish_time_us)
        .where(
            entries.c.partition_id == ledgers.c.partition_id,
            entries.c.position >= start,
            entries.c.position <= start + literal_column(str(MAX_ENTRY_ID)),
            entries.c.kind == literal_column(str(DATA)),
        )
        .order_by(order)
        .limit(literal_column("1"))
    )
    return func.coalesce(time.scalar_subquery(), literal_column("-1"))


def _ledgers(*columns: Any) -> Prepared:
    """Return what finds ledgers of a partition; compiled once, since a plan asks so for each partition."""
    query = select(*columns).where(
        ledgers.c.partition_id == bindparam("partition_id"),
        ledgers.c.ledger_id.between(bindparam("first"), bindparam("last")),
    )
    return Prepared(query.order_by(ledgers.c.ledger_id).limit(bindparam("most")))


_LEDGERS = _ledgers(*_OF_LEDGERS)
_LEDGERS_WITH_TIMES = _ledgers(*_OF_LEDGERS, _publish_time(last=False), _publish_time(last=True))
_PARTITIONS = Lookup(
    lambda names: (
        select(
            *(
                partitions.c[name]
                for name in ("topic_id", "partition_index", "partition_id", "log_start", "trimmed_end")
            ),
            *(ledgers.c[name] for name in ("ledger_id", "entries", "messages_before", "messages")),
            partitions.c.messages_trimmed,
            ledgers.c.bytes_before,
            ledgers.c.bytes,
            partitions.c.bytes_trimmed,
        )
        .join(ledgers, ledgers.c.ledger_id == partitions.c.open_ledger_id)
        .where(partitions.c.topic_id.in_([bindparam(name) for name in names]))
    )
)
_ONGOING = Lookup(
    lambda names: (
        select(transaction_partitions.c.partition_id, func.min(transaction_partitions.c.first_position))
        .join(partitions, partitions.c.partition_id == transaction_partitions.c.partition_id)
        .where(
            partitions.c.topic_id.in_([bindparam(name) for name in names]), is_in(transaction_partitions.c.state, OPEN)
        )
        .group_by(transaction_partitions.c.partition_id)
    )
)
_DECISIONS = Prepared(select(log_info.c.decisions))
