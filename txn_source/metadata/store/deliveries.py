"""Ranges that subscriptions have handed out: to which consumer, which of them wait for a redelivery, and their counts.

Shared subscriptions do so, and ordered ones whose consumer counts (``max_redeliveries``). ``redeliveries`` of a row is
how often its messages were delivered before; ``UNSURE``: perhaps once, since a consumer ended without a report. A count
grows

- by what a consumer reports as received, when it ends, connects again, or asks for a redelivery;
- before a consumer that counts hands a message out that was delivered before: what is reported later is known then;
- from 0 to ``UNSURE`` where a consumer ends without a report, and no further by that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, case, delete, insert, select, update

from txn_source.metadata.store.conflicts import expect
from txn_source.metadata.store.database import note_change
from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.metadata.store.tables import cursors, deliveries
from txn_source.model.message_ranges import MessageRange, MessageRanges, index_of, message_key, packed, position_of
from txn_source.model.position import Position
from txn_source.model.subscription import Cursor

Parts = Iterable[tuple[int, Iterable[MessageRange]]]
"""Ranges by partition id."""
_IDS_AT_ONCE = 1000
AGAIN_AT_ONCE = 100
UNSURE = -1


def hand_out(
    connection: Connection, subscription_id: int, partition_id: int, item: MessageRange, consumer_id: int
) -> None:
    """Note that a subscription handed a range out to a consumer for the first time."""
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
    [(messages,)] = _MESSAGES_OF.rows(connection, {"subscription_id": subscription_id, "consumer_id": consumer_id})
    return int(messages)


def handed_out(connection: Connection, subscription_id: int) -> dict[int | None, int]:
    """Return how many messages each consumer of a shared subscription has; of None, how many wait to come again."""
    rows = _MESSAGES.rows(connection, {"subscription_id": subscription_id})
    return {consumer_id: int(messages) for consumer_id, messages in rows}


def has_waiting(connection: Connection, subscription_id: int) -> bool:
    """True if a subscription has something that is to be handed out again."""
    return bool(_IS_WAITING.rows(connection, {"subscription_id": subscription_id}))


def advance(connection: Connection, subscription_id: int, partition_id: int, read_position: int) -> None:
    """Note up to where a subscription has handed out entries, ``Position.key``."""
    of = {"of_subscription": subscription_id, "of_partition": partition_id}
    expect(_ADVANCE.run(connection, {**of, "to_position": read_position}))


def redeliver(
    connection: Connection,
    subscription: Subscription,
    consumer_id: int,
    parts: Parts,
    *,
    counts: bool,
) -> None:
    """Let ranges that a consumer received be handed out again, to anyone, and count them.

    ``counts``: of what was delivered before, the consumer has counted them already.
    """

    def again(row: Row[Any]) -> dict[str, int | None]:
        known = counts and row.redeliveries != 0
        return {"consumer_id": None, "redeliveries": row.redeliveries if known else abs(row.redeliveries) + 1}

    _change(connection, subscription.subscription_id, consumer_id, parts, again)
    note_change(connection, subscription.topic_id, subscription.subscription_id)


def count(connection: Connection, subscription_id: int, consumer_id: int, parts: Parts) -> None:
    """Count ranges that a consumer is about to hand out once more; it keeps them."""

    def once_more(row: Row[Any]) -> dict[str, int | None]:
        return {"consumer_id": row.consumer_id, "redeliveries": abs(row.redeliveries) + 1}

    _change(connection, subscription_id, consumer_id, parts, once_more)


def _change(
    connection: Connection,
    subscription_id: int,
    consumer_id: int,
    parts: Parts,
    new: Callable[[Row[Any]], dict[str, int | None]],
) -> None:
    """Give ranges that a consumer has new values, by those of their rows, which are cut where only a part is named."""
    of_partition: dict[int, list[MessageRange]] = defaultdict(list)
    for partition_id, items in parts:  # one partition may come more than once
        of_partition[partition_id] += items
    gone: list[int] = []
    made: list[dict[str, int | None]] = []
    for partition_id, asked in of_partition.items():
        ordered = sorted(asked)
        starts = [item.start for item in ordered]
        furthest = list(accumulate((item.end for item in ordered), max))  # where all up to an item end
        for row in _delivered(connection, subscription_id, partition_id, consumer_id):
            whole = _range(row)
            of_row = ordered[bisect_right(furthest, whole.start) : bisect_left(starts, whole.end)]
            kept, changed = _split(whole, of_row)
            if changed:
                gone.append(row.delivery_id)
                keys = {"subscription_id": row.subscription_id, "partition_id": row.partition_id}
                as_before = {"consumer_id": row.consumer_id, "redeliveries": row.redeliveries}
                made += [_columns(item) | keys | new(row) for item in changed]
                made += [_columns(item) | keys | as_before for item in kept]
    for start in range(0, len(gone), _IDS_AT_ONCE):
        some = gone[start : start + _IDS_AT_ONCE]
        connection.execute(delete(deliveries).where(deliveries.c.delivery_id.in_(some)))
    if made:
        connection.execute(insert(deliveries), made)


def give_back(connection: Connection, subscription_id: int, consumer_id: int | None, *, reported: bool) -> None:
    """Release a consumer's messages, or everybody's (None).

    ``reported``: the consumer has said what it received. Else each of its messages may have been.
    """
    d = deliveries.c
    held = d.consumer_id.is_not(None) if consumer_id is None else d.consumer_id == consumer_id
    values = {"consumer_id": None} if reported else {"consumer_id": None, "redeliveries": _UNREPORTED}
    connection.execute(update(deliveries).where(d.subscription_id == subscription_id, held).values(values))


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
    """Cut ranges out of a delivery; return what stays, and what was cut out."""
    kept, again = [whole], []
    for item in items:
        for piece in list(kept):
            start, end = max(piece.start, item.start), min(piece.end, item.end)
            if start >= end:
                continue
            count = min(item.messages, piece.messages)
            if not item.messages and (start, end) == (piece.start, piece.end):  # of what was received in order
                count = piece.messages
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


_UNREPORTED = case((deliveries.c.redeliveries == 0, UNSURE), else_=deliveries.c.redeliveries)
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
_MESSAGES = Prepared("""
    SELECT consumer_id, SUM(messages) FROM deliveries WHERE subscription_id = :subscription_id GROUP BY consumer_id""")
_MESSAGES_OF = Prepared("""
    SELECT COALESCE(SUM(messages), 0) FROM deliveries
    WHERE subscription_id = :subscription_id AND consumer_id = :consumer_id""")
_IS_WAITING = Prepared(
    "SELECT delivery_id FROM deliveries WHERE subscription_id = :subscription_id AND consumer_id IS NULL LIMIT 1"
)
