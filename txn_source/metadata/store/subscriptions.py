"""Subscriptions in the database: making, finding, acknowledging, seeking, and their backlogs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from txn_source.metadata.store import consumers, cursor_rows, level_changes
from txn_source.metadata.store import deliveries as handed_out
from txn_source.metadata.store.backlogs import visible_messages
from txn_source.metadata.store.conflicts import expect
from txn_source.metadata.store.database import note_change
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.metadata.store.tables import (
    cursors,
    deliveries,
    ledgers,
    partitions,
    subscriptions,
)
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.errors import (
    AcknowledgedElsewhereError,
    InvalidArgumentError,
    StaleEpochError,
    SubscriptionBusyError,
    SubscriptionExistsError,
    SubscriptionIsolationMismatchError,
    SubscriptionNotFoundError,
    UnavailableError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange, MessageRanges, index_of, message_key, position_of
from txn_source.model.position import EARLIEST, LATEST, Position
from txn_source.model.subscription import Cursor, Place, SubscriptionType
from txn_source.model.topic import PartitionView
from txn_source.model.units import MAX_TOTAL

MAX_NAME = 200
MAX_EPOCH_STEP = 1 << 20
"""Epochs go up one by one, but for those of calls that came to nothing."""


def find(connection: Connection, topic_id: int, name: str) -> Subscription:
    """Return a topic's subscription of a name, or raise SUBSCRIPTION_NOT_FOUND."""
    found = find_any(connection, topic_id, name)
    if found is None:
        raise SubscriptionNotFoundError(
            f"The topic has no subscription {name!r}.",
            "Check the name against `txnlog subscriptions list`, or create it first.",
        )
    return found


def find_any(connection: Connection, topic_id: int, name: str) -> Subscription | None:
    """Return a topic's subscription of a name; None if there is none."""
    rows = _BY_NAME.rows(connection, {"topic_id": topic_id, "name": name})
    return Subscription.of_values(rows[0]) if rows else None


def by_id(connection: Connection, subscription_id: int) -> Subscription | None:
    """Return a subscription; None if it is gone."""
    return by_ids(connection, [subscription_id]).get(subscription_id)


def by_ids(connection: Connection, subscription_ids: Iterable[int]) -> dict[int, Subscription]:
    """Return subscriptions by id; those that are gone are left out."""
    rows = _BY_IDS.rows(connection, subscription_ids)
    return {row[0]: Subscription.of_values(row) for row in rows}


def of_topic(connection: Connection, topic_id: int) -> list[Subscription]:
    """Return a topic's subscriptions, by name."""
    return [Subscription.of_values(row) for row in _OF_TOPIC.rows(connection, {"topic_id": topic_id})]


def create(
    connection: Connection,
    topic_id: int,
    views: Sequence[PartitionView],
    name: str,
    kind: SubscriptionType,
    level: IsolationLevel,
    place: Place,
    now_ms: int,
    *,
    durable: bool = True,
) -> Subscription:
    """Insert a subscription that stands at a place, and return it.

    Raises:
        SubscriptionExistsError: there is one of that name.
        InvalidArgumentError: the name is empty or too long, or the place is none.
    """
    if not name or len(name) > MAX_NAME or name != name.strip() or not name.isprintable():
        raise InvalidArgumentError(
            f"{name!r:.80} can't be the name of a subscription.", f"Use 1 to {MAX_NAME} printable characters."
        )
    if find_any(connection, topic_id, name) is not None:
        raise SubscriptionExistsError(
            f"Subscription {name!r} already exists.", "Use it, or choose another name; `subscriptions seek` moves it."
        )
    if place.where not in (EARLIEST, LATEST):
        raise InvalidArgumentError(f"{place.where!r} is not where a subscription can begin.", "Use earliest or latest.")
    key = connection.execute(
        insert(subscriptions).values(
            topic_id=topic_id,
            name=name,
            type=kind.value,
            isolation_level=level.value,
            durable=int(durable),
            created_at_ms=now_ms,
        )
    ).inserted_primary_key
    assert key is not None
    at, _ = places(connection, views, level, place, {})
    cursor_rows.insert_all(connection, int(key[0]), at)
    return find(connection, topic_id, name)


