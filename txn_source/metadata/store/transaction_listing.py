"""Which transactions there are, and what each left on partitions, for those who look after a log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, or_, select

from txn_source.metadata.store import transactions as store
from txn_source.metadata.store.prepared import Lookup
from txn_source.metadata.store.tables import (
    partitions,
    short_entries,
    transaction_partitions,
    transactions,
)
from txn_source.model.kinds import OPEN, STATES
from txn_source.model.transaction import EndReason, TransactionState

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Listing:
    """Which transactions: of a state (None: any), that wrote to a topic (None: any), behind one in the order.

    ``unreplicated``: with the open ones also those that have ended at or above a high watermark: they hold readers back
    as these do.
    """

    state: TransactionState | None
    topic_id: int | None
    oldest_first: bool = False
    after: int | None = None
    unreplicated: bool = False


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """What a transaction left on one partition, positions as ``Position.key``; the marker is unset while it is open.

    ``held_back`` is what lies at or above its first entry and below the high watermark, as long as it is open or
    unreplicated: messages and bytes.
    """

    topic: str
    partition: int
    first_position: int
    marker_position: int | None
    messages: int
    bytes: int
    held_back_messages: int
    held_back_bytes: int


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transaction, the producers that wrote under it, by name, and where they did."""

    txn: int
    state: TransactionState
    created_at_ms: int
    timeout_ms: int
    ended_at_ms: int | None
    end_reason: EndReason | None
    producers: Sequence[str]
    partitions: Sequence[WrittenPartition]


def get(connection: Connection, txn: int) -> ListedTransaction:
    """Return one transaction, or raise TXN_NOT_FOUND."""
    [found] = _described(connection, [store.find(connection, txn)])
    return found


def listing(connection: Connection, wanted: Listing, limit: int) -> tuple[list[ListedTransaction], int]:
    """Return so many transactions at most, in the order in which they began or the newest first, and how many more
    there are behind them."""
    txn = transactions.c.txn
    query = select(transactions)
    if wanted.state is not None:
        state = transactions.c.state == STATES.index(wanted.state)
        also = wanted.unreplicated and connection.execute(select(short_entries).limit(1)).first() is not None
        query = query.where(or_(state, txn.in_(_unreplicated())) if also else state)
    if wanted.topic_id is not None:
        query = query.where(txn.in_(_on_topic(wanted.topic_id)))
    if wanted.after is not None:
        query = query.where(txn > wanted.after if wanted.oldest_first else txn < wanted.after)
    rows = list(connection.execute(query.order_by(txn if wanted.oldest_first else txn.desc()).limit(limit)).all())
    found = _described(connection, rows)
    if len(rows) < limit:
        return found, 0
    last = rows[-1].txn
    behind = query.where(txn > last if wanted.oldest_first else txn < last).subquery()
    return found, int(connection.execute(select(func.count()).select_from(behind)).scalar_one())


def all_open(connection: Connection, topic_id: int | None) -> list[ListedTransaction]:
    """Return all open transactions in the order in which they began, or those that wrote to a topic."""
    found: list[ListedTransaction] = []
    more = 1
    while more:
        after = found[-1].txn if found else None
        wanted = Listing(TransactionState.OPEN, topic_id, oldest_first=True, after=after)
        some, more = listing(connection, wanted, _AT_ONCE)
        found += some
    return found


def ended(
    connection: Connection, topic_id: int | None, start: int, decisions: int, limit: int
) -> list[ListedTransaction]:
    """Return so many ended transactions at most, in the order in which they began.

    Args:
        connection: a database transaction.
        topic_id: only those that wrote to it.
        start: the first one that may come.
        decisions: only those that are among the log's first so many decisions.
        limit: how many.
    """
    t = transactions.c
    query = select(transactions).where(t.txn >= start, t.decision <= decisions)
    if topic_id is not None:
        query = query.where(t.txn.in_(_on_topic(topic_id)))
    return _described(connection, list(connection.execute(query.order_by(t.txn).limit(limit)).all()))


