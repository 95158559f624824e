"""The conversation with one consumer: what it asks for, and what is delivered to it.

1. The first request subscribes. The cursor in the database says where deliveries begin.
2. Requests are taken by one thread, and answers made by another one, which sleeps until something changes.
3. Whatever is handed out is read in the same database transaction as the epoch that it carries. So a seek, made by
   whomever, comes before a delivery or after it, and one that was issued before it carries the smaller epoch.
4. A new epoch begins with a turn. Permits given in an older one are void.
5. It ends when the requests do, when the consumer has lost its lease, or when the subscription is gone.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol, TypeVar

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.next_entries import Stretch, next_stretch
from txn_source.metadata.delivery.shared_dispatch import MAX_PERMITS, Spreading, Taker
from txn_source.metadata.delivery.wakeups import Changes
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.protocol.checks import check
from txn_source.metadata.store import consumers, deliveries, pages, subscriptions, transactions, views
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    SubscriptionNotFoundError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import position_of
from txn_source.model.position import Position
from txn_source.model.subscription import Cursor, SubscriptionType
from txn_source.model.topic import PartitionView, Topic

_log = logging.getLogger(__name__)
MAX_UNACKNOWLEDGED = 50_000
"""A consumer of a shared subscription that has so many messages gets no more until it acknowledges some."""
_DELIVERIES_AT_ONCE = 64
_SERVED = itertools.count(1)
T = TypeVar("T")


class Host(Protocol):
    """What a conversation needs of the service."""

    @property
    def changes(self) -> Changes: ...
    def read(self) -> Any: ...
    def write(self, action: Callable[[Connection], T]) -> T: ...
    def now_ms(self) -> int: ...
    def subscribe(
        self, connection: Connection, request: pb.ConsumeRequest.Subscribe
    ) -> tuple[Topic, Subscription, bool]: ...
    def seek(self, request: pb.SeekSubscriptionRequest) -> pb.SeekSubscriptionResponse: ...
    def first_copies(self, connection: Connection, topic: Topic, stretch: Stretch) -> pb.ListCopiesResponse: ...


class _Connected(NamedTuple):
    """What came of connecting a consumer."""

    topic: Topic
    subscription: Subscription
    created: bool
    consumer_id: int
    others: bool
    of_topic: list[PartitionView]
    cursors: dict[int, Cursor]


class Conversation:
    """One consumer's side of the service."""

    topic_id = -1
    subscription_id = -1
    consumer_id = -1

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._outbox: queue.SimpleQueue[pb.ConsumeResponse] = queue.SimpleQueue()
        self._failure: TxnLogError | None = None
        self._ended = False
        self._wait_s: float | None = None
        self._permits = 0
        self._turn = 0
        self.epoch = -1
        self.active = False
        self.unacknowledged = 0
        self.served = 0
        self._positions: dict[int, Position] = {}
        self._delivered_to: dict[int, Position] = {}

    def wake(self) -> None:
        """Look for something to deliver."""
        self._bell.set()

    def send(self, response: pb.ConsumeResponse) -> None:
        """Give the consumer an answer."""
        self._outbox.put(response)
        self._bell.set()

    def acknowledged(self, messages: int) -> None:
        """Take notice of acknowledgements that came another way, with a transaction."""
        with self._lock:
            self.unacknowledged = max(0, self.unacknowledged - messages)
        self._bell.set()

    def fail(self, error: TxnLogError) -> None:
        """End with an error."""
        self._failure = self._failure or error
        self._bell.set()

    def hold(self, requests: Iterable[pb.ConsumeRequest]) -> Iterator[pb.ConsumeResponse]:
        """Answer the requests until they end, from this thread; raise what ends the conversation otherwise."""
        thread = threading.Thread(target=self._take_all, args=(requests,), name="txnlog-requests", daemon=True)
        thread.start()
        try:
            while True:
                self._bell.wait(self._wait_s)
                self._bell.clear()
                yield from self._sent()
                if self._failure is not None:
                    raise self._failure
                if self._ended:
                    return
                if self.consumer_id >= 0:
                    found = self._look()
                    yield from self._sent()  # first of all that it is subscribed
                    yield from found
        finally:
            self._close()

    def _sent(self) -> Iterator[pb.ConsumeResponse]:
        while not self._outbox.empty():
            yield self._outbox.get()

    def ready(self, epoch: int) -> int:
        """Return how many messages may be delivered to the consumer of a shared subscription now."""
        if not self.active or epoch != self.epoch:
            return 0
        return max(0, min(self._permits, MAX_UNACKNOWLEDGED - self.unacknowledged))

    # Requests

    def _take_all(self, requests: Iterable[pb.ConsumeRequest]) -> None:
        try:
            for request in requests:
                self._take(request)
        except TxnLogError as error:
            self.fail(error)
        except BaseException as error:
            if self.consumer_id < 0:
                _log.exception("a conversation failed")
            self.fail(InternalError(f"The conversation failed with {type(error).__name__}: {error}.", "Try again."))
        finally:
            self._ended = True
            self._bell.set()

    def _take(self, request: pb.ConsumeRequest) -> None:
        what = request.WhichOneof("what")
        if what == "subscribe":
            check(request)
            if self.consumer_id >= 0:
                raise InvalidArgumentError("The conversation has a subscription already.", "Hold another one.")
            self._subscribe(request.subscribe)
        elif self.consumer_id < 0:
            raise InvalidArgumentError("The conversation doesn't begin with a subscription.", "Subscribe first.")
        elif what == "flow":
            check(request)
            self._flow(request.flow)
        else:
            receipt = pb.ConsumeResponse.Receipt(sequence=request.sequence)
            try:
                check(request)
                with self._lock:
                    self._carry_out(what, request, receipt)
            except TxnLogError as error:
                receipt.error_code, receipt.fact, receipt.remedy = error.code, error.fact, error.remedy
            self.send(pb.ConsumeResponse(receipt=receipt))

    def _carry_out(self, what: str | None, request: pb.ConsumeRequest, receipt: pb.ConsumeResponse.Receipt) -> None:
        if what == "acknowledge":
            ack = sub_wire.acknowledgement_from_wire(request.acknowledge)
            count = self._host.write(lambda connection: subscriptions.acknowledge(connection, ack))
            if ack.epoch == self.epoch:
                self.unacknowledged = max(0, self.unacknowledged - count)
            return
        if what == "seek":
            receipt.sought.CopyFrom(self._host.seek(request.seek))
            return
        if what != "redeliver":
            raise InvalidArgumentError(f"{what!r} is not a request.", "Use those of this release.")
        asked = request.redeliver
        if not self._shared:
            receipt.sought.epoch = self._host.write(
                lambda connection: subscriptions.redeliver_all(connection, self._row(connection), asked.epoch)
            )
            return
        parts = [(p.partition_id, sub_wire.ranges_from_wire(p.ranges)) for p in asked.ranges]

        def redeliver(connection: Connection) -> bool:
            row = self._row(connection)
            if asked.epoch != row.epoch:
                return False
            deliveries.redeliver(connection, row, self.consumer_id, parts)
            return True

        if self._host.write(redeliver):
            count = sum(r.messages for _, ranges in parts for r in ranges)
            self.unacknowledged = max(0, self.unacknowledged - count)

    def _subscribe(self, request: pb.ConsumeRequest.Subscribe) -> None:
        with self._lock:
            self._host.changes.check_room()

            def connect(connection: Connection) -> _Connected:
                topic, row, created = self._host.subscribe(connection, request)
                consumer_id, others = consumers.register(
                    connection, row, request.token, request.consumer_name, self._host.now_ms()
                )
                of_topic = views.partition_views(connection, [row.topic_id])[row.topic_id]
                cursors = subscriptions.cursors_of(connection, row.subscription_id)
                return _Connected(topic, row, created, consumer_id, bool(others), of_topic, cursors)

            topic, row, created, consumer_id, others, of_topic, cursors = self._host.write(connect)
            self._load(row, cursors)
            self._topic, self._shared = topic, row.type == SubscriptionType.SHARED
            self.subscription_id, self.topic_id, self.consumer_id = row.subscription_id, row.topic_id, consumer_id
            self.active, self._durable = self._shared or not others, row.durable
            self._level = row.isolation_level
            self._host.changes.add(self)  # now that it is committed; the first look comes after that
            points = [
                sub_wire.point_to_wire(partition_id, cursor.mark)
                for partition_id, cursor in sorted(self._cursors.items())
            ]
            self._outbox.put(
                pb.ConsumeResponse(
                    subscribed=pb.ConsumeResponse.Subscribed(
                        subscription_id=row.subscription_id,
                        consumer_id=consumer_id,
                        epoch=self.epoch,
                        active=self.active,
                        isolation_level=row.isolation_level.value,
                        topic=pb.TopicView(
                            topic=convert.topic_to_wire(topic),
                            partitions=[convert.partition_to_wire(p) for p in of_topic],
                        ),
                        points=points,
                        created=created,
                    )
                )
            )
        self._bell.set()

    def _flow(self, flow: pb.ConsumeRequest.Flow) -> None:
        if not 0 < flow.messages <= MAX_PERMITS:
            raise InvalidArgumentError(f"{flow.messages} is not a number of permits.", f"Use 1 to {MAX_PERMITS}.")
        with self._lock:
            if flow.epoch == self.epoch:
                self._permits = min(MAX_PERMITS, self._permits + flow.messages)
        self._bell.set()

    # Deliveries

    def _look(self) -> list[pb.ConsumeResponse]:
        found: list[pb.ConsumeResponse] = []
        with self._lock, self._host.read() as connection:
            found += self._follow(connection)
            if self.active and self._permits > 0 and not self._shared:
                found += self._deliver(connection)
            if self._shared and self._permits > 0 and self.unacknowledged >= MAX_UNACKNOWLEDGED:
                # What was handed out may have been fewer, and acknowledged where nobody tells: count before it waits.
                self.unacknowledged = deliveries.unacknowledged(connection, self.subscription_id, self.consumer_id)
            self._wait_s = self._until_next(connection)
        if self._shared:
            self._spread()
        return found

    def _follow(self, connection: Connection) -> list[pb.ConsumeResponse]:
        """Take notice of a new epoch, and of being the active consumer."""
        row = self._row(connection)
        others = consumers.connected(connection, self.subscription_id)
        if self.consumer_id not in [other.consumer_id for other in others]:
            raise UnavailableError("The consumer has lost its lease.", "It connects again by itself.")
        standing = consumers.alive(others, self._host.now_ms())
        active = self._shared or not standing or standing[0].consumer_id == self.consumer_id
        if row.epoch == self.epoch and active == self.active:
            return []
        self.active = active
        self._load(row, subscriptions.cursors_of(connection, row.subscription_id))
        turn = pb.ConsumeResponse.Turn(epoch=self.epoch, active=self.active)
        return [pb.ConsumeResponse(turn=turn)]

    def _load(self, row: Subscription, cursors: dict[int, Cursor]) -> None:
        """Begin anew where the cursor stands."""
        self.epoch = row.epoch
        self._permits = self.unacknowledged = 0
        self._cursors = cursors
        self._positions = {partition_id: position_of(c.mark) for partition_id, c in self._cursors.items()}
        self._delivered_to = dict(self._positions)

    def _deliver(self, connection: Connection) -> list[pb.ConsumeResponse]:
        """Hand out what comes next, partition by partition, as far as the permits go."""
        decisions = views.decisions(connection)
        of_topic = views.partition_views(connection, [self.topic_id])[self.topic_id]
        found: list[pb.ConsumeResponse] = []
        for number in range(len(of_topic)):
            view = of_topic[(number + self._turn) % len(of_topic)]
            at = self._positions[view.partition_id]
            if at >= view.bounds.upper(self._level):
                continue
            since, cursor = self._delivered_to[view.partition_id], self._cursors[view.partition_id]
            stretch, at = next_stretch(
                connection, view, self._level, at, cursor, self._permits, decisions, since=since, durable=self._durable
            )
            self._positions[view.partition_id] = at
            if stretch is not None:
                self._delivered_to[view.partition_id] = at
                found.append(self.delivery(connection, stretch, decisions))
                self.count([stretch])
                if self._permits <= 0 or len(found) >= _DELIVERIES_AT_ONCE:
                    break
        self._turn += 1
        left = any(self._positions[view.partition_id] < view.bounds.upper(self._level) for view in of_topic)
        if left and self._permits > 0:
            self._bell.set()
        return found

    def delivery(self, connection: Connection, stretch: Stretch, decisions: int) -> pb.ConsumeResponse:
        """Return the message that hands out a stretch."""
        delivery = pb.ConsumeResponse.Delivery(
            epoch=self.epoch,
            partition_id=stretch.partition_id,
            start=stretch.range.start.key,
            end=stretch.range.end.key,
            wanted=[sub_wire.range_to_wire(r) for r in stretch.wanted],
            messages=stretch.messages,
            decisions=decisions,
            redeliveries=stretch.redeliveries,
        )
        if stretch.page is not None and stretch.aborted is not None:
            segments, names = pages.names_in(connection, stretch.page)
            delivery.copies.CopyFrom(self._host.first_copies(connection, self._topic, stretch))
            delivery.entries.CopyFrom(
                pb.ListEntriesResponse(
                    entries=convert.table_to_wire(stretch.page.table),
                    next_start=stretch.range.end.key,
                    segments=segments,
                    producers=names,
                )
            )
            aborted = stretch.aborted if self._level is IsolationLevel.READ_COMMITTED else stretch.aborted.slice(0, 0)
            delivery.aborted.CopyFrom(pb.ListDecisionsResponse(transactions=convert.table_to_wire(aborted)))
        return pb.ConsumeResponse(delivery=delivery)

    def count(self, stretches: Iterable[Stretch]) -> None:
        """Take notice that stretches are handed out; only once that is committed, so that no permit gets lost."""
        for stretch in stretches:
            self.served = next(_SERVED)
            self._permits -= stretch.messages
            self.unacknowledged += stretch.messages

    def _spread(self) -> None:
        """Hand out what comes next to the consumers of the subscription that are connected here, in equal shares."""
        group = sorted(
            (
                c
                for c in self._host.changes.of_topic(self.topic_id)
                if isinstance(c, Conversation) and c.subscription_id == self.subscription_id
            ),
            key=lambda c: c.consumer_id,
        )
        with ExitStack() as locks:
            for consumer in group:
                locks.enter_context(consumer._lock)
            if not any(c.ready(self.epoch) for c in group):
                return
            handed_out = self._host.write(lambda connection: self._handed_out(connection, group))
            for taker, stretch, _ in handed_out:  # now that it is committed
                taker.count([stretch])
        for taker, _, response in handed_out:
            taker.send(response)

    def _handed_out(
        self, connection: Connection, group: Sequence[Conversation]
    ) -> list[tuple[Taker[pb.ConsumeResponse], Stretch, pb.ConsumeResponse]]:
        row = self._row(connection)
        consumers.remove_lapsed(connection, self._host.now_ms(), self.subscription_id)
        present = {r.consumer_id for r in consumers.connected(connection, self.subscription_id)}
        turns = sorted((c for c in group if c.consumer_id in present), key=lambda c: c.served)
        return list(Spreading(connection, row, turns).run())

    def _until_next(self, connection: Connection) -> float | None:
        """Return the seconds until something may change without anybody writing: a deadline, or a lease."""
        waits = []
        if self._level is IsolationLevel.READ_COMMITTED:
            deadline = transactions.next_deadline_ms(connection, list(self._positions))
            if deadline is not None:
                waits.append(max(1, deadline - self._host.now_ms() + 1))
        if self._shared or not self.active:
            # Of others nobody says here that they have gone, also if that couldn't be written down.
            here = {waiting.consumer_id for waiting in self._host.changes.of_topic(self.topic_id)}
            if any(c.consumer_id not in here for c in consumers.connected(connection, self.subscription_id)):
                waits.append(consumers.RENEW_MS)
        return min(waits) / 1000 if waits else None

    def _row(self, connection: Connection) -> Subscription:
        row = subscriptions.by_id(connection, self.subscription_id)
        if row is None:
            raise SubscriptionNotFoundError(
                "The subscription was deleted, or its topic was.", "Subscribe anew if that was not meant."
            )
        return row

    def _close(self) -> None:
        self._ended = True
        if self.consumer_id < 0 or os.getpid() != self._pid:  # a forked child must not disconnect its parent's consumer
            return
        self._host.changes.remove(self)
        try:
            self._host.write(lambda connection: consumers.remove(connection, self.consumer_id))
        except TxnLogError as error:
            _log.warning("consumer %d stays connected until its lease ends: %s", self.consumer_id, error)
