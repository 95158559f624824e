"""Hands out entries, and records each range as a row (``metadata/store/deliveries.py``).

Redeliveries come before new entries. Consumers of a shared subscription get equal shares. An ordered subscription has
one active consumer, which gets all redeliveries before any new entry, so in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from txn_source.metadata.delivery.next_entries import EntryBatch, PartitionReading, ReadCursor, next_batch
from txn_source.metadata.delivery.session import MAX_PERMITS
from txn_source.metadata.delivery.topic_snapshot import TopicSnapshot
from txn_source.metadata.store import cursor_rows, deliveries, subscriptions
from txn_source.metadata.store.backlogs import visible_messages
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.message_ranges import MessageRange, message_key, position_of
from txn_source.model.position import Position, PositionRange
from txn_source.model.subscription import Cursor
from txn_source.model.topic import PartitionView

BATCHES_AT_ONCE = 256
"""So many batches are handed out in one write transaction, at most: others want to write, too."""


class RowDispatch:
    """What one write transaction hands out of a subscription."""

    def __init__(self, snapshot: TopicSnapshot, subscription: Subscription, permits: Mapping[int, int]) -> None:
        """Hand out to consumers with so many permits each (more than 0), by id, in the order of their turns."""
        self._snapshot = snapshot
        self._connection = snapshot.connection
        self._subscription = subscription
        self._permits = dict(permits)
        self.full = False
        """True if as much was handed out as one transaction may."""
        self.left = False
        """True if there is more, new or to come again, than was handed out."""
        self._acknowledged = subscriptions.cursors_of(self._connection, subscription.subscription_id)

    @property
    def cursors(self) -> Mapping[int, Cursor]:
        """What the subscription has acknowledged, by partition id."""
        return self._acknowledged

    def run(self) -> Iterator[tuple[int, EntryBatch]]:
        """Yield batches, each with the id of the consumer that gets it; all of them are to be delivered."""
        for count, handed_out in enumerate(self._again_or_new(), 1):
            yield handed_out
            self.full = count >= BATCHES_AT_ONCE

    def _again_or_new(self) -> Iterator[tuple[int, EntryBatch]]:
        partitions = {view.partition_id: view for view in self._snapshot.partitions}
        subscription_id = self._subscription.subscription_id
        for consumer_id, permits in list(self._permits.items()):
            taken = deliveries.take_back(self._connection, subscription_id, consumer_id, permits)
            for partition_id, item, redeliveries in taken:
                batch = self._again(partitions[partition_id], item, redeliveries)
                if batch is not None:
                    self._permits[consumer_id] -= batch.messages
                    yield consumer_id, batch
            if self.full or not taken:
                break
        self.left = deliveries.has_waiting(self._connection, subscription_id)
        if self.left and self._subscription.type.in_order:
            return
        turns = deque(consumer_id for consumer_id, permits in self._permits.items() if permits > 0)
        read_to = subscriptions.read_positions(self._connection, subscription_id)
        for partition_id, view in partitions.items():
            yield from self._new(view, Position.from_key(read_to[partition_id]), turns)

    def _new(self, view: PartitionView, read_to: Position, turns: deque[int]) -> Iterator[tuple[int, EntryBatch]]:
        """Hand out what nobody was given yet of a partition, and note how far that goes."""
        subscription_id, partition_id = self._subscription.subscription_id, view.partition_id
        reading = self._reading(view, view.bounds.upper(self._subscription.isolation_level))
        cursor = ReadCursor.at(read_to)
        there: int | None = None
        while turns and not self.full and cursor.position < reading.bound:
            share = self._permits[turns[0]]
            if len(turns) > 1:
                if there is None:
                    there = visible_messages(self._connection, view, reading.level, message_key(cursor.position))
                share = max(1, min(share, -(-there // len(turns))))
            before = cursor.position
            batch, cursor = next_batch(reading, cursor, share)
            self._note(partition_id, cursor, before)
            if batch is None:
                continue
            there = None if there is None else max(0, there - batch.messages)
            consumer_id = turns.popleft()
            for item in batch.wanted:
                count = batch.messages if item is batch.wanted[-1] else 0
                whole = MessageRange(item.start, item.end, count)
                deliveries.hand_out(self._connection, subscription_id, partition_id, whole, consumer_id)
            self._permits[consumer_id] -= batch.messages
            if self._permits[consumer_id] > 0:
                turns.append(consumer_id)
            yield consumer_id, batch
        self.left |= cursor.position < reading.bound

    def _note(self, partition_id: int, cursor: ReadCursor, before: Position) -> None:
        """Write down how far entries were handed out; what lies behind the last batch is seen by nobody."""
        subscription_id = self._subscription.subscription_id
        if cursor.delivered_to < cursor.position:
            invisible = MessageRange(message_key(cursor.delivered_to), message_key(cursor.position))
            self._acknowledged[partition_id].acknowledge([invisible])
            cursor_rows.store(self._connection, subscription_id, partition_id, self._acknowledged[partition_id])
        if cursor.position != before:
            deliveries.advance(self._connection, subscription_id, partition_id, cursor.position.key)

    def _again(self, view: PartitionView, item: MessageRange, redeliveries: int) -> EntryBatch | None:
        """Return what was delivered before as one batch, without what has been acknowledged of it."""
        wanted = self._acknowledged[view.partition_id].wanted(item.start, item.end)
        if not wanted:
            return None
        first, last = position_of(wanted[0].start), position_of(wanted[-1].end)
        stop = last if wanted[-1].end == message_key(last) else last.plus(1)
        reading = replace(self._reading(view, stop), acknowledged=Cursor(0), durable=True)
        batch, _ = next_batch(reading, ReadCursor.at(first), MAX_PERMITS)
        if batch is None or batch.range.end != stop:  # without its entries: the consumer looks for them itself
            batch = EntryBatch(view.partition_id, PositionRange(first, stop), tuple(wanted), 0)
        return replace(batch, wanted=tuple(wanted), messages=max(1, item.messages), redeliveries=redeliveries)

    def _reading(self, view: PartitionView, bound: Position) -> PartitionReading:
        return PartitionReading(
            self._snapshot,
            view,
            self._subscription.isolation_level,
            bound,
            self._acknowledged[view.partition_id],
            self._subscription.durable,
        )
