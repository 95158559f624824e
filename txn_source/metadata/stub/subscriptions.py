"""The client's rim of the service's calls about subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.protocol.enums import ISOLATION_LEVEL, SUBSCRIPTION_TYPE
from txn_source.metadata.stub.request_ids import request_id
from txn_source.metadata.stub.transport import Transport
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange, key_of
from txn_source.model.position import MessageId, Position
from txn_source.model.subscription import Place, SubscriptionType
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId
from txn_source.model.units import format_count


@dataclass(frozen=True, slots=True)
class SeekAnswer:
    """Where a subscription stands after a seek: the next message of each partition, by the partition's id.

    ``moved`` are the partitions at which the place asked for can't be stood at; they are at the nearest one.
    """

    epoch: int
    messages: Mapping[int, MessageId]
    moved: frozenset[int]


@dataclass(frozen=True, slots=True)
class SubscriptionPartition:
    """What a subscription has acknowledged of a partition: all below ``mark`` (``message_key``), and ranges above it.

    ``bound`` is exclusive, by the subscription's level. ``backlog`` are the messages that its level shows and that are
    not acknowledged.
    """

    partition_id: int
    partition: int
    mark: int
    acknowledged: tuple[MessageRange, ...]
    bound: Position
    backlog: int


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A connected consumer; one that isn't active waits for its turn. ``unacknowledged`` counts messages."""

    consumer_id: int
    name: str
    connected_at: datetime
    active: bool
    unacknowledged: int


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """A subscription as the service describes it.

    ``held_by`` are the open transactions behind which a part of the backlog waits, oldest first; read_committed only.
    ``redeliverable`` messages of a shared one wait to be handed out again.
    """

    subscription_id: int
    name: str
    type: SubscriptionType
    isolation_level: IsolationLevel
    durable: bool
    epoch: int
    ignored_acknowledgements: int
    partitions: tuple[SubscriptionPartition, ...]
    consumers: tuple[ConsumerInfo, ...]
    held_by: tuple[TxnId, ...]
    redeliverable: int

    @property
    def backlog(self) -> int:
        """Messages that its level shows and that aren't acknowledged, on all partitions."""
        return sum(p.backlog for p in self.partitions)

    def __repr__(self) -> str:
        facts = f"{self.type}, {self.isolation_level}, epoch {self.epoch}, backlog {self.backlog:,}"
        return f"<SubscriptionInfo {self.name}: {facts}, {format_count(len(self.consumers), 'consumer')}>"


class SubscriptionStub:
    """Part of ``MetadataStub``."""

    _transport: Transport

    def create_subscription(
        self,
        topic: TopicName,
        name: str,
        kind: SubscriptionType,
        level: IsolationLevel,
        place: Place,
    ) -> None:
        """Make a durable subscription that stands at a place."""
        request = pb.CreateSubscriptionRequest(
            request_id=request_id(),
            topic=str(topic),
            name=name,
            type=SUBSCRIPTION_TYPE.to_wire(kind),
            isolation_level=ISOLATION_LEVEL.to_wire(level),
            place=sub_wire.place_to_wire(place),
        )
        self._transport.call("CreateSubscription", request)

    def list_subscriptions(
        self, topic: TopicName, name: str | None = None, *, brief: bool = False
    ) -> list[SubscriptionInfo]:
        """Describe a topic's subscriptions, by name, or one of them; ``brief`` leaves backlogs and ``held_by`` out."""
        request = pb.ListSubscriptionsRequest(topic=str(topic), name=name, brief=brief)
        return [_info(message) for message in self._transport.call("ListSubscriptions", request).subscriptions]

    def delete_subscription(self, topic: TopicName, name: str) -> None:
        """Delete a subscription that no consumer is connected to."""
        request = pb.DeleteSubscriptionRequest(request_id=request_id(), topic=str(topic), name=name)
        self._transport.call("DeleteSubscription", request)

    def seek_subscription(self, topic: TopicName, name: str, place: Place, epoch: int | None = None) -> SeekAnswer:
        """Move a subscription and raise its epoch, to a given one or to the next."""
        request = seek_request(str(topic), name, place, epoch)
        return sought_from_wire(self._transport.call("SeekSubscription", request))

    def set_subscription_isolation_level(self, topic: TopicName, name: str, level: IsolationLevel) -> None:
        """Change the isolation level of a subscription that no consumer is connected to."""
        request = pb.SetSubscriptionIsolationLevelRequest(
            request_id=request_id(), topic=str(topic), name=name, isolation_level=ISOLATION_LEVEL.to_wire(level)
        )
        self._transport.call("SetSubscriptionIsolationLevel", request)

    def count_messages(self, level: IsolationLevel, cursors: Mapping[int, MessageId]) -> int:
        """Return how many messages a reader of a level sees from messages on, inclusive, by partition id."""
        request = pb.CountMessagesRequest(
            isolation_level=ISOLATION_LEVEL.to_wire(level),
            points=[sub_wire.point_to_wire(p, key_of(at)) for p, at in cursors.items()],
        )
        return int(self._transport.call("CountMessages", request).messages)


def _info(message: pb.Subscription) -> SubscriptionInfo:
    return SubscriptionInfo(
        message.subscription_id,
        message.name,
        SUBSCRIPTION_TYPE.given(message.type),
        ISOLATION_LEVEL.given(message.isolation_level),
        message.durable,
        message.epoch,
        message.ignored_acknowledgements,
        tuple(
            SubscriptionPartition(
                p.partition_id,
                p.partition,
                sub_wire.points_from_wire([p.mark])[p.partition_id],
                sub_wire.ranges_from_wire(p.acknowledged),
                Position.from_key(p.bound),
                p.backlog,
            )
            for p in sorted(message.partitions, key=lambda p: p.partition)
        ),
        tuple(
            ConsumerInfo(
                c.consumer_id,
                c.name,
                datetime.fromtimestamp(c.connected_at_ms / 1000, UTC),
                c.active,
                c.unacknowledged,
            )
            for c in message.consumers
        ),
        tuple(convert.txn_from_wire(txn) for txn in message.held_by),
        message.redeliverable,
    )


def seek_request(topic: str, name: str, place: Place, epoch: int | None) -> pb.SeekSubscriptionRequest:
    """Return the message for a seek."""
    return pb.SeekSubscriptionRequest(
        request_id=request_id(), topic=topic, name=name, place=sub_wire.place_to_wire(place), epoch=epoch
    )


def sought_from_wire(message: pb.SeekSubscriptionResponse) -> SeekAnswer:
    """Return what came of a seek."""
    return SeekAnswer(
        message.epoch, sub_wire.messages_from_wire(message.points), frozenset(message.moved_partition_ids)
    )
