"""The backlogs of all subscriptions of the log, found by statements about all of them (``backlogs.py`` does one)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.metadata.store.figures import FIRST_WAITING, PartitionFigures
from txn_source.metadata.store.prepared import Prepared
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import ABORTED, DATA
from txn_source.model.message_ranges import MessageRanges, packed
from txn_source.model.subscription import Cursor

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

_COMMITTED = IsolationLevel.READ_COMMITTED.value


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """What a subscription has not acknowledged of a partition.

    ``backlog`` counts the messages that its level shows. ``next_us`` is when the first entry that isn't wholly
    acknowledged was published, None if there is none in the log.
    """

    partition_id: int
    mark: int
    backlog: int
    next_us: int | None


@dataclass(frozen=True, slots=True)
class SubscriptionFigures:
    """A subscription and its partitions."""

    subscription_id: int
    topic_id: int
    name: str
    type: str
    isolation_level: IsolationLevel
    durable: bool
    epoch: int
    ignored_acknowledgements: int
    consumers: int
    partitions: tuple[PartitionBacklog, ...]

    @property
    def backlog(self) -> int:
        """Messages of its level that it has not acknowledged."""
        return sum(part.backlog for part in self.partitions)

    def waits_since_us(self) -> int | None:
        """Return when the oldest entry of its backlog was published; None if it has none."""
        return min((p.next_us for p in self.partitions if p.backlog and p.next_us is not None), default=None)


def subscription_figures(
    connection: Connection, partitions: Iterable[PartitionFigures], now_ms: int
) -> list[SubscriptionFigures]:
    """Return all subscriptions of the log, in no order; ``partitions`` are those of the same transaction."""
    by_id = {partition.partition_id: partition for partition in partitions}
    hidden: dict[tuple[int, int], int] = defaultdict(int)
    for statement in (_ABORTED_INSIDE, _ABORTED_IN_PART):
        for subscription_id, partition_id, messages in statement.rows(connection, {}):
            hidden[subscription_id, partition_id] += int(messages or 0)
    parts: dict[int, list[PartitionBacklog]] = defaultdict(list)
    rows = _SUBSCRIPTIONS.rows(connection, {})
    committed = {row[0]: row[4] == _COMMITTED for row in rows}
    for row in _CURSORS.rows(connection, {}):
        cursor = _CursorRow(*row)
        view = by_id.get(cursor.partition_id)
        if view is None:
            continue
        of = cursor.subscription_id, cursor.partition_id
        backlog = _backlog(view, cursor, hidden.get(of, 0), committed=committed[cursor.subscription_id])
        parts[of[0]].append(PartitionBacklog(cursor.partition_id, cursor.mark, backlog, cursor.next_us))
    consumers = dict(_CONSUMERS.rows(connection, {"now_ms": now_ms}))
    return [
        SubscriptionFigures(
            row[0],
            row[1],
            row[2],
            row[3],
            IsolationLevel(row[4]),
            bool(row[5]),
            row[6],
            row[7],
            consumers.get(row[0], 0),
            tuple(parts[row[0]]),
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class _CursorRow:
    """A cursor, its mark not below the log's start, with what is known of the entry and the ledger at the mark."""

    subscription_id: int
    partition_id: int
    mark: int
    mark_index: int
    ranges: bytes
    is_behind_start: int
    entry_before: int | None
    entry_messages: int | None
    state: int | None
    ledger_before: int
    ledger_messages: int
    ledger_entries: int
    next_us: int | None


def _backlog(view: PartitionFigures, row: _CursorRow, aborted: int, *, committed: bool) -> int:
    end, messages = (
        (view.last_stable, view.messages_before_stable)
        if committed
        else (view.high_watermark, view.messages_before_high)
    )
    if row.mark >= end:
        return 0
    count = messages - _messages_before(row) - aborted
    if row.mark_index and not row.is_behind_start and not (committed and row.state == ABORTED):
        count -= min(row.mark_index, row.entry_messages or 0)
    if row.ranges:
        mark = packed(row.mark, 0 if row.is_behind_start else row.mark_index)
        cursor = Cursor(mark, MessageRanges.from_bytes(row.ranges))
        cursor.acknowledge_up_to(mark)  # what was trimmed counts no more
        count -= cursor.ranges.messages
    return max(0, count)


