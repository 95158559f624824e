"""Subscriptions: how far they are, who consumes them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from txn_source.console.api.partitions import strips_of
from txn_source.console.query import in_order, page, text
from txn_source.console.snapshot import TopicFigures
from txn_source.console.viewer import Viewer
from txn_source.metadata.store import consumers
from txn_source.metadata.store import subscriptions as subscription_rows
from txn_source.metadata.store.backlog_figures import PartitionBacklog, SubscriptionFigures
from txn_source.metadata.store.cursor_places import cursor_places
from txn_source.metadata.store.figures import PartitionFigures
from txn_source.model.errors import SubscriptionNotFoundError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import text_of
from txn_source.model.topic_name import TopicName

_STRIP_PIECES = 50


def subscriptions(request: Request, viewer: Viewer) -> Any:
    """List the subscriptions of a topic, or of all; those of one isolation level if ``level`` is given."""
    name, level = request.query_params.get("topic"), request.query_params.get("level")
    wanted = None if level is None else IsolationLevel.parse(level)
    topics = [viewer.topic(name)] if name else viewer.topics()
    found = [each for topic in topics if viewer.sees_subscriptions(topic.name) for each in topic.subscriptions]
    rows = [row_of(each, viewer) for each in found if wanted is None or each.isolation_level is wanted]
    rows.sort(key=lambda row: (in_order(row["topic"]), in_order(row["name"])))
    return page(request, rows, viewer.snapshot.now_ms, ["topic", "name"])


def subscription(request: Request, viewer: Viewer) -> Any:
    """Describe one subscription, and its consumers."""
    topic, found = one(request, viewer)
    [info] = viewer.access.metadata.list_subscriptions(topic, found.name, brief=True)
    leases = viewer.service.look(lambda connection: consumers.connected(connection, info.subscription_id))
    by_id = {lease.consumer_id: lease for lease in leases}
    connected = []
    for consumer in info.consumers:
        lease = by_id.get(consumer.consumer_id)
        machine, _, pid = ("", "", "") if lease is None else lease.host.rpartition("|")
        connected.append(
            {
                "id": consumer.consumer_id,
                "name": consumer.name,
                "active": consumer.active,
                "connected_ms": round(consumer.connected_at.timestamp() * 1000),
                "unacknowledged": consumer.unacknowledged,
                "host": machine.partition("/")[0] or None,
                "pid": int(pid) if pid else None,
                "lease_until_ms": None if lease is None else lease.lease_until_ms,
            }
        )
    row = row_of(found, viewer) | {"redeliverable": info.redeliverable, "total_partitions": len(info.partitions)}
    return {"now_ms": viewer.snapshot.now_ms, **row, "consumers": len(connected), "connected": connected}


def subscription_partitions(request: Request, viewer: Viewer) -> Any:
    """List the partitions of a subscription: how far it is in each, on the partition's strip."""
    _, found = one(request, viewer)
    committed = found.isolation_level is IsolationLevel.READ_COMMITTED
    rows = [_partition_row(part, viewer.snapshot.partitions[part.partition_id], committed) for part in found.partitions]
    rows.sort(key=lambda row: row["partition"])
    listed = page(request, rows, viewer.snapshot.now_ms, ["partition"])
    parts = [viewer.snapshot.partitions[row["id"]] for row in listed["rows"]]
    strips = strips_of(viewer, parts, _STRIP_PIECES)
    ids = [part.partition_id for part in parts]
    places = viewer.service.look(lambda connection: cursor_places(connection, found.subscription_id, ids))
    for row in listed["rows"]:
        place = places.get(row["id"])
        if place is not None:
            row["mark"] = text_of(place.position) + (f":{place.index}" if place.index else "")
            row["cursor"] = place.messages
        row["strip"] = strips[row["id"]]
    return listed


def one(request: Request, viewer: Viewer) -> tuple[TopicName, SubscriptionFigures]:
    """Return the subscription that a request names.

    Raises:
        PermissionDeniedError: the visitor may not know who consumes the topic.
        SubscriptionNotFoundError: there is none of that name.
    """
    topic, name = viewer.topic(text(request, "topic")), text(request, "name")
    if not viewer.sees_subscriptions(topic.name):
        viewer.access.metadata.list_subscriptions(topic.name, name, brief=True)  # which is refused
    found = _named(topic, name)
    if found is None:  # it may be new
        viewer.service.look(lambda connection: subscription_rows.find(connection, topic.topic_id, name))
        viewer.look_again()
        found = _named(viewer.topic(topic.name.short), name)
    if found is None:
        raise SubscriptionNotFoundError(
            f"Topic {topic.name.short!r} has no subscription {name!r}.", "Choose another one."
        )
    return topic.name, found


def _named(topic: TopicFigures, name: str) -> SubscriptionFigures | None:
    return next((each for each in topic.subscriptions if each.name == name), None)


def row_of(found: SubscriptionFigures, viewer: Viewer) -> dict[str, Any]:
    """Return a subscription's row."""
    parts = viewer.snapshot.partitions
    held_back = 0
    if found.isolation_level is IsolationLevel.READ_COMMITTED:
        held_back = sum(parts[part.partition_id].held_back_messages for part in found.partitions)
    since_us = found.waits_since_us()
    return {
        "topic": viewer.snapshot.names[found.topic_id].short,
        "name": found.name,
        "type": found.type,
        "isolation_level": found.isolation_level.value,
        "durable": found.durable,
        "epoch": found.epoch,
        "consumers": found.consumers,
        "backlog": found.backlog,
        "waits_since_ms": None if since_us is None else since_us // 1000,
        "held_back_messages": held_back,
        "ignored_acknowledgements": found.ignored_acknowledgements,
    }


def _partition_row(part: PartitionBacklog, view: PartitionFigures, committed: bool) -> dict[str, Any]:
    return {
        "id": part.partition_id,
        "partition": view.index,
        "mark": text_of(part.mark),
        "cursor": None,
        "backlog": part.backlog,
        "held_back_messages": view.held_back_messages if committed else 0,
        "next_ms": None if part.next_us is None else part.next_us // 1000,
        "end": text_of(view.last_stable if committed else view.high_watermark),
    }
