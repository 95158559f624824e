"""Handing out the entries of a shared subscription: first what comes again, then what is new, in equal shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from txn_source.metadata.delivery.next_entries import Stretch, next_stretch
from txn_source.metadata.store import deliveries, subscriptions, views
from txn_source.metadata.store.backlogs import visible_messages
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.message_ranges import MessageRange, message_key, position_of
from txn_source.model.position import Position, PositionRange
from txn_source.model.subscription import Cursor
from txn_source.model.topic import PartitionView

MAX_PERMITS = 1_000_000
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Taker(Protocol[R_co]):
    """A consumer that gets a share; ``delivery`` returns what is sent to it for a stretch.

    It counts what it got when the database transaction is committed: that may fail, or be done again.
    """

    consumer_id: int

    def ready(self, epoch: int) -> int:
        """Return how many messages it takes now, in an epoch."""

    def delivery(self, connection: Connection, stretch: Stretch, decisions: int) -> R_co: ...

    def count(self, stretches: Iterable[Stretch]) -> None: ...

    def send(self, response: Any) -> None: ...


class Spreading(Generic[R]):
    """Handing out entries of a shared subscription: first what comes again, then what is new, in equal shares."""

    def __init__(self, connection: Connection, row: Subscription, turns: Sequence[Taker[R]]) -> None:
        self._connection = connection
        self._row = row
        self._turns = list(turns)
        self._left = {turn.consumer_id: turn.ready(row.epoch) for turn in turns}
        self._level = row.isolation_level
        self._decisions = views.decisions(connection)
        self._cursors = subscriptions.cursors_of(connection, row.subscription_id)
        self._views = {v.partition_id: v for v in views.partition_views(connection, [row.topic_id])[row.topic_id]}

    def run(self) -> Iterator[tuple[Taker[R], Stretch, R]]:
        """Yield deliveries, each with who gets it."""
        subscription_id = self._row.subscription_id
        for consumer in self._turns:
            for partition_id, item, redeliveries in deliveries.take_back(
                self._connection, subscription_id, consumer.consumer_id, self._left[consumer.consumer_id]
            ):
                stretch = self._again(self._views[partition_id], item, redeliveries)
                if stretch is not None:
                    yield self._hand_out(consumer, stretch)
        read_to = subscriptions.read_positions(self._connection, subscription_id)
        for partition_id, view in self._views.items():
            at = since = Position.from_key(read_to[partition_id])
            while at < view.bounds.upper(self._level):
                waiting = [c for c in self._turns if self._left[c.consumer_id] > 0]
                if not waiting:
                    break
                consumer = waiting[0]
                self._turns = [*(c for c in self._turns if c is not consumer), consumer]
                share = self._share(view, at, len(waiting), self._left[consumer.consumer_id])
                cursor = self._cursors[partition_id]
                stretch, at = next_stretch(
                    self._connection,
                    view,
                    self._level,
                    at,
                    cursor,
                    share,
                    self._decisions,
                    since=since,
                    durable=self._row.durable,
                )
                if stretch is not None:
                    since = at
                    for item in stretch.wanted:
                        count = stretch.messages if item is stretch.wanted[-1] else 0
                        whole = MessageRange(item.start, item.end, count)
                        deliveries.hand_out(
                            self._connection, subscription_id, partition_id, whole, consumer.consumer_id
                        )
                    yield self._hand_out(consumer, stretch)
            if since < at:  # nothing of it is visible, so nobody will acknowledge it
                self._cursors[partition_id].acknowledge([MessageRange(message_key(since), message_key(at))])
                subscriptions.store(self._connection, subscription_id, partition_id, self._cursors[partition_id])
            if at.key != read_to[partition_id]:
                deliveries.advance(self._connection, subscription_id, partition_id, at.key)

    def _hand_out(self, consumer: Taker[R], stretch: Stretch) -> tuple[Taker[R], Stretch, R]:
        self._left[consumer.consumer_id] -= stretch.messages
        return consumer, stretch, consumer.delivery(self._connection, stretch, self._decisions)

    def _share(self, view: PartitionView, at: Position, among: int, most: int) -> int:
        there = visible_messages(self._connection, view, self._level, message_key(at))
        return max(1, min(most, -(-there // among)))

    def _again(self, view: PartitionView, item: MessageRange, redeliveries: int) -> Stretch | None:
        """Return what was delivered before as one stretch, without what has been acknowledged of it."""
        acknowledged = self._cursors[view.partition_id]
        wanted = acknowledged.wanted(item.start, item.end)
        if not wanted:
            return None
        first, last = position_of(wanted[0].start), position_of(wanted[-1].end)
        stop = last if wanted[-1].end == message_key(last) else last.plus(1)
        stretch, _ = next_stretch(
            self._connection, view, self._level, first, Cursor(0), MAX_PERMITS, self._decisions, end=stop
        )
        if stretch is None or stretch.range.end != stop:  # without its entries: the consumer looks for them itself
            stretch = Stretch(view.partition_id, PositionRange(first, stop), tuple(wanted), 0, None, None)
        return replace(stretch, wanted=tuple(wanted), messages=max(1, item.messages), redeliveries=redeliveries)
