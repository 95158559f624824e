"""Where a subscription is to stand: a place that people give, as messages of partitions that there are."""

from __future__ import annotations

from collections.abc import Mapping

from txn_source.client.access import Access
from txn_source.client.places import GivenPlace, Point, SubscriptionPlace
from txn_source.client.reading.footers import TieredPlanning
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, MessageId, Position, PositionRange
from txn_source.model.subscription import Place
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName


def resolve_place(access: Access, topic: TopicName, to: GivenPlace, level: IsolationLevel | None) -> Place:
    """Return where a value means to go: whatever ``Consumer.seek`` takes.

    A time stands for the first message published at or after it; where there is none below the level's bound, for the
    bound. ``latest`` in a mapping is the bound, too. Level None is read_committed.

    Raises:
        InvalidArgumentError: it is no place, or not one of this topic.
    """
    place = SubscriptionPlace.parse(to, topic)
    if place.everywhere is not None:
        return Place(place.everywhere)
    [view] = access.metadata.get_view([topic]).topics
    level = level or IsolationLevel.READ_COMMITTED
    if place.publish_time_us is not None:
        found = TieredPlanning(access).find_positions([p.partition_id for p in view.partitions], place.publish_time_us)
        bounds = {p.partition_id: p.bounds.upper(level) for p in view.partitions}
        return Place(messages={p: _message(min(at or bounds[p], bounds[p])) for p, at in found.items()})
    if place.bare is not None:
        partition_id = _partition_of(access.metadata, topic, view.partitions, place.bare)
        return Place(messages={partition_id: _message(place.bare)})
    return Place(messages=_named(topic, view.partitions, place.points, level))


def _message(at: MessageId | Position) -> MessageId:
    return at if isinstance(at, MessageId) else MessageId(at.ledger_id, at.entry_id)


def _partition_of(
    stub: MetadataStub, topic: TopicName, partitions: tuple[PartitionView, ...], at: MessageId | Position
) -> int:
    """Return the partition that a place is in: ledger ids are unique in the log."""
    if len(partitions) == 1:
        return partitions[0].partition_id
    position = at.position if isinstance(at, MessageId) else at
    for partition in partitions:
        if len(stub.list_ledgers(partition.partition_id, PositionRange(position, position))):
            return partition.partition_id
    raise InvalidArgumentError(
        f"No partition of topic {topic.short!r} has ledger {position.ledger_id}, so {at} names none.",
        'Name it: {"orders": {"0": "12:40"}}.',
    )


def _named(
    topic: TopicName, partitions: tuple[PartitionView, ...], points: Mapping[int, Point], level: IsolationLevel
) -> dict[int, MessageId]:
    by_index = {p.index: p for p in partitions}
    found = {}
    for index, point in points.items():
        partition = by_index.get(index)
        if partition is None:
            raise InvalidArgumentError(
                f"Topic {topic.short!r} has no partition {index!r}.", f"It has 0 to {len(partitions) - 1}."
            )
        if isinstance(point, str):
            point = partition.bounds.log_start if point == EARLIEST else partition.bounds.upper(level)
        found[partition.partition_id] = _message(point)
    return found