def check_same(subscription: Subscription, kind: SubscriptionType, level: IsolationLevel | None) -> None:
    """Raise the error that says how a subscription differs from what a consumer asks for."""
    if level is not None and level != subscription.isolation_level:
        raise SubscriptionIsolationMismatchError(
            f"Subscription {subscription.name!r} is {subscription.isolation_level}, and the consumer asks for {level}.",
            f"Ask for {subscription.isolation_level}, use another subscription, or change this one while no consumer is"
            " connected (`txnlog subscriptions set-isolation-level`).",
        )
    if kind != subscription.type:
        raise InvalidArgumentError(
            f"Subscription {subscription.name!r} is {subscription.type}, and the consumer asks for {kind}.",
            f"Ask for {subscription.type}, or use another subscription.",
        )


def remove(connection: Connection, subscription: Subscription, now_ms: int) -> None:
    """Delete a subscription that no consumer is connected to."""
    _check_idle(connection, subscription, now_ms, "be deleted")
    connection.execute(delete(subscriptions).where(subscriptions.c.subscription_id == subscription.subscription_id))
    note_change(connection, subscription.topic_id, subscription.subscription_id)


def set_level(
    connection: Connection,
    subscription: Subscription,
    views: Sequence[PartitionView],
    level: IsolationLevel,
    now_ms: int,
) -> None:
    """Change the isolation level of a subscription that no consumer is connected to; what it acknowledged stays so.

    What a shared one had handed out and isn't acknowledged is handed out anew, as the new level sees it.

    Raises:
        InvalidArgumentError: a transaction would be torn (``metadata/store/level_changes.py``).
    """
    _check_idle(connection, subscription, now_ms, "change its isolation level")
    if level == subscription.isolation_level:
        return
    found = cursors_of(connection, subscription.subscription_id)
    level_changes.check(connection, subscription, views, found, level)
    of_this = cursors.c.subscription_id == subscription.subscription_id
    connection.execute(delete(deliveries).where(deliveries.c.subscription_id == subscription.subscription_id))
    connection.execute(update(cursors).where(of_this).values(read_position=cursors.c.mark_position))
    for view in views:
        cursor = found[view.partition_id]
        counted = [replace(r, messages=_messages_in(connection, view, level, r)) for r in cursor.ranges]
        cursor_rows.store(
            connection, subscription.subscription_id, view.partition_id, Cursor(cursor.mark, MessageRanges(counted))
        )
    connection.execute(
        update(subscriptions)
        .where(subscriptions.c.subscription_id == subscription.subscription_id)
        .values(isolation_level=level.value)
    )


def cursors_of(connection: Connection, subscription_id: int) -> dict[int, Cursor]:
    """Return what a subscription has acknowledged, by partition id."""
    return {row.partition_id: cursor_rows.cursor_in(row) for row in cursor_rows.rows_of(connection, subscription_id)}


def read_positions(connection: Connection, subscription_id: int) -> dict[int, int]:
    """Return the next entry that a subscription hands out, ``Position.key`` by partition id.

    While consumers that don't count have an ordered one, only its mark goes on.
    """
    rows = cursor_rows.rows_of(connection, subscription_id)
    return {row.partition_id: max(row.read_position, row.mark_position) for row in rows}


