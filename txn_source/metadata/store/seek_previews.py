"""What a seek would do, before it is done: which messages would come again, and which never."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from txn_source.metadata.store import subscriptions, topics, views
from txn_source.metadata.store.backlogs import visible_before, visible_messages
from txn_source.metadata.store.counts import count
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import index_of, message_key, position_of
from txn_source.model.position import PositionRange
from txn_source.model.subscription import Cursor, Place
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class PartitionPreview:
    """A partition: where its mark is and would be (``message_key``), and messages of the subscription's level.

    ``repeated`` were acknowledged and would come again, ``skipped`` weren't and wouldn't come. ``moved``: the place
    isn't there, and this is the nearest one.
    """

    index: int
    start: int
    end: int
    repeated: int
    skipped: int
    moved: bool


@dataclass(frozen=True, slots=True)
class SeekPreview:
    """What a seek would do to a subscription that has ``epoch`` now; ``partitions`` by index."""

    epoch: int
    partitions: tuple[PartitionPreview, ...]


def seek_preview(connection: Connection, topic: TopicName, name: str, place: Place) -> SeekPreview:
    """Return what a seek would do now.

    Raises:
        TopicNotFoundError, SubscriptionNotFoundError: there is none.
        InvalidArgumentError: the place is in another topic's partition.
    """
    topic_id = topics.find(connection, topic).topic_id
    subscription = subscriptions.find(connection, topic_id, name)
    of_topic = views.partition_views(connection, [topic_id])[topic_id]
    cursors = subscriptions.cursors_of(connection, subscription.subscription_id)
    marks = {partition_id: cursor.mark for partition_id, cursor in cursors.items()}
    level = subscription.isolation_level
    at, moved = subscriptions.places(connection, of_topic, level, place, marks)
    found = []
    for view in sorted(of_topic, key=lambda view: view.index):
        key = view.partition_id
        stays = not place.where and key not in place.messages
        start, end = max(cursors[key].mark, message_key(view.bounds.log_start)), at[key]
        counted = (0, 0) if stays else _counted(connection, view, level, cursors[key], end)
        found.append(PartitionPreview(view.index, start, end, *counted, key in moved))
    return SeekPreview(subscription.epoch, tuple(found))


def _counted(
    connection: Connection, view: PartitionView, level: IsolationLevel, cursor: Cursor, end: int
) -> tuple[int, int]:
    """Return how many messages would come again, and how many wouldn't come."""
    cursor.acknowledge_up_to(message_key(view.bounds.log_start))
    start = cursor.mark
    if start == end and not len(cursor.ranges):
        return 0, 0
    between = _between(connection, view, level, min(start, end), max(start, end))
    below = sum(item.messages for item in cursor.ranges if item.end <= end)
    for item in cursor.ranges:
        if item.start < end < item.end:
            below += _between(connection, view, level, item.start, end)
    above = cursor.ranges.messages - below
    return (between + above, 0) if end <= start else (above, max(0, between - below))


def _between(connection: Connection, view: PartitionView, level: IsolationLevel, start: int, end: int) -> int:
    """Return how many messages the level shows of ``[start, end)``."""
    bound = view.bounds.upper(level)
    first, last = min(position_of(start), bound), min(position_of(end), bound)
    found = count(connection, view.partition_id, PositionRange(first, last), level)
    if found is None or found.ledger_ids:  # entries have left the database: about as many
        return visible_messages(connection, view, level, start) - visible_messages(connection, view, level, end)
    inside = [visible_before(connection, view, level, key) if index_of(key) else 0 for key in (start, end)]
    return found.messages - inside[0] + inside[1]
