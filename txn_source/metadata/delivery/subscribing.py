"""Changes that consumers ask for: connecting, seeking, redelivering, counting and leaving; each is one database
transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.work import Work
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.protocol.enums import ISOLATION_LEVEL, SUBSCRIPTION_TYPE
from txn_source.metadata.store import consumers, deliveries, subscriptions, topics, views
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.errors import StaleEpochError, SubscriptionNotFoundError, UnavailableError
from txn_source.model.message_ranges import MessageRange
from txn_source.model.subscription import Cursor, SubscriptionType
from txn_source.model.topic import PartitionView, Topic
from txn_source.model.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class Connected:
    """A consumer that was connected, with the database as it was then.

    ``created``: the subscription was made for it. ``active``: it gets messages at once; of an ordered subscription the
    first of its consumers does.
    """

    topic: Topic
    subscription: Subscription
    created: bool
    consumer_id: int
    active: bool
    partitions: list[PartitionView]
    cursors: Mapping[int, Cursor]

    def message(self) -> pb.ConsumeResponse:
        """Return the answer to the consumer."""
        points = [sub_wire.point_to_wire(partition_id, c.mark) for partition_id, c in sorted(self.cursors.items())]
        return pb.ConsumeResponse(
            subscribed=pb.ConsumeResponse.Subscribed(
                subscription_id=self.subscription.subscription_id,
                consumer_id=self.consumer_id,
                epoch=self.subscription.epoch,
                active=self.active,
                isolation_level=ISOLATION_LEVEL.to_wire(self.subscription.isolation_level),
                topic=pb.TopicView(
                    topic=convert.topic_to_wire(self.topic),
                    partitions=[convert.partition_to_wire(p) for p in self.partitions],
                ),
                points=points,
                created=self.created,
            )
        )


def connect(connection: Connection, request: pb.ConsumeRequest.Subscribe, now_ms: int) -> Connected:
    """Connect a consumer, in a write transaction.

    Raises:
        SubscriptionNotFoundError: there is none of that name, and the request has no level to make one with.
        SubscriptionIsolationMismatchError, InvalidArgumentError: it is of another level or type.
        SubscriptionBusyError: it is exclusive, and has a consumer.
    """
    topic = topics.find(connection, TopicName.parse(request.topic))
    partitions = views.partition_views(connection, [topic.topic_id])[topic.topic_id]
    subscription, created = _subscription(connection, request, topic, partitions, now_ms)
    received = _received(request.received, subscription) if request.HasField("received") else None
    who = request.token, request.consumer_name
    consumer_id, waits = consumers.register(connection, subscription, *who, now_ms, received, counts=request.counts)
    cursors = subscriptions.cursors_of(connection, subscription.subscription_id)
    return Connected(topic, subscription, created, consumer_id, not waits, partitions, cursors)


def _subscription(
    connection: Connection,
    request: pb.ConsumeRequest.Subscribe,
    topic: Topic,
    partitions: list[PartitionView],
    now_ms: int,
) -> tuple[Subscription, bool]:
    """Return the subscription that is asked for, and True if it was made now."""
    kind = SUBSCRIPTION_TYPE.given(request.type)
    level = ISOLATION_LEVEL.from_wire(request.isolation_level)
    place = sub_wire.place_from_wire(request.place)
    found = subscriptions.find_any(connection, topic.topic_id, request.name)
    if found is not None:
        subscriptions.check_same(found, kind, level)
        if not found.durable:
            alive = consumers.alive(consumers.connected(connection, found.subscription_id), now_ms)
            if all(other.token == request.token for other in alive):
                # its only consumer comes back, and says itself how far it got
                subscriptions.seek(connection, found, partitions, place, None)
                found = subscriptions.find(connection, topic.topic_id, request.name)
        return found, False
    if level is None:
        raise SubscriptionNotFoundError(
            f"Topic {request.topic!r} has no subscription {request.name!r}, and none is made without a level.",
            "Create it first: `txnlog subscriptions create`.",
        )
    made = subscriptions.create(
        connection,
        topic.topic_id,
        partitions,
        request.name,
        kind,
        level,
        place,
        now_ms,
        durable=request.durable,
    )
    return made, True


def seek(work: Work, request: pb.SeekSubscriptionRequest) -> pb.SeekSubscriptionResponse:
    """Move a subscription, once for each request id."""
    place = sub_wire.place_from_wire(request.place)

    def seek(connection: Connection) -> pb.SeekSubscriptionResponse:
        topic_id = topics.find(connection, TopicName.parse(request.topic)).topic_id
        partitions = views.partition_views(connection, [topic_id])[topic_id]
        subscription = subscriptions.find(connection, topic_id, request.name)
        epoch = request.epoch if request.HasField("epoch") else None
        raised, at, moved = subscriptions.seek(connection, subscription, partitions, place, epoch)
        points = [sub_wire.point_to_wire(partition_id, key) for partition_id, key in sorted(at.items())]
        return pb.SeekSubscriptionResponse(epoch=raised, points=points, moved_partition_ids=moved)

    return work.once(request, pb.SeekSubscriptionResponse, seek)


@dataclass(frozen=True, slots=True)
class Redelivered:
    """What a redelivery did: the messages that the consumer has no more, or the epoch that it began."""

    messages: int = 0
    epoch: int | None = None


def redeliver(
    connection: Connection, subscription_id: int, consumer_id: int, told: pb.ConsumeRequest.Redeliver, *, counts: bool
) -> Redelivered:
    """Redeliver ranges of a shared subscription; of an ordered one all that isn't acknowledged, in a new epoch."""
    subscription, parts = _current(connection, subscription_id), _parts(told)
    if subscription.type is not SubscriptionType.SHARED:
        of = subscription, told.epoch, consumer_id, parts
        return Redelivered(epoch=subscriptions.redeliver_all(connection, *of, counts=counts))
    if told.epoch != subscription.epoch:
        return Redelivered()
    deliveries.redeliver(connection, subscription, consumer_id, parts, counts=counts)
    return Redelivered(sum(r.messages for _, ranges in parts for r in ranges))


