"""Trimming: whole ledgers go from the start of a partition, with all that belongs to them."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from txn_source.metadata.store import owners
from txn_source.metadata.store.conflicts import expect
from txn_source.metadata.store.copy_changes import closed_ledgers, doom_segments, doom_tiered_before, drop_entries
from txn_source.metadata.store.prepared import Prepared
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
from txn_source.model.retention import TrimLimits, Trimmed, trimmed_by
from txn_source.model.topic import PartitionView

_KEEP_ENDS_MS = 24 * 3600 * 1000
"""How long the end of a transaction is known, and for longer while it has a trace."""
_LOOKED_AT = 20_000
_PORTION = 1000


def trim(connection: Connection, view: PartitionView, limits: TrimLimits, now_ms: int) -> Trimmed:
    """Trim one partition: closed ledgers below its last stable position, from the start, as long as a limit says so.

    A ledger with messages that a durable subscription has not acknowledged stays. The aborted set goes with the ledgers
    of its markers.
    """
    gone, held_by = trimmed_by(
        limits,
        closed_ledgers(connection, view.partition_id),
        view.bounds.last_stable,
        view.bytes,
        lambda end: keeper(connection, view, end),
    )
    if not gone:
        return Trimmed(view.index, 0, 0, 0, view.bounds.log_start, held_by)
    first_kept = connection.execute(
        select(ledgers.c.ledger_id)
        .where(ledgers.c.partition_id == view.partition_id, ledgers.c.ledger_id > gone[-1].ledger_id)
        .order_by(ledgers.c.ledger_id)
        .limit(1)
    ).scalar_one()
    log_start = Position(first_kept, 0)
    messages, size = sum(x.messages for x in gone), sum(x.bytes for x in gone)
    _remove(connection, view.partition_id, gone[0].ledger_id, log_start, now_ms)
    done = connection.execute(
        update(partitions)
        .where(partitions.c.partition_id == view.partition_id, partitions.c.log_start == view.bounds.log_start.key)
        .values(
            log_start=log_start.key,
            trimmed_end=gone[-1].end.key,
            messages_trimmed=partitions.c.messages_trimmed + messages,
            bytes_trimmed=partitions.c.bytes_trimmed + size,
        )
    )
    expect(done.rowcount)
    return Trimmed(view.index, len(gone), messages, size, log_start, held_by)


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
    _forget_transactions(connection, txns, now_ms)
    connection.execute(
        delete(ledgers).where(ledgers.c.partition_id == partition_id, ledgers.c.ledger_id < log_start.ledger_id)
    )
    doom_segments(connection, partition_id, first_ledger_id, log_start.ledger_id - 1, now_ms)


def forget_ended(connection: Connection, from_ms: int, now_ms: int) -> int:
    """Forget transactions that ended from a time on, and a day ago, and have no trace: they wrote nothing, or it was
    trimmed within the day, or its topics are gone. At most so many are looked at; return the time to go on from."""
    some = _ENDED.rows(connection, {"from_ms": from_ms, "before_ms": now_ms - _KEEP_ENDS_MS})
    _forget_transactions(connection, [txn for txn, _ in some], now_ms)
    return int(some[-1][1]) if len(some) == _LOOKED_AT else 0


def _forget_transactions(connection: Connection, txns: list[int], now_ms: int) -> None:
    """Forget those of some transactions that have ended a day ago and have no trace."""
    for start in range(0, len(txns), _PORTION):
        some = transactions.c.txn.in_(txns[start : start + _PORTION])
        traced = select(transaction_partitions.c.txn).where(transaction_partitions.c.txn == transactions.c.txn)
        is_old = (transactions.c.state != OPEN, transactions.c.ended_at_ms < now_ms - _KEEP_ENDS_MS)
        gone = list(connection.execute(select(transactions.c.txn).where(some, *is_old, ~traced.exists())).scalars())
        if gone:
            connection.execute(delete(transaction_producers).where(transaction_producers.c.txn.in_(gone)))
            owners.forget_transactions(connection, gone)
            connection.execute(delete(transactions).where(transactions.c.txn.in_(gone)))


_ENDED = Prepared(f"""
    SELECT txn, ended_at_ms FROM transactions
    WHERE ended_at_ms >= :from_ms AND ended_at_ms < :before_ms ORDER BY ended_at_ms LIMIT {_LOOKED_AT}""")
