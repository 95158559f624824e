"""One look at a topic: what its connected consumers may get now is read once, and handed out to those with permits.

1. Whoever has lost its lease, or its subscription, is sent away.
2. A new epoch, or another active consumer, is told; permits that were given before are void. Partitions that were
   added are told, too, before anything of them is delivered.
3. Of an exclusive or failover subscription the active consumer gets what comes next. Cursors advance, and permits are
   used, only when the read that it all came from has ended well.
4. Of a shared subscription, and to an active consumer that counts, one write transaction hands out what comes again and
   what is new. Permits are used only when that is committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.delivery_messages import DeliveryMessages
from txn_source.metadata.delivery.next_entries import PartitionReading, ReadCursor, next_batch
from txn_source.metadata.delivery.row_dispatch import RowDispatch
from txn_source.metadata.delivery.session import Session
from txn_source.metadata.delivery.subscribing import lease_over, subscription_gone
from txn_source.metadata.delivery.topic_snapshot import TopicSnapshot
from txn_source.metadata.delivery.work import Work
from txn_source.metadata.store import consumers, deliveries, subscriptions, transactions
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.subscription_rows import Lease, Subscription
from txn_source.model.isolation import IsolationLevel
from txn_source.model.subscription import Cursor, SubscriptionType
from txn_source.model.topic import PartitionView, Topic

_DELIVERIES_AT_ONCE = 64
"""So many are made for one consumer in one look."""


class TopicDispatch:
    """Looks at topics on behalf of connected consumers; ``configuration`` are the broker's policies."""

    def __init__(self, work: Work, configuration: Mapping[str, Any]) -> None:
        self._work = work
        self._configuration = configuration

    def look(self, sessions: Sequence[Session]) -> dict[int, float | None]:
        """Look at one topic for some subscriptions, with all of their consumers that are connected here.

        Args:
            sessions: these consumers, by id.

        Returns:
            By subscription, in how many seconds something may change without anybody writing; None: never.
        """
        groups: dict[int, list[Session]] = defaultdict(list)
        for session in sessions:
            groups[session.subscription_id].append(session)
        after = {session: session.take_after_look() for session in sessions}
        waits: dict[int, float | None] = {}
        deliveries_made: list[_Delivered] = []
        with self._work.read() as connection:
            moment = _Moment(connection, self._work.now_ms(), sessions[0].topic, self._configuration)
            found = subscriptions.by_ids(connection, groups)
            leases = consumers.leases(connection, groups)
            to_share = []
            for subscription_id, group in groups.items():
                subscription = found.get(subscription_id)
                if subscription is None:
                    for session in (
                        group
                    ):  # a reader's subscription is deleted when its lease ends, and a reconnect makes it again
                        gone = session.subscription.durable or not moment.snapshot.partitions
                        session.fail(subscription_gone() if gone else lease_over())
                    continue
                present = _follow(moment, subscription, group, leases[subscription_id])
                waits[subscription_id] = moment.wait_s(subscription, present, leases[subscription_id])
                shared = subscription.type is SubscriptionType.SHARED
                by_rows = [session for session in present if session.active and (shared or session.counts)]
                if by_rows and _may_share(moment, subscription, by_rows):
                    to_share.append((subscription, by_rows))
                deliveries_made += [
                    _deliver(moment, subscription, session)
                    for session in present
                    if session not in by_rows and session.active and session.permits > 0
                ]
        for made in deliveries_made:
            if made.apply():
                waits[made.session.subscription_id] = 0.0
        for subscription, group in to_share:
            if self._share(subscription, group):
                waits[subscription.subscription_id] = 0.0
        for session, responses in after.items():
            for response in responses:
                session.send(response)
        return waits

    def _share(self, subscription: Subscription, group: Sequence[Session]) -> bool:
        """Hand out entries of a subscription; return True if there may be more at once."""
        in_turn = sorted(group, key=lambda session: session.last_delivery)
        topic, subscription_id = group[0].topic, subscription.subscription_id

        def hand_out(connection: Connection) -> _HandedOut:
            current = subscriptions.by_id(connection, subscription_id)
            if current is None:
                return _HandedOut({}, False, False, [], {})  # the next look says so
            consumers.remove_lapsed(connection, self._work.now_ms(), subscription_id)
            leases = consumers.leases(connection, [subscription_id])[subscription_id]
            if current.type is not SubscriptionType.SHARED:
                leases = consumers.alive(leases, self._work.now_ms())[:1]
            present = {lease.consumer_id for lease in leases}
            ready = {session.consumer_id: session.ready(current.epoch) for session in in_turn}
            permits = {n: messages for n, messages in ready.items() if messages > 0 and n in present}
            snapshot = TopicSnapshot(connection, topic, self._configuration)
            dispatch, messages = RowDispatch(snapshot, current, permits), DeliveryMessages(snapshot)
            made: dict[int, list[pb.ConsumeResponse]] = defaultdict(list)
            for consumer_id, batch in dispatch.run():
                made[consumer_id].append(messages.of(current, batch))
            return _HandedOut(made, dispatch.full, dispatch.left, snapshot.partitions, dispatch.cursors)

        done = self._work.write(hand_out)
        for session in group:  # now that it is committed
            session.tell_partitions(done.partitions, done.cursors)
            session.delivered(done.deliveries.get(session.consumer_id, ()), {})
        # Permits that came meanwhile found others there, and woke nobody.
        return done.full or (done.left and any(session.ready(subscription.epoch) for session in group))