def seek(
    connection: Connection, subscription: Subscription, views: Sequence[PartitionView], place: Place, epoch: int | None
) -> tuple[int, dict[int, int], list[int]]:
    """Move a subscription and raise its epoch, in one step.

    Args:
        connection: a write transaction.
        subscription: the subscription.
        views: the topic's partitions.
        place: where to; partitions that it doesn't name go back to what they have not acknowledged.
        epoch: the new one; None is the next.

    Returns:
        The new epoch, where it stands (``message_key`` by partition id), and the partitions whose place lay before the
        start or beyond the end of what a reader of its level can stand at: these are at the nearest place.
    """
    raised = raise_epoch(connection, subscription, epoch)
    before = cursors_of(connection, subscription.subscription_id)
    marks = {partition_id: cursor.mark for partition_id, cursor in before.items()}
    at, moved = places(connection, views, subscription.isolation_level, place, marks)
    connection.execute(delete(cursors).where(cursors.c.subscription_id == subscription.subscription_id))
    connection.execute(delete(deliveries).where(deliveries.c.subscription_id == subscription.subscription_id))
    cursor_rows.insert_all(connection, subscription.subscription_id, at)
    for partition_id, cursor in before.items():
        if not place.where and partition_id not in place.messages and len(cursor.ranges):
            cursor_rows.store(connection, subscription.subscription_id, partition_id, cursor)
    return raised, at, moved


def raise_epoch(connection: Connection, subscription: Subscription, epoch: int | None) -> int:
    """Raise a subscription's epoch to a larger one, None to the next; return it, or raise STALE_EPOCH."""
    if epoch is not None and epoch <= subscription.epoch:
        raise StaleEpochError(
            f"Subscription {subscription.name!r} has epoch {subscription.epoch}, and the call carries {epoch}.",
            "Another seek was faster: look where it stands, then seek again.",
        )
    if epoch is not None and epoch > subscription.epoch + MAX_EPOCH_STEP:
        raise InvalidArgumentError(
            f"Subscription {subscription.name!r} has epoch {subscription.epoch}, and the call carries {epoch}.",
            f"Use a larger one, by {MAX_EPOCH_STEP} at most: later seeks need the rest.",
        )
    raised = int(subscription.epoch + 1 if epoch is None else epoch)
    done = connection.execute(
        update(subscriptions)
        .where(
            subscriptions.c.subscription_id == subscription.subscription_id, subscriptions.c.epoch == subscription.epoch
        )
        .values(epoch=raised)
    )
    expect(done.rowcount)
    note_change(connection, subscription.topic_id, subscription.subscription_id)
    return raised


def acknowledge(connection: Connection, ack: Acknowledgement, *, strict: bool = False) -> int:
    """Move a subscription's cursors; with an old epoch nothing happens, and it is counted.

    Returns how many of the messages that its ranges name were not acknowledged before.

    ``strict`` is for transactions: what can't be acknowledged, or is already, raises.

    Raises:
        UnavailableError: the consumer isn't connected any more; it acknowledges when it is again.
    """
    subscription = by_id(connection, ack.subscription_id)
    if subscription is None:
        if strict:
            raise SubscriptionNotFoundError("The subscription was deleted.", "Abort the transaction.")
        return 0
    lost = not consumers.is_connected(connection, ack.subscription_id, ack.consumer_id)
    if lost and ack.epoch == subscription.epoch and not strict:
        raise UnavailableError(
            "The consumer has lost its lease.", "It connects again by itself, and acknowledges then."
        )
    if ack.epoch < subscription.epoch or lost:
        if strict:
            epochs = f"its epoch is {subscription.epoch}, theirs {ack.epoch}"
            what = "its consumer has lost its connection" if lost else epochs
            raise StaleEpochError(
                f"Messages of subscription {subscription.name!r} that the transaction consumed are delivered again:"
                f" {what}.",
                "Abort it, and consume them again.",
            )
        _count_ignored(connection, subscription, ack)
        return 0
    new = 0
    found = {c.partition_id: c for c in cursor_rows.rows_of(connection, ack.subscription_id)}
    ends = _ends(connection, [part.partition_id for part in ack.partitions])
    for part in ack.partitions:
        if part.partition_id not in found:
            raise InvalidArgumentError(
                f"Subscription {subscription.name!r} has no partition {part.partition_id}.",
                "Acknowledge its own messages.",
            )
        highest = max([part.up_to or 0, *(r.end for r in part.ranges)])
        if highest > message_key(ends[part.partition_id]):
            raise InvalidArgumentError(
                f"The acknowledgement goes up to {position_of(highest)} in partition id {part.partition_id}, which ends"
                f" at {ends[part.partition_id]}.",
                "Acknowledge messages that were delivered.",
            )
        cursor = cursor_rows.cursor_in(found[part.partition_id])
        twice = _twice(cursor, part.ranges) if strict else None
        if twice is not None:
            raise AcknowledgedElsewhereError(
                f"Messages {twice} of subscription {subscription.name!r}, which it consumed, are acknowledged already.",
                "Another consumer has processed them: abort the transaction.",
            )
        new += cursor.acknowledge(part.ranges)
        if part.up_to is not None:
            cursor.acknowledge_up_to(part.up_to)
        if found[part.partition_id].read_position > found[part.partition_id].mark_position:  # what was handed out
            below = () if part.up_to is None else (MessageRange(0, part.up_to),)
            of = subscription.subscription_id, part.partition_id, ack.consumer_id
            handed_out.forget(connection, *of, (*part.ranges, *below), cursor)
        cursor_rows.store(connection, subscription.subscription_id, part.partition_id, cursor, found[part.partition_id])
    return new


