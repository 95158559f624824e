"""Protobuf to model and back, for subscriptions."""

from __future__ import annotations

from collections.abc import Iterable

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import enums
from txn_source.model.acknowledgement import Acknowledged, Acknowledgement
from txn_source.model.message_ranges import MessageRange, index_of, message_id_of, message_key, position_of
from txn_source.model.position import MessageId, Position
from txn_source.model.subscription import Place


def point_to_wire(partition_id: int, key: int) -> pb.MessagePoint:
    """Return the message for a place (``message_key``) in a partition."""
    return pb.MessagePoint(partition_id=partition_id, position=position_of(key).key, index=index_of(key))


def points_from_wire(points: Iterable[pb.MessagePoint]) -> dict[int, int]:
    """Return places by partition id."""
    return {p.partition_id: message_key(Position.from_key(p.position), p.index) for p in points}


def messages_from_wire(points: Iterable[pb.MessagePoint]) -> dict[int, MessageId]:
    """Return the same as the ids of messages."""
    return {partition_id: message_id_of(key) for partition_id, key in points_from_wire(points).items()}


def place_to_wire(place: Place) -> pb.SubscriptionPlace:
    """Return the message for where a subscription is to stand."""
    points = [point_to_wire(partition_id, key) for partition_id, key in sorted(place.keys.items())]
    return pb.SubscriptionPlace(where=enums.TOPIC_END.to_wire(place.where or None), points=points)


def place_from_wire(message: pb.SubscriptionPlace) -> Place:
    """Return where a subscription is to stand."""
    return Place(enums.TOPIC_END.from_wire(message.where) or "", messages_from_wire(message.points))


def range_to_wire(item: MessageRange) -> pb.MessageRange:
    """Return the message for a range."""
    return pb.MessageRange(
        start_position=position_of(item.start).key,
        start_index=index_of(item.start),
        end_position=position_of(item.end).key,
        end_index=index_of(item.end),
        messages=item.messages,
    )


def ranges_from_wire(messages: Iterable[pb.MessageRange]) -> tuple[MessageRange, ...]:
    """Return the ranges in messages."""
    return tuple(
        MessageRange(
            message_key(Position.from_key(m.start_position), m.start_index),
            message_key(Position.from_key(m.end_position), m.end_index),
            m.messages,
        )
        for m in messages
    )


def acknowledged_to_wire(part: Acknowledged) -> pb.Acknowledgements:
    """Return the message for what is acknowledged of a partition."""
    return pb.Acknowledgements(
        partition_id=part.partition_id,
        ranges=[range_to_wire(item) for item in part.ranges],
        up_to=None if part.up_to is None else point_to_wire(part.partition_id, part.up_to),
    )


def acknowledgement_to_wire(ack: Acknowledgement) -> pb.SubscriptionAcknowledgements:
    """Return the message for an acknowledgement."""
    return pb.SubscriptionAcknowledgements(
        subscription_id=ack.subscription_id,
        consumer_id=ack.consumer_id,
        epoch=ack.epoch,
        partitions=[acknowledged_to_wire(part) for part in ack.partitions],
    )


def acknowledgement_from_wire(message: pb.SubscriptionAcknowledgements) -> Acknowledgement:
    """Return the acknowledgement in a message."""
    parts = []
    for part in message.partitions:
        up_to = (
            message_key(Position.from_key(part.up_to.position), part.up_to.index) if part.HasField("up_to") else None
        )
        parts.append(Acknowledged(part.partition_id, ranges_from_wire(part.ranges), up_to))
    return Acknowledgement(message.subscription_id, message.consumer_id, message.epoch, tuple(parts))
