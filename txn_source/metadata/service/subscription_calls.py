"""The service's calls about subscriptions, and the conversations with their consumers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery import subscribing
from txn_source.metadata.delivery.consumer_hub import ConsumerHub
from txn_source.metadata.delivery.conversation import Conversation
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.protocol.enums import ISOLATION_LEVEL, SUBSCRIPTION_TYPE
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import (
    backlogs,
    consumers,
    deliveries,
    subscriptions,
    topics,
    transactions,
    views,
)
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.caller import Ending
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import message_key, position_of
from txn_source.model.subscription import SubscriptionType
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import id_of

T = TypeVar("T")


class SubscriptionCalls:
    """Calls about subscriptions, and what their consumers say; ``hub`` has those that are connected here."""

    def __init__(self, work: UnitOfWork, hub: ConsumerHub) -> None:
        self._work = work
        self._hub = hub

    def CreateSubscription(self, request: pb.CreateSubscriptionRequest) -> pb.CreateSubscriptionResponse:
        kind, level = SUBSCRIPTION_TYPE.given(request.type), ISOLATION_LEVEL.given(request.isolation_level)
        place = sub_wire.place_from_wire(request.place)

        def create(connection: Connection) -> pb.CreateSubscriptionResponse:
            topic_id, of_topic = _topic(connection, request.topic)
            subscriptions.create(connection, topic_id, of_topic, request.name, kind, level, place, self._work.now_ms())
            return pb.CreateSubscriptionResponse()

        return self._work.once(request, pb.CreateSubscriptionResponse, create)

    def ListSubscriptions(self, request: pb.ListSubscriptionsRequest) -> pb.ListSubscriptionsResponse:
        with self._work.read() as connection:
            forgotten = consumers.forgotten(connection, self._work.now_ms())
        if forgotten and not self._work.read_only:
            self._work.write(lambda connection: consumers.remove_forgotten(connection, self._work.now_ms()))
        with self._work.read() as connection:
            topic_id, of_topic = _topic(connection, request.topic)
            if request.HasField("name"):
                rows = [subscriptions.find(connection, topic_id, request.name)]
            else:
                rows = list(subscriptions.of_topic(connection, topic_id))
            description = _Description(connection, of_topic, self._hub, self._work.now_ms(), brief=request.brief)
            return pb.ListSubscriptionsResponse(subscriptions=[description.of(subscription) for subscription in rows])

    def DeleteSubscription(self, request: pb.DeleteSubscriptionRequest) -> pb.DeleteSubscriptionResponse:
        def delete(connection: Connection) -> pb.DeleteSubscriptionResponse:
            topic_id, _ = _topic(connection, request.topic)
            subscription = subscriptions.find(connection, topic_id, request.name)
            subscriptions.remove(connection, subscription, self._work.now_ms())
            return pb.DeleteSubscriptionResponse()

        return self._work.once(request, pb.DeleteSubscriptionResponse, delete)

    def SeekSubscription(self, request: pb.SeekSubscriptionRequest) -> pb.SeekSubscriptionResponse:
        return subscribing.seek(self._work, request)

    def SetSubscriptionIsolationLevel(
        self, request: pb.SetSubscriptionIsolationLevelRequest
    ) -> pb.SetSubscriptionIsolationLevelResponse:
        level = ISOLATION_LEVEL.given(request.isolation_level)

        def change(connection: Connection) -> pb.SetSubscriptionIsolationLevelResponse:
            topic_id, of_topic = _topic(connection, request.topic)
            subscription = subscriptions.find(connection, topic_id, request.name)
            subscriptions.set_level(connection, subscription, of_topic, level, self._work.now_ms())
            return pb.SetSubscriptionIsolationLevelResponse()

        return self._work.once(request, pb.SetSubscriptionIsolationLevelResponse, change)

    def CountMessages(self, request: pb.CountMessagesRequest) -> pb.CountMessagesResponse:
        level, count = ISOLATION_LEVEL.given(request.isolation_level), 0
        points = sub_wire.points_from_wire(request.points)
        with self._work.read() as connection:
            for view in views.partitions_by_id(connection, list(points)):
                count += backlogs.visible_messages(connection, view, level, points[view.partition_id])
        return pb.CountMessagesResponse(messages=count)

    def Consume(
        self, requests: Iterable[pb.ConsumeRequest], ending: Ending | None = None
    ) -> Iterator[pb.ConsumeResponse]:
        return Conversation(self._work, self._hub).hold(requests, ending)


class _Description:
    """What a topic's subscriptions look like."""

    def __init__(
        self, connection: Connection, of_topic: list[PartitionView], hub: ConsumerHub, now_ms: int, *, brief: bool
    ) -> None:
        self._connection = connection
        self._views = {view.partition_id: view for view in of_topic}
        self._connected = hub.connected()
        self._now_ms = now_ms
        self._brief = brief

    def of(self, subscription: Subscription) -> pb.Subscription:
        """Return the message for a subscription."""
        level = subscription.isolation_level
        message = pb.Subscription(
            subscription_id=subscription.subscription_id,
            name=subscription.name,
            type=SUBSCRIPTION_TYPE.to_wire(subscription.type),
            isolation_level=ISOLATION_LEVEL.to_wire(subscription.isolation_level),
            durable=subscription.durable,
            epoch=subscription.epoch,
            ignored_acknowledgements=subscription.ignored_acknowledgements,
        )
        behind = []
        for partition_id, cursor in subscriptions.cursors_of(self._connection, subscription.subscription_id).items():
            view = self._views[partition_id]
            message.partitions.add(
                partition_id=partition_id,
                partition=view.index,
                mark=sub_wire.point_to_wire(partition_id, max(cursor.mark, message_key(view.bounds.log_start))),
                acknowledged=[sub_wire.range_to_wire(r) for r in cursor.ranges],
                bound=view.bounds.upper(level).key,
                backlog=0 if self._brief else backlogs.backlog(self._connection, view, level, cursor),
            )
            if position_of(cursor.mark) < view.bounds.high_watermark > view.bounds.last_stable:
                behind.append(partition_id)
        if level is IsolationLevel.READ_COMMITTED and behind and not self._brief:
            message.held_by.extend(
                convert.txn_to_wire(id_of(txn)) for txn in transactions.open_on(self._connection, behind)
            )
        self._add_consumers(subscription, message)
        return message

    def _add_consumers(self, subscription: Subscription, message: pb.Subscription) -> None:
        shared = subscription.type == SubscriptionType.SHARED
        handed_out = deliveries.handed_out(self._connection, subscription.subscription_id)
        message.redeliverable = handed_out.get(None, 0)
        rows = consumers.alive(consumers.connected(self._connection, subscription.subscription_id), self._now_ms)
        for number, consumer in enumerate(rows):
            here = self._connected.get(consumer.consumer_id)
            unacknowledged = consumer.unacknowledged if here is None else here.unacknowledged
            message.consumers.add(
                consumer_id=consumer.consumer_id,
                name=consumer.name,
                connected_at_ms=consumer.connected_at_ms,
                active=shared or number == 0,
                unacknowledged=handed_out.get(consumer.consumer_id, 0) if shared else unacknowledged,
            )


def _topic(connection: Connection, name: str) -> tuple[int, list[PartitionView]]:
    topic_id = topics.find(connection, TopicName.parse(name)).topic_id
    return topic_id, views.partition_views(connection, [topic_id])[topic_id]