def _twice(cursor: Cursor, ranges: Sequence[MessageRange]) -> MessageRange | None:
    """Return a range that was acknowledged before, or overlaps another one of the call; None if there is none."""
    known = next((r for r in ranges if cursor.has(r)), None)
    return known or next((b for a, b in pairwise(sorted(ranges)) if b.start < a.end), None)


def _count_ignored(connection: Connection, subscription: Subscription, ack: Acknowledgement) -> None:
    """Count an acknowledgement that changes nothing."""
    count = sum(r.messages for p in ack.partitions for r in p.ranges)
    count += sum(p.up_to is not None for p in ack.partitions)
    ignored = min(subscription.ignored_acknowledgements + count, MAX_TOTAL)
    connection.execute(
        update(subscriptions)
        .where(subscriptions.c.subscription_id == subscription.subscription_id)
        .values(ignored_acknowledgements=ignored)
    )


def _ends(connection: Connection, partition_ids: Sequence[int]) -> dict[int, Position]:
    """Return the log ends of partitions, exclusive."""
    return {row[0]: Position(row[1], row[2]) for row in _ENDS.rows(connection, set(partition_ids))}


def redeliver_all(
    connection: Connection,
    subscription: Subscription,
    epoch: int,
    consumer_id: int,
    received: handed_out.Parts,
    *,
    counts: bool,
) -> int:
    """Begin a new epoch, in which all that is not acknowledged is delivered again; return it.

    ``received`` of the epoch before counts as delivered to the consumer; see ``deliveries.redeliver``.
    """
    if epoch <= subscription.epoch:
        return int(subscription.epoch)
    if epoch == subscription.epoch + 1:
        handed_out.redeliver(connection, subscription, consumer_id, received, counts=counts)
    handed_out.give_back(connection, subscription.subscription_id, None, reported=True)
    return raise_epoch(connection, subscription, epoch)


def keeper(connection: Connection, view: PartitionView, end: Position) -> str | None:
    """Return the name of a durable subscription that has not acknowledged all that its level shows below a position.

    None if there is none: then what lies below may be trimmed.
    """
    query = (
        select(subscriptions.c.name, subscriptions.c.isolation_level, cursors)
        .join(cursors, cursors.c.subscription_id == subscriptions.c.subscription_id)
        .where(
            cursors.c.partition_id == view.partition_id,
            cursors.c.mark_position < end.key,
            subscriptions.c.durable == 1,
        )
    )
    for row in connection.execute(query).all():
        cursor = cursor_rows.cursor_in(row)
        acknowledged = sum(r.messages for r in cursor.ranges if r.end <= message_key(end))
        if visible_messages(connection, view, IsolationLevel(row.isolation_level), cursor.mark, end) > acknowledged:
            return str(row.name)
    return None


