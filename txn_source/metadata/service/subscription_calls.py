"""The service's calls about subscriptions, and the conversations with their consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message
from sqlalchemy import Connection, Row, func, select

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.consumer_session import Conversation
from txn_source.metadata.delivery.next_entries import Stretch
from txn_source.metadata.delivery.wakeups import Changes
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.store import backlogs, consumers, copies, policies, subscriptions, topics, views
from txn_source.metadata.store.tables import deliveries, is_in, transaction_partitions
from txn_source.model.errors import SubscriptionNotFoundError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import OPEN
from txn_source.model.message_ranges import message_key, position_of
from txn_source.model.subscription import SubscriptionType
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import id_of

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class _Host(Protocol):
    """What these calls need of the service that they are part of."""

    changes: Changes

    @property
    def _configuration(self) -> Mapping[str, Any]: ...

    def _read(self) -> AbstractContextManager[Connection]: ...
    def _write(self, action: Callable[[Connection], T]) -> T: ...
    def _once(self, request: Any, response: type[R], action: Callable[[Connection], R]) -> R: ...
    def _now_ms(self) -> int: ...


class SubscriptionCalls:
    """Part of ``MetadataService``."""

    def CreateSubscription(self: _Host, request: pb.CreateSubscriptionRequest) -> pb.CreateSubscriptionResponse:
        kind, level = SubscriptionType.parse(request.type), IsolationLevel.parse(request.isolation_level)
        place = sub_wire.place_from_wire(request.place)

        def create(connection: Connection) -> pb.CreateSubscriptionResponse:
            topic_id, of_topic = _topic(connection, request.topic)
            subscriptions.create(connection, topic_id, of_topic, request.name, kind, level, place, self._now_ms())
            return pb.CreateSubscriptionResponse()

        return self._once(request, pb.CreateSubscriptionResponse, create)

    def ListSubscriptions(self: _Host, request: pb.ListSubscriptionsRequest) -> pb.ListSubscriptionsResponse:
        with self._read() as connection:
            forgotten = consumers.forgotten(connection, self._now_ms())
        if forgotten:
            self._write(lambda connection: consumers.remove_forgotten(connection, self._now_ms()))
        with self._read() as connection:
            topic_id, of_topic = _topic(connection, request.topic)
            if request.HasField("name"):
                rows = [subscriptions.find(connection, topic_id, request.name)]
            else:
                rows = list(subscriptions.of_topic(connection, topic_id))
            description = _Description(connection, of_topic, self.changes, self._now_ms(), brief=request.brief)
            return pb.ListSubscriptionsResponse(subscriptions=[description.of(row) for row in rows])

    def DeleteSubscription(self: _Host, request: pb.DeleteSubscriptionRequest) -> pb.DeleteSubscriptionResponse:
        def delete(connection: Connection) -> pb.DeleteSubscriptionResponse:
            topic_id, _ = _topic(connection, request.topic)
            row = subscriptions.find(connection, topic_id, request.name)
            subscriptions.remove(connection, row, self._now_ms())
            return pb.DeleteSubscriptionResponse()

        return self._once(request, pb.DeleteSubscriptionResponse, delete)

    def SeekSubscription(self: _Host, request: pb.SeekSubscriptionRequest) -> pb.SeekSubscriptionResponse:
        place = sub_wire.place_from_wire(request.place)

        def seek(connection: Connection) -> pb.SeekSubscriptionResponse:
            topic_id, of_topic = _topic(connection, request.topic)
            row = subscriptions.find(connection, topic_id, request.name)
            epoch = request.epoch if request.HasField("epoch") else None
            raised, at, moved = subscriptions.seek(connection, row, of_topic, place, epoch)
            points = [sub_wire.point_to_wire(partition_id, key) for partition_id, key in sorted(at.items())]
            return pb.SeekSubscriptionResponse(epoch=raised, points=points, moved_partition_ids=moved)

        return self._once(request, pb.SeekSubscriptionResponse, seek)

    def SetSubscriptionIsolationLevel(
        self: _Host, request: pb.SetSubscriptionIsolationLevelRequest
    ) -> pb.SetSubscriptionIsolationLevelResponse:
        level = IsolationLevel.parse(request.isolation_level)

        def change(connection: Connection) -> pb.SetSubscriptionIsolationLevelResponse:
            topic_id, of_topic = _topic(connection, request.topic)
            row = subscriptions.find(connection, topic_id, request.name)
            subscriptions.set_level(connection, row, of_topic, level, self._now_ms())
            return pb.SetSubscriptionIsolationLevelResponse()

        return self._once(request, pb.SetSubscriptionIsolationLevelResponse, change)

    def CountMessages(self: _Host, request: pb.CountMessagesRequest) -> pb.CountMessagesResponse:
        level, count = IsolationLevel.parse(request.isolation_level), 0
        points = sub_wire.points_from_wire(request.points)
        with self._read() as connection:
            for view in views.partitions_by_id(connection, list(points)):
                count += backlogs.visible_messages(connection, view, level, points[view.partition_id])
        return pb.CountMessagesResponse(messages=count)

    def Consume(self: _Host, requests: Iterable[pb.ConsumeRequest]) -> Iterator[pb.ConsumeResponse]:
        return Conversation(_Conversations(self)).hold(requests)

    def _acknowledge_consumed(
        self: _Host, connection: Connection, messages: Iterable[pb.SubscriptionAcknowledgements]
    ) -> None:
        for message in messages:
            subscriptions.acknowledge(connection, sub_wire.acknowledgement_from_wire(message), strict=True)

    def _tell_consumed(self: _Host, messages: Iterable[pb.SubscriptionAcknowledgements]) -> None:
        connected = self.changes.connected() if messages else {}
        for message in messages:
            if message.consumer_id in connected:
                count = sum(r.messages for part in message.partitions for r in part.ranges)
                connected[message.consumer_id].acknowledged(count)


@dataclass(frozen=True, slots=True)
class _Conversations:
    """What a conversation needs of the service."""

    service: Any

    @property
    def changes(self) -> Changes:
        return self.service.changes  # type: ignore[no-any-return]

    def read(self) -> Any:
        return self.service._read()

    def write(self, action: Callable[[Connection], T]) -> T:
        return self.service._write(action)  # type: ignore[no-any-return]

    def now_ms(self) -> int:
        return int(self.service._now_ms())

    def subscribe(
        self, connection: Connection, request: pb.ConsumeRequest.Subscribe
    ) -> tuple[Row[Any], Row[Any], bool]:
        """Find the subscription that a consumer asks for, or make it; return topic, subscription, and if it is new."""
        kind = SubscriptionType.parse(request.type)
        level = IsolationLevel.parse(request.isolation_level) if request.HasField("isolation_level") else None
        topic = topics.find(connection, TopicName.parse(request.topic))
        of_topic = views.partition_views(connection, [topic.topic_id])[topic.topic_id]
        place = sub_wire.place_from_wire(request.place)
        row = next((r for r in subscriptions.of_topic(connection, topic.topic_id) if r.name == request.name), None)
        if row is not None:
            subscriptions.check_same(row, kind, level)
            standing = consumers.alive(consumers.connected(connection, row.subscription_id), self.now_ms())
            if not row.durable and all(other.token == request.token for other in standing):
                # its only consumer comes back, and says itself how far it got
                subscriptions.seek(connection, row, of_topic, place, None)
                row = subscriptions.find(connection, topic.topic_id, request.name)
            return topic, row, False
        if level is None:
            raise SubscriptionNotFoundError(
                f"Topic {request.topic!r} has no subscription {request.name!r}, and none is made without a level.",
                "Create it first: `txnlog subscriptions create`.",
            )
        row = subscriptions.create(
            connection,
            topic.topic_id,
            of_topic,
            request.name,
            kind,
            level,
            place,
            self.now_ms(),
            durable=request.durable,
        )
        return topic, row, True

    def seek(self, request: pb.SeekSubscriptionRequest) -> pb.SeekSubscriptionResponse:
        return self.service.SeekSubscription(request)  # type: ignore[no-any-return]

    def first_copies(self, connection: Connection, topic: Row[Any], stretch: Stretch) -> pb.ListCopiesResponse:
        """Return what ListCopies would, for a stretch."""
        found = copies.listing(connection, stretch.partition_id, stretch.range)
        name = TopicName.parse(topic.name)
        in_force = policies.in_force(connection, name, topic.topic_id, self.service._configuration)
        return pb.ListCopiesResponse(
            ledgers=[convert.copies_to_wire(c) for c in found],
            data_read_priority=str(in_force["data_read_priority"].value),
        )


class _Description:
    """What a topic's subscriptions look like."""

    def __init__(
        self, connection: Connection, of_topic: list[PartitionView], changes: Changes, now_ms: int, *, brief: bool
    ) -> None:
        self._connection = connection
        self._views = {view.partition_id: view for view in of_topic}
        self._connected = changes.connected()
        self._now_ms = now_ms
        self._brief = brief

    def of(self, row: Row[Any]) -> pb.Subscription:
        """Return the message for a subscription."""
        level = subscriptions.level_of(row)
        message = pb.Subscription(
            subscription_id=row.subscription_id,
            name=row.name,
            type=row.type,
            isolation_level=row.isolation_level,
            durable=bool(row.durable),
            epoch=row.epoch,
            ignored_acknowledgements=row.ignored_acknowledgements,
        )
        behind = []
        for partition_id, cursor in subscriptions.cursors_of(self._connection, row.subscription_id).items():
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
            message.held_by.extend(convert.txn_to_wire(id_of(txn)) for txn in self._holding(behind))
        self._add_consumers(row, message)
        return message

    def _holding(self, partition_ids: list[int]) -> list[int]:
        t = transaction_partitions.c
        query = select(t.txn).where(t.partition_id.in_(partition_ids), is_in(t.state, OPEN)).distinct().order_by(t.txn)
        return list(self._connection.execute(query).scalars())

    def _add_consumers(self, row: Row[Any], message: pb.Subscription) -> None:
        shared = row.type == SubscriptionType.SHARED
        d = deliveries.c
        handed_out = {
            consumer_id: int(messages)
            for consumer_id, messages in self._connection.execute(
                select(d.consumer_id, func.sum(d.messages))
                .where(d.subscription_id == row.subscription_id)
                .group_by(d.consumer_id)
            )
        }
        message.redeliverable = handed_out.get(None, 0)
        rows = consumers.alive(consumers.connected(self._connection, row.subscription_id), self._now_ms)
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
