"""How many messages a reader of a level still has before it."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.tables import entries, is_in, transaction_partitions, transactions
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import ABORTED, DATA
from txn_source.model.message_ranges import index_of, message_key, position_of
from txn_source.model.position import Position
from txn_source.model.subscription import Cursor
from txn_source.model.topic import PartitionView
from txn_source.model.visibility import needed


def backlog(connection: Connection, view: PartitionView, level: IsolationLevel, cursor: Cursor) -> int:
    """Return how many messages of a partition a subscription's level shows that are not acknowledged."""
    cursor.acknowledge_up_to(message_key(view.bounds.log_start))  # what was trimmed counts no more
    count = visible_messages(connection, view, level, cursor.mark)
    return max(0, count - cursor.ranges.messages)


def visible_messages(
    connection: Connection, view: PartitionView, level: IsolationLevel, start: int, end: Position | None = None
) -> int:
    """Return how many messages a reader of the level sees from a place (``message_key``) up to its bound, or an end."""
    first = max(position_of(start), view.bounds.log_start)
    bound = view.bounds.upper(level) if end is None else min(end, view.bounds.upper(level))
    if first >= bound:
        return 0
    low, high = first.key, bound.key
    total = _messages_before(connection, view, bound) - _messages_before(connection, view, first)
    if level is IsolationLevel.READ_COMMITTED:
        t = transaction_partitions.c
        touches = needed(t.first_position, t.marker_position, low, high)
        aborted = (t.partition_id == view.partition_id, is_in(t.state, ABORTED), touches)
        inside = (t.first_position >= low) & (t.last_position < high)
        total -= int(
            connection.execute(select(func.coalesce(func.sum(t.messages), 0)).where(*aborted, inside)).scalar_one()
        )
        cut = select(t.txn, t.last_position).where(*aborted, ~inside)
        for txn, last in connection.execute(cut).all():
            total -= _messages_of(connection, view.partition_id, txn, low, min(high - 1, last))
    if index_of(start) and position_of(start) == first:
        total -= visible_before(connection, view, level, start)
    return max(0, total)


def visible_before(connection: Connection, view: PartitionView, level: IsolationLevel, at: int) -> int:
    """Return how many messages of its entry a reader of the level sees before a place (``message_key``)."""
    e, t = entries.c, transactions.c
    entry = connection.execute(
        select(e.messages, t.state)
        .outerjoin(transactions, t.txn == e.txn)
        .where(e.partition_id == view.partition_id, e.position == position_of(at).key, e.kind == DATA)
    ).first()
    if entry is None:
        return 0
    hidden = level is IsolationLevel.READ_COMMITTED and entry.state == ABORTED
    return 0 if hidden else min(index_of(at), int(entry.messages))


def _messages_before(connection: Connection, view: PartitionView, at: Position) -> int:
    """Return how many messages lie before a position since the partition was made."""
    found = _BEFORE.rows(connection, {"partition_id": view.partition_id, "position": at.key})
    if found:
        return int(found[0][0])
    [(before, messages, of)] = _LEDGER.rows(connection, {"ledger_id": at.ledger_id})
    return int(before + (messages if at.entry_id >= of else messages * at.entry_id // max(of, 1)))


def _messages_of(connection: Connection, partition_id: int, txn: int | None, low: int, high: int) -> int:
    e = entries.c
    query = select(func.coalesce(func.sum(e.messages), 0)).where(
        e.partition_id == partition_id, e.position >= low, e.position <= high, e.kind == DATA
    )
    if txn is not None:
        query = query.where(e.txn == txn)
    return int(connection.execute(query).scalar_one())


_BEFORE = Prepared("SELECT messages_before FROM entries WHERE partition_id = :partition_id AND position = :position")
_LEDGER = Prepared("SELECT messages_before, messages, entries FROM ledgers WHERE ledger_id = :ledger_id")
