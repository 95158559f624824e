"""Where a subscription may change its isolation level: where no transaction lies on both sides of what it acknowledged.

A message is *passed* if the subscription has acknowledged it, or, where its level hides it, what lies around it. After
a change the messages that are not passed are shown at the new level.

1. To ``read_committed``: no open or committed transaction may have passed messages and others, and no open one any that
   are passed: it may write more, and commit. Its first part was seen as ``read_uncommitted``, maybe undecided, and the
   rest would follow as if it were whole.
2. To ``read_uncommitted``: always. That level promises neither whole transactions nor decided ones; what was hidden
   below what is acknowledged stays passed.

All partitions of the topic count together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, func, or_, select

from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.metadata.store.tables import cursors, entries, transaction_partitions
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import COMMITTED, DATA, OPEN
from txn_source.model.message_ranges import MessageRange, message_key
from txn_source.model.position import Position
from txn_source.model.subscription import Cursor
from txn_source.model.topic import PartitionView
from txn_source.model.transaction import id_of


def check(
    connection: Connection,
    subscription: Subscription,
    views: Sequence[PartitionView],
    acknowledged: Mapping[int, Cursor],
    level: IsolationLevel,
) -> None:
    """Raise INVALID_ARGUMENT if a subscription can't change to a level where it stands; it names a transaction."""
    if level is not IsolationLevel.READ_COMMITTED:
        return
    for txn in _candidates(connection, subscription.subscription_id):
        parts = [
            _part(connection, trace, acknowledged[trace.partition_id]) for trace in _traces(connection, txn, views)
        ]
        passed, left = any(p.passed for p in parts), any(p.left for p in parts)
        state = parts[0].state
        if passed and (left or state == OPEN):
            raise _refused(subscription, views, txn, parts)


@dataclass(frozen=True, slots=True)
class _Part:
    """A transaction on one partition: whether messages of it are acknowledged, and others not."""

    partition_id: int
    state: int
    first: Position
    passed: bool
    left: bool


def _candidates(connection: Connection, subscription_id: int) -> list[int]:
    """Return the transactions that may lie on both sides, or are open, the oldest first."""
    t, c = transaction_partitions.c, cursors.c
    traces = transaction_partitions.join(
        cursors, and_(c.partition_id == t.partition_id, c.subscription_id == subscription_id)
    )
    some_passed = or_(t.first_position <= c.mark_position, func.length(c.ranges) > 0)
    some_left = or_(t.last_position >= c.mark_position, t.state == OPEN)
    of_states = t.state.in_([OPEN, COMMITTED])
    left = select(t.txn).select_from(traces).where(of_states, some_left)
    found = select(t.txn).select_from(traces).where(of_states, some_passed, t.txn.in_(left)).distinct()
    return list(connection.execute(found.order_by(t.txn)).scalars())


def _traces(connection: Connection, txn: int, views: Sequence[PartitionView]) -> Sequence[Row[Any]]:
    t, ids = transaction_partitions, {view.partition_id for view in views}
    rows = connection.execute(select(t).where(t.c.txn == txn).order_by(t.c.partition_id)).all()
    return [row for row in rows if row.partition_id in ids]


def _part(connection: Connection, trace: Row[Any], cursor: Cursor) -> _Part:
    first, last = Position.from_key(trace.first_position), Position.from_key(trace.last_position)
    whole = MessageRange(message_key(first), message_key(last.plus(1)))
    passed, left = cursor.has(whole), bool(cursor.wanted(whole.start, whole.end))
    if passed and left:  # between its messages there are others: look at each of its entries
        e = entries.c
        rows = connection.execute(
            select(e.position, e.messages).where(
                e.partition_id == trace.partition_id,
                e.position >= trace.first_position,
                e.position <= trace.last_position,
                e.txn == trace.txn,
                e.kind == DATA,
            )
        ).all()
        if sum(row.messages for row in rows) == trace.messages:  # else only a tiered copy knows them
            own = [(message_key(at := Position.from_key(position)), message_key(at, n)) for position, n in rows]
            passed = any(cursor.has(MessageRange(start, end)) for start, end in own)
            left = any(cursor.wanted(start, end) for start, end in own)
    return _Part(trace.partition_id, trace.state, first, passed, left)


def _refused(
    subscription: Subscription, views: Sequence[PartitionView], txn: int, parts: Sequence[_Part]
) -> InvalidArgumentError:
    is_open = parts[0].state == OPEN
    index_of = {view.partition_id: view.index for view in views}
    starts = ", ".join(f'"{index_of[p.partition_id]}": "{p.first}"' for p in parts if p.passed)
    rest = "the rest of it" if any(p.left for p in parts) else "more of it may come, which"
    onward = ", or wait until it has ended" if is_open else ", or first acknowledge the rest of it"
    return InvalidArgumentError(
        f"Subscription {subscription.name!r} can't change from {subscription.isolation_level} to read_committed where"
        f" it stands: a part of the {'open' if is_open else 'committed'} transaction {id_of(txn)} was seen and"
        f" acknowledged, and {rest} would be shown without that part.",
        f"Seek first, to where it begins (by partition: {{{starts}}}) or earlier{onward}; or use another subscription.",
    )
