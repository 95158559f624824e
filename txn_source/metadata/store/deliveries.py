"""What shared subscriptions have handed out, to whom, and what is to be handed out again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from txn_source.metadata.store.conflicts import expect
from txn_source.metadata.store.database import note_change
from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.metadata.store.tables import cursors, deliveries
from txn_source.model.message_ranges import MessageRange, MessageRanges, index_of, message_key, packed, position_of
from txn_source.model.position import Position
from txn_source.model.subscription import Cursor

_IDS_AT_ONCE = 1000
AGAIN_AT_ONCE = 100


def hand_out(
    connection: Connection, subscription_id: int, partition_id: int, item: MessageRange, consumer_id: int
) -> None:
    """Note that a shared subscription handed a range out to a consumer for the first time."""
    of = {"subscription_id": subscription_id, "partition_id": partition_id, "consumer_id": consumer_id}
    _HAND_OUT.run(connection, {**of, **_columns(item)})


def take_back(
    connection: Connection, subscription_id: int, consumer_id: int, most: int
) -> list[tuple[int, MessageRange, int]]:
    """Hand out to a consumer what is to be handed out again; return (partition id, range, redeliveries) of each.

    ``most`` messages, softly: one range is handed out, however many it has, unless ``most`` is 0. No more than
    ``AGAIN_AT_ONCE`` ranges are.
    """
    if most <= 0:
        return []
    of = {"subscription_id": subscription_id, "most": AGAIN_AT_ONCE}
    taken, count = [], 0
    for partition_id, redeliveries, *values in _WAITING.rows(connection, of):
        row = _Row(*values)
        if count and count + row.messages > most:
            break
        count += row.messages
        expect(_CLAIM.run(connection, {"id": row.delivery_id, "consumer": consumer_id}))
        taken.append((partition_id, row.whole, redeliveries))
    return taken


def unacknowledged(connection: Connection, subscription_id: int, consumer_id: int) -> int:
    """Return how many messages a consumer of a shared subscription has that nobody has acknowledged."""
    d = deliveries.c
    query = select(func.coalesce(func.sum(d.messages), 0))
    mine = query.where(d.subscription_id == subscription_id, d.consumer_id == consumer_id)
    return int(connection.execute(mine).scalar_one())


def handed_out(connection: Connection, subscription_id: int) -> dict[int | None, int]:
    """Return how many messages each consumer of a shared subscription has; of None, how many wait to come again."""
    d = deliveries.c
    of_this = d.subscription_id == subscription_id
    query = select(d.consumer_id, func.sum(d.messages).label("messages")).where(of_this).group_by(d.consumer_id)
    return {row.consumer_id: int(row.messages) for row in connection.execute(query)}


def has_waiting(connection: Connection, subscription_id: int) -> bool:
    """True if a shared subscription has something that is to be handed out again."""
    d = deliveries.c
    query = select(d.delivery_id).where(d.subscription_id == subscription_id, d.consumer_id.is_(None)).limit(1)
    return connection.execute(query).first() is not None


def advance(connection: Connection, subscription_id: int, partition_id: int, read_position: int) -> None:
    """Note up to where a shared subscription has handed out entries, ``Position.key``."""
    of = {"of_subscription": subscription_id, "of_partition": partition_id}
    expect(_ADVANCE.run(connection, {**of, "to_position": read_position}))


def redeliver(
    connection: Connection,
    subscription: Subscription,
    consumer_id: int,
    parts: Iterable[tuple[int, Iterable[MessageRange]]],
) -> None:
    """Let ranges that a shared subscription handed out to a consumer be handed out again, to anyone."""
    of_partition: dict[int, list[MessageRange]] = defaultdict(list)
    for partition_id, items in parts:  # one partition may come more than once
        of_partition[partition_id] += items
    gone: list[int] = []
    made: list[dict[str, int | None]] = []
    for partition_id, asked in of_partition.items():
        ordered = sorted(asked)
        starts = [item.start for item in ordered]
        furthest = list(accumulate((item.end for item in ordered), max))  # where all up to an item end
        for row in _delivered(connection, subscription.subscription_id, partition_id, consumer_id):
            whole = _range(row)
            of_row = ordered[bisect_right(furthest, whole.start) : bisect_left(starts, whole.end)]
            kept, again = _split(whole, of_row)
            if again:
                gone.append(row.delivery_id)
                keys = {"subscription_id": row.subscription_id, "partition_id": row.partition_id}
                once_more = {"consumer_id": None, "redeliveries": row.redeliveries + 1}
                as_before = {"consumer_id": row.consumer_id, "redeliveries": row.redeliveries}
                made += [_columns(item) | keys | once_more for item in again]
                made += [_columns(item) | keys | as_before for item in kept]
    for start in range(0, len(gone), _IDS_AT_ONCE):
        some = gone[start : start + _IDS_AT_ONCE]
        connection.execute(delete(deliveries).where(deliveries.c.delivery_id.in_(some)))
    if made:
        connection.execute(insert(deliveries), made)
    note_change(connection, subscription.topic_id, subscription.subscription_id)


def give_back(connection: Connection, subscription_id: int, consumer_id: int, *, counted: bool) -> None:
    """Release a consumer's messages to the others; ``counted`` adds a delivery to each."""
    d = deliveries.c
    connection.execute(
        update(deliveries)
        .where(d.subscription_id == subscription_id, d.consumer_id == consumer_id)
        .values(consumer_id=None, redeliveries=d.redeliveries + int(counted))
    )