def _unreplicated() -> Select[tuple[int]]:
    t = transaction_partitions.c
    return select(t.txn).where(t.marker_position >= _high_watermark())


def _high_watermark() -> ColumnElement[Any]:
    """Return a trace's partition's first entry with too few copies; null: there is none."""
    mine = short_entries.c.partition_id == transaction_partitions.c.partition_id
    return select(func.min(short_entries.c.position)).where(mine).correlate(transaction_partitions).scalar_subquery()


def _on_topic(topic_id: int) -> Select[tuple[int]]:
    return (
        select(transaction_partitions.c.txn)
        .join(partitions, partitions.c.partition_id == transaction_partitions.c.partition_id)
        .where(partitions.c.topic_id == topic_id)
    )


def _described(connection: Connection, rows: Sequence[Row[Any]]) -> list[ListedTransaction]:
    txns = [row.txn for row in rows]
    names, written = _producer_names(connection, txns), _written(connection, txns)
    return [
        ListedTransaction(
            row.txn,
            STATES[row.state],
            row.created_at_ms,
            row.timeout_ms,
            row.ended_at_ms,
            None if row.end_reason is None else EndReason(row.end_reason),
            names[row.txn],
            written[row.txn],
        )
        for row in rows
    ]


def _producer_names(connection: Connection, txns: Sequence[int]) -> dict[int, list[str]]:
    names: dict[int, list[str]] = defaultdict(list)
    for txn, name in _NAMES.rows(connection, txns):
        names[txn].append(name)
    return names


def _written(connection: Connection, txns: Sequence[int]) -> dict[int, list[WrittenPartition]]:
    written: dict[int, list[WrittenPartition]] = defaultdict(list)
    for txn, ongoing, *left in _WRITTEN.rows(connection, txns):
        *what, held_back_messages, held_back_bytes = left
        held_back = (max(0, held_back_messages), max(0, held_back_bytes)) if ongoing else (0, 0)
        written[txn].append(WrittenPartition(*what, *held_back))
    return written


_NAMES = Lookup("""
    SELECT txn, name
    FROM transaction_producers JOIN producers ON producers.producer_id = transaction_producers.producer_id
    WHERE txn IN (:values)""")
_HIGH_WATERMARK = """
    (SELECT MIN(position) FROM short_entries WHERE short_entries.partition_id = transaction_partitions.partition_id)"""
_WRITTEN = Lookup(f"""
    SELECT transaction_partitions.txn,
        transaction_partitions.state = {OPEN} OR COALESCE(marker_position >= {_HIGH_WATERMARK}, FALSE),
        topics.name, partition_index, first_position, marker_position,
        transaction_partitions.messages, transaction_partitions.bytes,
        COALESCE(first_short.messages_before, ledgers.messages_before + ledgers.messages)
            - COALESCE(first_entry.messages_before, messages_trimmed), -- it may be trimmed
        COALESCE(first_short.bytes_before, ledgers.bytes_before + ledgers.bytes)
            - COALESCE(first_entry.bytes_before, bytes_trimmed)
    FROM transaction_partitions
        JOIN partitions ON partitions.partition_id = transaction_partitions.partition_id
        JOIN topics ON topics.topic_id = partitions.topic_id
        JOIN ledgers ON ledgers.ledger_id = partitions.open_ledger_id
        LEFT JOIN entries AS first_entry ON first_entry.partition_id = transaction_partitions.partition_id
            AND first_entry.position = transaction_partitions.first_position
        LEFT JOIN entries AS first_short ON first_short.partition_id = transaction_partitions.partition_id
            AND first_short.position = {_HIGH_WATERMARK}
    WHERE transaction_partitions.txn IN (:values)
    ORDER BY transaction_partitions.txn, topics.name, partition_index""")
