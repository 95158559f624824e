"""What may be seen: bounds of many partitions at one moment, positions by time, ledgers and where to cut them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txn_source.metadata.store.pages import PAGE_ROWS, Page, to_table
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.model.bounds import Bounds
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.kinds import DATA, OPEN
from txn_source.model.position import MAX_ENTRY_ID, Position, PositionRange
from txn_source.model.topic import PartitionView

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

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

    The high watermark is the first entry with too few copies, or the log's end. What holds the last stable position
    back are the ongoing transactions, and where there is such an entry the unreplicated ones: those that ended at or
    above it.
    """
    topics = set(topic_ids)
    found = sorted(_PARTITIONS.rows(connection, topics))
    firsts = {row[0]: [Position.from_key(row[1])] for row in _ONGOING.rows(connection, topics)}
    short = [row[2] for row in found if row[-1] is not None]
    for partition_id, first in _UNREPLICATED.rows(connection, short):
        firsts.setdefault(partition_id, []).append(Position.from_key(first))
    views: dict[int, list[PartitionView]] = defaultdict(list)
    for row in found:
        topic_id, index, partition_id, log_start, trimmed_end, ledger_id, entries_there, *totals, high = row
        messages_before, messages, messages_trimmed, bytes_before, bytes_there, bytes_trimmed = totals
        bounds = Bounds.of(
            Position.from_key(log_start),
            Position(ledger_id, entries_there),
            firsts.get(partition_id, ()),
            None if high is None else Position.from_key(high),
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
    topic_ids = {topic_id for (topic_id,) in _TOPICS.rows(connection, partition_ids)}
    of_topics = partition_views(connection, sorted(topic_ids))
    return [view for views in of_topics.values() for view in views if view.partition_id in partition_ids]


def decisions(connection: Connection) -> int:
    """Return how many transactions have been decided in this log."""
    [(count,)] = _DECISIONS.rows(connection, {})
    return int(count)


def decisions_at(connection: Connection, time_ms: int) -> int:
    """Return how many transactions had ended at a time."""
    [(count,)] = _DECISIONS_AT.rows(connection, {"time_ms": time_ms})
    return int(count or 0)


def check_there(connection: Connection, partition_ids: Sequence[int]) -> None:
    """Raise TOPIC_NOT_FOUND if a partition was deleted since the plan began."""
    if len(list(_TOPICS.rows(connection, partition_ids))) < len(set(partition_ids)):
        raise gone("A partition")


def gone(what: str) -> TopicNotFoundError:
    """Return the error of a read whose topic was deleted while it was planned."""
    return TopicNotFoundError(
        f"{what} is gone: its topic was deleted while the read was planned.",
        "Plan the read again with a new load() or scan().",
    )


def find_position(connection: Connection, partition_id: int, publish_time_us: int) -> tuple[Position, bool] | None:
    """Return the position of the first message published at or after a time; publish times never go back.

    True beside it: it is only the start of the message's ledger, whose entries are no longer in the database.
    """
    of = {"partition_id": partition_id, "time_us": publish_time_us}
    for ledger_id, purged in _LEDGER_AT.rows(connection, of):
        start = Position(ledger_id, 0)
        if purged:
            return start, True
        for (key,) in _ENTRY_AT.rows(connection, of | {"start": start.key}):
            return Position.from_key(key), False
    return None


def ledger_page(connection: Connection, partition_id: int, of: PositionRange, *, times: bool = False) -> Page:
    """Return the ledgers that the range touches, ascending, the open one last; with ``times``, these too."""
    rows = _ledger_rows(connection, partition_id, of, PAGE_ROWS + 1, times=times)
    more = len(rows) > PAGE_ROWS
    return Page(_ledger_table(rows[:PAGE_ROWS], times=times), Position(rows[PAGE_ROWS][0], 0).key if more else None)


def ledgers_of_ranges(
    connection: Connection, ranges: Sequence[tuple[int, PositionRange]], *, times: bool = False
) -> tuple[pa.Table, list[int]]:
    """Return the ledgers that the first of some ranges touch, one after another, and of each how many.

    They are as many as fit on a page; none if the first one doesn't.
    """
    rows: list[tuple[Any, ...]] = []
    counts: list[int] = []
    for partition_id, of in ranges:
        left = PAGE_ROWS - len(rows)
        found = _ledger_rows(connection, partition_id, of, left + 1, times=times)
        if len(found) > left:
            break
        rows += found
        counts.append(len(found))
    return _ledger_table(rows, times=times), counts


def _ledger_rows(
    connection: Connection, partition_id: int, of: PositionRange, most: int, *, times: bool
) -> Sequence[tuple[Any, ...]]:
    given = {"partition_id": partition_id, "first": of.start.ledger_id, "last": of.end.ledger_id, "most": most}
    return (_LEDGERS_WITH_TIMES if times else _LEDGERS).rows(connection, given)


def _ledger_table(rows: Sequence[tuple[Any, ...]], *, times: bool) -> pa.Table:
    return to_table(rows, (*LEDGER_COLUMNS, *_TIMES) if times else LEDGER_COLUMNS)


def ledger_end(connection: Connection, partition_id: int, ledger_id: int) -> tuple[Position, int]:
    """Return where a closed ledger ends, which is where the next one begins, and how many messages it has."""
    rows = _LEDGER_END.rows(connection, {"partition_id": partition_id, "ledger_id": ledger_id})
    return Position(rows[1][0], 0), int(rows[0][1])


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
    inside = {"partition_id": partition_id, "start": of.start.key, "end": of.end.key}
    [(base,)] = _FIRST_BYTE.rows(connection, inside)
    if base is None:
        return Split()
    rows = _PIECES.rows(connection, inside | {"base": base, "target": target_bytes})
    positions, sizes, firsts, lasts = zip(*rows, strict=True)
    return Split(positions[1:], [int(size) for size in sizes], firsts, lasts)


def segment_page(connection: Connection, after: int) -> list[tuple[int, str]]:
    """Return the registered segments (id, path) after an id, ascending; one more than a page if there are more."""
    rows = _SEGMENTS.rows(connection, {"after": after, "most": PAGE_ROWS + 1})
    return [(segment_id, path) for segment_id, path in rows]


def _publish_time(order: str) -> str:
    """Return what finds the publish time of a ledger's first or last message, -1 if there is none: one look."""
    start = f"ledgers.ledger_id * {Position(1, 0).key}"
    return f"""COALESCE((
        SELECT publish_time_us FROM entries
        WHERE entries.partition_id = ledgers.partition_id AND entries.position >= {start}
        AND entries.position <= {start} + {MAX_ENTRY_ID} AND entries.kind = {DATA}
        ORDER BY entries.position {order} LIMIT 1
    ), -1)"""


def _ledgers(*more: str) -> Prepared:
    """Return what finds ledgers of a partition."""
    times = ("closed_at_ms", "offloaded_at_ms", "hot_deleted_at_ms")
    of_each = [f"COALESCE({name}, -1)" if name in times else name for name in LEDGER_COLUMNS]
    return Prepared(
        f"""
        SELECT {", ".join((*of_each, *more))} FROM ledgers
        WHERE partition_id = :partition_id AND ledger_id BETWEEN :first AND :last
        ORDER BY ledger_id LIMIT :most"""
    )


_LEDGERS = _ledgers()
_LEDGERS_WITH_TIMES = _ledgers(_publish_time("ASC"), _publish_time("DESC"))
_PARTITIONS = Lookup(
    """
    SELECT topic_id, partition_index, partitions.partition_id, log_start, trimmed_end, ledger_id, entries,
        messages_before, messages, messages_trimmed, bytes_before, bytes, bytes_trimmed,
        (SELECT MIN(position) FROM short_entries WHERE short_entries.partition_id = partitions.partition_id)
    FROM partitions JOIN ledgers ON ledger_id = open_ledger_id WHERE topic_id IN (:values)"""
)
_ONGOING = Lookup(
    f"""
    SELECT t.partition_id, MIN(t.first_position)
    FROM transaction_partitions AS t JOIN partitions ON partitions.partition_id = t.partition_id
    WHERE partitions.topic_id IN (:values) AND t.state = {OPEN} GROUP BY t.partition_id"""
)
_UNREPLICATED = Lookup(
    """
    SELECT t.partition_id, MIN(t.first_position) FROM transaction_partitions AS t
    WHERE t.partition_id IN (:values) AND t.marker_position >= (
        SELECT MIN(position) FROM short_entries WHERE short_entries.partition_id = t.partition_id
    ) GROUP BY t.partition_id"""
)
_TOPICS = Lookup("SELECT topic_id FROM partitions WHERE partition_id IN (:values)")
_DECISIONS = Prepared("SELECT decisions FROM log_info")
_DECISIONS_AT = Prepared("SELECT MAX(decision) FROM transactions WHERE ended_at_ms <= :time_ms")
_LEDGER_AT = Prepared(
    """
    SELECT ledger_id, purged FROM ledgers WHERE partition_id = :partition_id AND last_publish_time_us >= :time_us
    ORDER BY ledger_id LIMIT 1"""
)
_ENTRY_AT = Prepared(
    f"""
    SELECT position FROM entries
    WHERE partition_id = :partition_id AND position >= :start AND kind = {DATA} AND publish_time_us >= :time_us
    ORDER BY position LIMIT 1"""
)
_LEDGER_END = Prepared(
    """
    SELECT ledger_id, messages FROM ledgers WHERE partition_id = :partition_id AND ledger_id >= :ledger_id
    ORDER BY ledger_id LIMIT 2"""
)
_INSIDE = f"partition_id = :partition_id AND position >= :start AND position < :end AND kind = {DATA}"
_FIRST_BYTE = Prepared(f"SELECT MIN(bytes_before) FROM entries WHERE {_INSIDE}")
_PIECES = Prepared(
    f"""
    SELECT MIN(position), SUM(length), MIN(publish_time_us), MAX(publish_time_us)
    FROM entries WHERE {_INSIDE}
    GROUP BY (bytes_before - :base) / :target ORDER BY MIN(position)"""
)
_SEGMENTS = Prepared(
    "SELECT segment_id, path FROM segments WHERE segment_id > :after AND deleted = 0 ORDER BY segment_id LIMIT :most"
)