def _delivered(
    connection: Connection, subscription_id: int, partition_id: int, consumer_id: int | None = None
) -> Sequence[Row[Any]]:
    """Return what was handed out, ascending: all of it, or to one consumer."""
    d = deliveries.c
    query = select(deliveries).where(d.subscription_id == subscription_id, d.partition_id == partition_id)
    if consumer_id is not None:
        query = query.where(d.consumer_id == consumer_id)
    return connection.execute(query.order_by(d.start_position, d.start_index)).all()


def _split(whole: MessageRange, items: Iterable[MessageRange]) -> tuple[list[MessageRange], list[MessageRange]]:
    """Cut what is to be delivered again out of a delivery; return what stays, and what is to be delivered again."""
    kept, again = [whole], []
    for item in items:
        for piece in list(kept):
            start, end = max(piece.start, item.start), min(piece.end, item.end)
            if start >= end:
                continue
            count = min(item.messages, piece.messages)
            rest = piece.messages - count
            again.append(MessageRange(start, end, count))
            kept.remove(piece)
            for left, right in ((piece.start, start), (end, piece.end)):
                if left < right:
                    kept.append(MessageRange(left, right, rest if left == end or end == piece.end else 0))
    return kept, again


def forget(
    connection: Connection,
    subscription_id: int,
    partition_id: int,
    consumer_id: int,
    ranges: Sequence[MessageRange],
    after: Cursor,
) -> None:
    """Drop the deliveries that a consumer has acknowledged wholly, and count down the others.

    ``after`` is the subscription's cursor with these ranges. They are nearly always of what the consumer itself was
    given, which is little; of what the whole subscription was, there may be thousands of rows.
    """
    acknowledged = MessageRanges(ranges)
    of = {"subscription_id": subscription_id, "partition_id": partition_id}
    rows = [_Row(*row) for row in _OF_CONSUMER.rows(connection, {**of, "consumer_id": consumer_id})]
    own = MessageRanges(row.whole for row in rows)
    if not all(own.covers(r) for r in acknowledged):
        limits = [position_of(r.start if first else r.end).key for r in acknowledged for first in (True, False)]
        span = {"lowest": min(limits), "highest": max(limits)}
        rows = [_Row(*row) for row in _OF_SPAN.rows(connection, {**of, **span})]
    for row in rows:
        whole = row.whole
        if not acknowledged.touches(whole):
            continue
        new = sum(r.messages for r in ranges if whole.start <= r.start < whole.end)
        if not after.wanted(whole.start, whole.end):
            _DROP.run(connection, {"id": row.delivery_id})
        elif new:
            _COUNT_DOWN.run(connection, {"id": row.delivery_id, "left": max(0, row.messages - new)})


class _Row(NamedTuple):
    """What acknowledging needs of a row."""

    delivery_id: int
    start_position: int
    start_index: int
    end_position: int
    end_index: int
    messages: int

    @property
    def whole(self) -> MessageRange:
        start, end = packed(self.start_position, self.start_index), packed(self.end_position, self.end_index)
        return MessageRange(start, end, self.messages)


def _range(row: Row[Any]) -> MessageRange:
    return MessageRange(
        message_key(Position.from_key(row.start_position), row.start_index),
        message_key(Position.from_key(row.end_position), row.end_index),
        row.messages,
    )


def _columns(item: MessageRange) -> dict[str, int]:
    return {
        "start_position": position_of(item.start).key,
        "start_index": index_of(item.start),
        "end_position": position_of(item.end).key,
        "end_index": index_of(item.end),
        "messages": item.messages,
    }


_OF_PARTITION = select(*(deliveries.c[name] for name in _Row._fields)).where(
    deliveries.c.subscription_id == bindparam("subscription_id"), deliveries.c.partition_id == bindparam("partition_id")
)
_OF_CONSUMER = Prepared(_OF_PARTITION.where(deliveries.c.consumer_id == bindparam("consumer_id")))
_OF_SPAN = Prepared(
    _OF_PARTITION.where(
        deliveries.c.start_position <= bindparam("highest"), deliveries.c.end_position >= bindparam("lowest")
    )
)
_DROP = Prepared(delete(deliveries).where(deliveries.c.delivery_id == bindparam("id")))
_COUNT_DOWN = Prepared(
    update(deliveries).where(deliveries.c.delivery_id == bindparam("id")).values(messages=bindparam("left"))
)
_HAND_OUT = Prepared(
    insert(deliveries).values(
        redeliveries=0,
        **{name: bindparam(name) for name in ("subscription_id", "partition_id", "consumer_id")},
        **{name: bindparam(name) for name in _Row._fields if name != "delivery_id"},
    )
)
_WAITING = Prepared(
    select(deliveries.c.partition_id, deliveries.c.redeliveries, *(deliveries.c[name] for name in _Row._fields))
    .where(deliveries.c.subscription_id == bindparam("subscription_id"), deliveries.c.consumer_id.is_(None))
    .order_by(deliveries.c.partition_id, deliveries.c.start_position, deliveries.c.start_index)
    .limit(bindparam("most"))
)
_CLAIM = Prepared(
    update(deliveries)
    .where(deliveries.c.delivery_id == bindparam("id"), deliveries.c.consumer_id.is_(None))
    .values(consumer_id=bindparam("consumer"))
)
_ADVANCE = Prepared(
    update(cursors)
    .where(
        cursors.c.subscription_id == bindparam("of_subscription"),
        cursors.c.partition_id == bindparam("of_partition"),
        cursors.c.read_position <= bindparam("to_position"),
    )
    .values(read_position=bindparam("to_position"))
)
