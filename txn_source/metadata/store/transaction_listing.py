"""Which transactions there are, and what each left on partitions, for those who look after a log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select

from txn_source.metadata.store import transactions as store
from txn_source.metadata.store.tables import (
    entries,
    ledgers,
    partitions,
    producers,
    short_entries,
    topics,
    transaction_partitions,
    transaction_producers,
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
    query = (
        select(transaction_producers.c.txn, producers.c.name)
        .join(producers, producers.c.producer_id == transaction_producers.c.producer_id)
        .where(transaction_producers.c.txn.in_(txns))
    )
    names: dict[int, list[str]] = defaultdict(list)
    for row in connection.execute(query):
        names[row.txn].append(row.name)
    return names


def _written(connection: Connection, txns: Sequence[int]) -> dict[int, list[WrittenPartition]]:
    first, high = entries.alias("first_entry"), entries.alias("first_short")
    messages_begin = func.coalesce(first.c.messages_before, partitions.c.messages_trimmed)  # it may be trimmed
    bytes_begin = func.coalesce(first.c.bytes_before, partitions.c.bytes_trimmed)
    messages_end = func.coalesce(high.c.messages_before, ledgers.c.messages_before + ledgers.c.messages)
    bytes_end = func.coalesce(high.c.bytes_before, ledgers.c.bytes_before + ledgers.c.bytes)
    query = (
        select(
            transaction_partitions,
            _high_watermark().label("high_watermark"),
            topics.c.name.label("topic"),
            partitions.c.partition_index,
            (messages_end - messages_begin).label("held_back_messages"),
            (bytes_end - bytes_begin).label("held_back_bytes"),
        )
        .join(partitions, partitions.c.partition_id == transaction_partitions.c.partition_id)
        .join(topics, topics.c.topic_id == partitions.c.topic_id)
        .join(ledgers, ledgers.c.ledger_id == partitions.c.open_ledger_id)
        .outerjoin(
            first,
            and_(
                first.c.partition_id == transaction_partitions.c.partition_id,
                first.c.position == transaction_partitions.c.first_position,
            ),
        )
        .outerjoin(
            high,
            and_(
                high.c.partition_id == transaction_partitions.c.partition_id,
                high.c.position == _high_watermark(),
            ),
        )
        .where(transaction_partitions.c.txn.in_(txns))
        .order_by(transaction_partitions.c.txn, topics.c.name, partitions.c.partition_index)
    )
    written: dict[int, list[WrittenPartition]] = defaultdict(list)
    for row in connection.execute(query):
        watermark = row.high_watermark
        ongoing = row.state == OPEN or (watermark is not None and row.marker_position >= watermark)
        written[row.txn].append(
            WrittenPartition(
                row.topic,
                row.partition_index,
                row.first_position,
                row.marker_position,
                row.messages,
                row.bytes,
                max(0, row.held_back_messages) if ongoing else 0,
                max(0, row.held_back_bytes) if ongoing else 0,
            )
        )
    return written
