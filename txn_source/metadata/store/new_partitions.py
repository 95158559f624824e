"""Partitions that are added to a topic, in one database transaction with where its subscriptions stand in them."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, func, insert, literal, select

from txn_source.metadata.store import topic_changes
from txn_source.metadata.store.database import note_change
from txn_source.metadata.store.tables import cursors, partitions, subscriptions
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.topic import Topic


def add_partitions(connection: Connection, topic: Topic, count: int, now_ms: int) -> int:
    """Give a topic more partitions, so many in all; return how many were added, 0 if it had as many.

    Each subscription of the topic stands at the start of each new one, wherever it began on the others: what is written
    there comes after the subscription was made.

    Raises:
        InvalidArgumentError: it has more than that, or no topic can have so many.
    """
    topic_changes.check_count(count)
    there = int(connection.execute(_COUNT, {"topic_id": topic.topic_id}).scalar_one())
    if count < there:
        raise InvalidArgumentError(
            f"Topic {topic.name.short!r} has {there} partitions and can't have {count}: none can be taken away.",
            f"Use {there} or more, or make a topic with {count} and copy the messages there.",
        )
    if count > there:
        topic_changes.create_partitions(connection, topic.topic_id, range(there, count), now_ms)
        connection.execute(_BEGIN, {"topic_id": topic.topic_id, "there": there, "none": b""})
        note_change(connection, topic.topic_id)
    return count - there


_COUNT = select(func.count()).select_from(partitions).where(partitions.c.topic_id == bindparam("topic_id"))
_BEGIN = insert(cursors).from_select(
    ["subscription_id", "partition_id", "mark_position", "mark_index", "ranges", "read_position"],
    select(
        subscriptions.c.subscription_id,
        partitions.c.partition_id,
        partitions.c.log_start,
        literal(0),
        bindparam("none", type_=cursors.c.ranges.type),
        partitions.c.log_start,
    )
    .join(partitions, partitions.c.topic_id == subscriptions.c.topic_id)
    .where(subscriptions.c.topic_id == bindparam("topic_id"), partitions.c.partition_index >= bindparam("there")),
)