def _check_idle(connection: Connection, subscription: Subscription, now_ms: int, wish: str) -> None:
    held = consumers.alive(consumers.connected(connection, subscription.subscription_id), now_ms)
    if held:
        raise SubscriptionBusyError(
            f"Subscription {subscription.name!r} can't {wish}: consumer {held[0].name!r} is connected to it.",
            "Close its consumers first.",
        )
    for consumer in consumers.connected(connection, subscription.subscription_id):
        consumers.remove(connection, consumer.consumer_id)


def places(
    connection: Connection,
    views: Sequence[PartitionView],
    level: IsolationLevel,
    place: Place,
    marks: Mapping[int, int],
) -> tuple[dict[int, int], list[int]]:
    """Return where a seek of a subscription that stands at ``marks`` ends, and the partitions that it leads elsewhere.

    Both are as ``seek`` returns them; nothing is changed.
    """
    points = place.keys
    unknown = points.keys() - {view.partition_id for view in views}
    if unknown:
        raise InvalidArgumentError(f"The topic has no partition {min(unknown)}.", "Name its own partitions.")
    at, moved = {}, []
    for view in views:
        low, high = view.bounds.log_start, view.bounds.upper(level)
        wanted = points.get(view.partition_id)
        if wanted is not None:
            at[view.partition_id] = _nearest(connection, view, wanted, high)
            if at[view.partition_id] != wanted:
                moved.append(view.partition_id)
        elif place.where:
            at[view.partition_id] = message_key(low if place.where == EARLIEST else high)
        else:
            at[view.partition_id] = marks[view.partition_id]
    return at, moved


def _nearest(connection: Connection, view: PartitionView, wanted: int, high: Position) -> int:
    """Return the place itself, or the nearest one at which a reader can stand."""
    at = position_of(wanted)
    if at < view.bounds.log_start:
        return message_key(view.bounds.log_start)
    if at >= high:
        return message_key(high)
    is_entry = index_of(wanted) == 0
    if is_entry and (at == view.bounds.log_start or at.ledger_id == view.bounds.log_end.ledger_id):
        return wanted  # the open ledger has all entries below the bound
    of = {"partition_id": view.partition_id, "ledger_id": at.ledger_id}
    [(first_id, entry_count), *following] = _TWO_LEDGERS.rows(connection, of)
    if first_id != at.ledger_id:
        return message_key(Position(first_id, 0))
    if at.entry_id >= entry_count and following:
        return wanted if is_entry and at.entry_id == entry_count else message_key(Position(following[0][0], 0))
    if not is_entry:
        for (messages,) in _MESSAGES_OF.rows(connection, {"partition_id": view.partition_id, "position": at.key}):
            return wanted if index_of(wanted) < messages else message_key(at.plus(1))
    return wanted


def _messages_in(connection: Connection, view: PartitionView, level: IsolationLevel, item: MessageRange) -> int:
    """Return how many messages of a range the level shows."""
    behind_start, behind_end = (visible_messages(connection, view, level, key) for key in (item.start, item.end))
    return behind_start - behind_end


_TWO_LEDGERS = Prepared(
    """
    SELECT ledger_id, entries FROM ledgers WHERE partition_id = :partition_id AND ledger_id >= :ledger_id
    ORDER BY ledger_id LIMIT 2"""
)
_MESSAGES_OF = Prepared("SELECT messages FROM entries WHERE partition_id = :partition_id AND position = :position")
_SUBSCRIPTION = f"SELECT {', '.join(Subscription.columns())} FROM subscriptions"
_BY_IDS = Lookup(f"{_SUBSCRIPTION} WHERE subscription_id IN (:values)")
_BY_NAME = Prepared(f"{_SUBSCRIPTION} WHERE topic_id = :topic_id AND name = :name")
_OF_TOPIC = Prepared(f"{_SUBSCRIPTION} WHERE topic_id = :topic_id ORDER BY name")
_ENDS = Lookup(
    lambda names: (
        select(partitions.c.partition_id, partitions.c.open_ledger_id, ledgers.c.entries)
        .join(ledgers, ledgers.c.ledger_id == partitions.c.open_ledger_id)
        .where(partitions.c.partition_id.in_([bindparam(name) for name in names]))
    )
)
