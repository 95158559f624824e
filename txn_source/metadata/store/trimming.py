"""Trimming: whole ledgers go from the start of a partition, with all that belongs to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, select, update

from txn_source.metadata.store.conflicts import expect
from txn_source.metadata.store.copies import doom_segments, doom_tiered_before, drop_entries
from txn_source.metadata.store.subscriptions import keeper
from txn_source.metadata.store.tables import (
    decision_pages,
    ledgers,
    partitions,
    transaction_partitions,
    transaction_producers,
    transactions,
)
from txn_source.model.kinds import OPEN
from txn_source.model.position import Position
from txn_source.model.retention import Trimmed
from txn_source.model.topic import PartitionView

_KEEP_ENDS_MS = 24 * 3600 * 1000
"""How long the end of a transaction is known after its last trace was trimmed."""


@dataclass(frozen=True, slots=True)
class TrimLimits:
    """What is to go: ledgers wholly below ``before``, those closed before ``closed_before_ms``, and the oldest ones of
    what is more than ``keep_bytes``. None: not for that reason."""

    before: Position | None = None
    closed_before_ms: int | None = None
    keep_bytes: int | None = None


def trim(connection: Connection, view: PartitionView, limits: TrimLimits, now_ms: int) -> Trimmed:
    """Trim one partition: closed ledgers below its last stable position, from the start, as long as a limit says so.

    A ledger with messages that a durable subscription has not acknowledged stays. The aborted set goes with the ledgers
    of its markers.
    """
    rows = connection.execute(
        select(ledgers)
        .where(
            ledgers.c.partition_id == view.partition_id,
            ledgers.c.closed_at_ms.is_not(None),
            ledgers.c.ledger_id < view.bounds.last_stable.ledger_id,
        )
        .order_by(ledgers.c.ledger_id)
    ).all()
    kept_bytes, count, held_by = view.bytes, 0, None
    for row in rows:
        if not _goes(row, limits, kept_bytes):
            break
        held_by = keeper(connection, view, Position(row.ledger_id, row.entries))
        if held_by is not None:
            break
        kept_bytes -= row.bytes
        count += 1
    gone = rows[:count]
    if not gone:
        return Trimmed(view.index, 0, 0, 0, view.bounds.log_start, held_by)
    first_kept = connection.execute(
        select(ledgers.c.ledger_id)
        .where(ledgers.c.partition_id == view.partition_id, ledgers.c.ledger_id > gone[-1].ledger_id)
        .order_by(ledgers.c.ledger_id)
        .limit(1)
    ).scalar_one()
    log_start = Position(first_kept, 0)
    messages, size = sum(row.messages for row in gone), sum(row.bytes for row in gone)
    _remove(connection, view.partition_id, gone[0].ledger_id, log_start, now_ms)
    done = connection.execute(
        update(partitions)
        .where(partitions.c.partition_id == view.partition_id, partitions.c.log_start == view.bounds.log_start.key)
        .values(
            log_start=log_start.key,
            trimmed_end=Position(gone[-1].ledger_id, gone[-1].entries).key,
            messages_trimmed=partitions.c.messages_trimmed + messages,
            bytes_trimmed=partitions.c.bytes_trimmed + size,
        )
    )
    expect(done.rowcount)
    return Trimmed(view.index, count, messages, size, log_start, held_by)


def _goes(row: Any, limits: TrimLimits, kept_bytes: int) -> bool:
    return (
        (limits.before is not None and Position(row.ledger_id, row.entries) <= limits.before)
        or (limits.closed_before_ms is not None and row.closed_at_ms < limits.closed_before_ms)
        or (limits.keep_bytes is not None and kept_bytes > limits.keep_bytes)
    )


def _remove(connection: Connection, partition_id: int, first_ledger_id: int, log_start: Position, now_ms: int) -> None:
    below = log_start.key - 1
    drop_entries(connection, partition_id, Position(first_ledger_id, 0).key, below)
    doom_tiered_before(connection, partition_id, log_start.ledger_id, now_ms)
    connection.execute(
        delete(decision_pages).where(
            decision_pages.c.partition_id == partition_id, decision_pages.c.last_marker <= below
        )
    )
    traces = (
        transaction_partitions.c.partition_id == partition_id,
        transaction_partitions.c.state != OPEN,
        transaction_partitions.c.marker_position <= below,
    )
    txns = list(connection.execute(select(transaction_partitions.c.txn).where(*traces)).scalars())
    connection.execute(delete(transaction_partitions).where(*traces))
    for start in range(0, len(txns), 1000):
        _forget_transactions(connection, txns[start : start + 1000], now_ms)
    connection.execute(
        delete(ledgers).where(ledgers.c.partition_id == partition_id, ledgers.c.ledger_id < log_start.ledger_id)
    )
    doom_segments(connection, partition_id, first_ledger_id, log_start.ledger_id - 1, now_ms)


def _forget_transactions(connection: Connection, txns: list[int], now_ms: int) -> None:
    traced = select(transaction_partitions.c.txn).where(transaction_partitions.c.txn.in_(txns))
    old = select(transactions.c.txn).where(
        transactions.c.txn.in_(txns),
        transactions.c.state != OPEN,
        transactions.c.ended_at_ms < now_ms - _KEEP_ENDS_MS,
        transactions.c.txn.not_in(traced),
    )
    gone = list(connection.execute(old).scalars())
    connection.execute(delete(transaction_producers).where(transaction_producers.c.txn.in_(gone)))
    connection.execute(delete(transactions).where(transactions.c.txn.in_(gone)))