def _messages_before(row: _CursorRow) -> int:
    """Return how many messages lie before the mark since the partition was made."""
    if row.entry_before is not None:
        return row.entry_before
    entry = row.mark & 0xFFFF_FFFF
    if entry >= row.ledger_entries:
        return row.ledger_before + row.ledger_messages
    return row.ledger_before + row.ledger_messages * entry // max(row.ledger_entries, 1)


def waiting_subscriptions(
    found: Iterable[SubscriptionFigures], partitions: Mapping[int, PartitionFigures]
) -> dict[int, list[SubscriptionFigures]]:
    """Return, by partition, the read_committed subscriptions for which messages wait there behind open transactions."""
    waiting: dict[int, list[SubscriptionFigures]] = defaultdict(list)
    for each in found:
        for part in each.partitions if each.isolation_level is IsolationLevel.READ_COMMITTED else ():
            view = partitions[part.partition_id]
            if view.held_back_messages and part.mark < view.log_end:
                waiting[part.partition_id].append(each)
    return waiting


_HIGHEST = (1 << 63) - 1
_MARK = "CASE WHEN mark_position < log_start THEN log_start ELSE mark_position END"
_PLACES = f"""
    SELECT subscription_id, cursors.partition_id, mark_index, ranges, {_MARK} AS mark,
        CASE WHEN mark_position < log_start THEN 1 ELSE 0 END AS is_behind_start
    FROM cursors JOIN partitions ON partitions.partition_id = cursors.partition_id"""
_SUBSCRIPTIONS = Prepared(
    """
    SELECT subscription_id, topic_id, name, type, isolation_level, durable, epoch, ignored_acknowledgements
    FROM subscriptions"""
)
_CONSUMERS = Prepared(
    "SELECT subscription_id, COUNT(*) FROM consumers WHERE lease_until_ms > :now_ms GROUP BY subscription_id"
)
_CURSORS = Prepared(
    f"""
    SELECT c.subscription_id, c.partition_id, c.mark, c.mark_index, c.ranges, c.is_behind_start,
        e.messages_before, e.messages, t.state, l.messages_before, l.messages, l.entries,
        (SELECT publish_time_us FROM entries AS n
         WHERE n.partition_id = c.partition_id AND n.position >= c.mark AND n.kind = {DATA}
         ORDER BY n.position LIMIT 1)
    FROM ({_PLACES}) AS c
    JOIN ledgers AS l ON l.ledger_id = c.mark >> 32
    LEFT JOIN entries AS e ON e.partition_id = c.partition_id AND e.position = c.mark
    LEFT JOIN transactions AS t ON t.txn = e.txn AND c.mark_index > 0"""
)


def _aborted(what: str, condition: str, more: str = "") -> Prepared:
    """Return what counts the messages of aborted transactions between the marks and what is decided."""
    return Prepared(
        f"""
        SELECT c.subscription_id, c.partition_id, SUM({what})
        FROM ({_PLACES}) AS c
        JOIN subscriptions AS s ON s.subscription_id = c.subscription_id AND s.isolation_level = '{_COMMITTED}'
        LEFT JOIN ({FIRST_WAITING}) AS f ON f.partition_id = c.partition_id
        JOIN transaction_partitions AS t ON t.partition_id = c.partition_id AND t.state = {ABORTED}
            AND t.marker_position >= c.mark AND t.first_position < COALESCE(f.first_position, {_HIGHEST})
        {more}
        WHERE {condition}
        GROUP BY c.subscription_id, c.partition_id"""
    )


_INSIDE = f"(t.first_position >= c.mark AND t.last_position < COALESCE(f.first_position, {_HIGHEST}))"
_ABORTED_INSIDE = _aborted("t.messages", _INSIDE)
_ABORTED_IN_PART = _aborted(
    "e.messages",
    f"NOT {_INSIDE}",
    f"""JOIN entries AS e ON e.partition_id = t.partition_id AND e.txn = t.txn AND e.kind = {DATA}
            AND e.position >= c.mark AND e.position >= t.first_position AND e.position <= t.last_position
            AND e.position < COALESCE(f.first_position, {_HIGHEST})""",
)