def count(connection: Connection, subscription_id: int, consumer_id: int, told: pb.ConsumeRequest.Redeliver) -> None:
    """Count what a consumer is about to hand out once more."""
    subscription = _current(connection, subscription_id)
    if not consumers.is_connected(connection, subscription_id, consumer_id):
        raise lease_over()
    if told.epoch != subscription.epoch:
        raise StaleEpochError("The messages are of an older epoch.", "Receive again.")
    deliveries.count(connection, subscription_id, consumer_id, _parts(told))


def leave(
    connection: Connection, subscription_id: int, consumer_id: int, told: pb.ConsumeRequest.Redeliver, *, counts: bool
) -> None:
    """Disconnect a consumer that has reported its received messages."""
    subscription = _current(connection, subscription_id)
    received = _received(told, subscription)
    deliveries.redeliver(connection, subscription, consumer_id, received, counts=counts)
    consumers.remove(connection, consumer_id, reported=True)


def _current(connection: Connection, subscription_id: int) -> Subscription:
    """Return a consumer's subscription as it is now."""
    subscription = subscriptions.by_id(connection, subscription_id)
    if subscription is None:
        raise subscription_gone()
    return subscription


def _received(
    told: pb.ConsumeRequest.Redeliver, subscription: Subscription
) -> list[tuple[int, Sequence[MessageRange]]]:
    """Return the ranges that a consumer reports as received, by partition id; none of an older epoch."""
    return _parts(told) if told.epoch == subscription.epoch else []


def _parts(told: pb.ConsumeRequest.Redeliver) -> list[tuple[int, Sequence[MessageRange]]]:
    """Return the ranges of a request, by partition id."""
    return [(part.partition_id, sub_wire.ranges_from_wire(part.ranges)) for part in told.ranges]


def lease_over() -> UnavailableError:
    """Return the error of a consumer that isn't connected any more."""
    return UnavailableError("The consumer has lost its lease.", "It connects again by itself.")


def subscription_gone() -> SubscriptionNotFoundError:
    """Return the error of a consumer whose subscription was deleted."""
    return SubscriptionNotFoundError(
        "The subscription was deleted, or its topic was.", "Subscribe anew if that was not meant."
    )