@dataclass(frozen=True, slots=True)
class _HandedOut:
    """What one write transaction has handed out: the deliveries of each consumer, by its id.

    ``full`` and ``left`` are those of the ``RowDispatch``. ``partitions`` and ``cursors`` are the topic's and the
    subscription's then.
    """

    deliveries: Mapping[int, Sequence[pb.ConsumeResponse]]
    full: bool
    left: bool
    partitions: Sequence[PartitionView]
    cursors: Mapping[int, Cursor]


class _Moment:
    """What the subscriptions of a topic have in common in one look."""

    def __init__(
        self,
        connection: Connection,
        now_ms: int,
        topic: Topic,
        configuration: Mapping[str, Any],
    ) -> None:
        self.connection = connection
        self.now_ms = now_ms
        self.snapshot = TopicSnapshot(connection, topic, configuration)
        self.messages = DeliveryMessages(self.snapshot)

    @cached_property
    def _deadline_ms(self) -> int | None:
        partition_ids = [view.partition_id for view in self.snapshot.partitions]
        return transactions.next_deadline_ms(self.connection, partition_ids)

    def wait_s(self, subscription: Subscription, group: Sequence[Session], leases: Sequence[Lease]) -> float | None:
        """Return the seconds until something may change without anybody writing: a deadline, or a lease."""
        waits = []
        if subscription.isolation_level is IsolationLevel.READ_COMMITTED and self._deadline_ms is not None:
            waits.append(max(1, self._deadline_ms - self.now_ms + 1))
        waits_for_others = subscription.type is SubscriptionType.SHARED or not all(s.active for s in group)
        if waits_for_others and len(leases) > len(group):
            # Of others nobody says here that they have gone, also if that couldn't be written down.
            waits.append(consumers.RENEW_MS)
        return min(waits) / 1000 if waits else None


def _follow(
    moment: _Moment,
    subscription: Subscription,
    group: Sequence[Session],
    leases: Sequence[Lease],
) -> list[Session]:
    """Tell consumers of new partitions, of a new epoch, and of being the active one; return those still connected."""
    ids = {lease.consumer_id for lease in leases}
    shared, first = subscription.type is SubscriptionType.SHARED, None
    if not shared:
        first = next(iter(consumers.alive(leases, moment.now_ms)), None)
    present, cursors = [], None
    for session in group:
        if session.consumer_id not in ids:
            session.fail(lease_over())
            continue
        present.append(session)
        active = shared or first is None or first.consumer_id == session.consumer_id
        goes_on = subscription.epoch == session.epoch and active == session.active
        partitions = moment.snapshot.partitions
        if goes_on and session.knows(partitions):
            continue
        if cursors is None:
            cursors = subscriptions.cursors_of(moment.connection, subscription.subscription_id)
        session.tell_partitions(partitions, cursors)
        if not goes_on:
            session.begin(subscription.epoch, active, cursors)
    return present


def _may_share(moment: _Moment, subscription: Subscription, group: Sequence[Session]) -> bool:
    """True if something of a subscription is to be handed out, and somebody may take it."""
    for session in group:
        if session.at_limit:
            # What was handed out may have been fewer, and acknowledged where nobody tells: count before it waits.
            of = subscription.subscription_id, session.consumer_id
            session.has(deliveries.unacknowledged(moment.connection, *of))
    if not any(session.ready(subscription.epoch) for session in group):
        return False
    subscription_id = subscription.subscription_id
    read_to = subscriptions.read_positions(moment.connection, subscription_id)
    level = subscription.isolation_level
    return (
        any(read_to[view.partition_id] < view.bounds.upper(level).key for view in moment.snapshot.partitions)
        or deliveries.has_waiting(moment.connection, subscription_id)
        or bool(consumers.lapsed(moment.connection, moment.now_ms, subscription_id))
    )


@dataclass(slots=True)
class _Delivered:
    """What one look delivers to the active consumer of a subscription, before it counts."""

    session: Session
    responses: list[pb.ConsumeResponse]
    cursors: dict[int, ReadCursor]
    messages: int
    more: bool

    def apply(self) -> bool:
        """Send it, and let it count; return True if more can be delivered at once."""
        self.session.delivered(self.responses, self.cursors)
        return self.more and self.session.permits > 0


def _deliver(moment: _Moment, subscription: Subscription, session: Session) -> _Delivered:
    """Make deliveries of what comes next, partition by partition, as far as the permits go."""
    level = subscription.isolation_level
    permits, made = session.permits, _Delivered(session, [], {}, 0, more=False)
    for view in session.in_turn(moment.snapshot.partitions):
        cursor, bound = session.read_cursor(view.partition_id), view.bounds.upper(level)
        if cursor.position >= bound:
            continue
        if permits <= made.messages or len(made.responses) >= _DELIVERIES_AT_ONCE:
            made.more = True
            break
        acknowledged = session.acknowledged_of(view.partition_id)
        reading = PartitionReading(moment.snapshot, view, level, bound, acknowledged, subscription.durable)
        batch, cursor = next_batch(reading, cursor, permits - made.messages)
        made.cursors[view.partition_id] = cursor
        made.more |= cursor.position < bound
        if batch is not None:
            made.responses.append(moment.messages.of(subscription, batch))
            made.messages += batch.messages
    return made
