"""Moving a subscription: first what it would do, then doing it, if nobody else has moved it meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from txn_source.client.consuming.subscription_places import resolve_place
from txn_source.client.places import GivenPlace
from txn_source.console.query import given
from txn_source.console.viewer import Viewer
from txn_source.metadata.store.seek_previews import PartitionPreview, seek_preview
from txn_source.metadata.stub.subscriptions import SubscriptionInfo
from txn_source.model.errors import InvalidArgumentError, StaleEpochError
from txn_source.model.message_ranges import index_of, message_id_of, position_of
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.subscription import Place
from txn_source.model.topic_name import TopicName

_SHOWN = 1000
_LATEST_MS = 253_402_300_799_000
_WAYS = 'Use {"at": "earliest"}, {"at": "latest"}, {"time_ms": 0} or {"positions": {"0": "12:40"}}.'


def preview(body: bytes, viewer: Viewer) -> Any:
    """Say what a seek would do. Nothing is changed."""
    asked = given(body, ["topic", "name", "to"])
    topic, info, place = _place(asked, viewer)
    found = viewer.service.look(lambda connection: seek_preview(connection, topic, info.name, place))
    partitions = found.partitions
    warnings = [
        f"Partition {part.index}: the place isn't there; the nearest one is {_shown(part.end)}."
        for part in [part for part in partitions if part.moved][:20]
    ]
    if info.consumers:
        who = "1 consumer is" if len(info.consumers) == 1 else f"{len(info.consumers):,} consumers are"
        warnings.append(f"{who} connected: what they have is dropped, their acknowledgements of it don't count.")
    moving = [part for part in partitions if part.start != part.end or part.repeated]
    listed = partitions if len(partitions) <= _SHOWN else moving
    return {
        "epoch": found.epoch,
        "isolation_level": info.isolation_level.value,
        "consumers": len(info.consumers),
        "repeated_messages": sum(part.repeated for part in partitions),
        "skipped_messages": sum(part.skipped for part in partitions),
        "partitions": [_row(part) for part in listed[:_SHOWN]],
        "partitions_total": len(partitions),
        "partitions_moving": len(moving),
        "warnings": warnings,
    }


def seek(body: bytes, viewer: Viewer) -> Any:
    """Move a subscription.

    Raises:
        StaleEpochError: it has another epoch than the one that the preview had.
    """
    asked = given(body, ["topic", "name", "to", "epoch"])
    epoch = asked["epoch"]
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < 1 << 62:
        raise InvalidArgumentError(f"{epoch!r:.80} is no epoch.", "Give the one of the preview.")
    topic, info, place = _place(asked, viewer)
    if info.epoch != epoch:
        raise StaleEpochError(
            f"Subscription {info.name!r} has epoch {info.epoch}, and the preview had {epoch}.",
            "Somebody has moved it: look where it stands, then seek again.",
        )
    # The next one after the preview's: if somebody moves it now, it is refused.
    answer = viewer.access.metadata.seek_subscription(topic, info.name, place, epoch + 1)
    viewer.look_again()
    indexes = {part.partition_id: part.partition for part in info.partitions}
    stands = sorted((indexes[key], str(at)) for key, at in answer.messages.items() if key in indexes)
    return {
        "epoch": answer.epoch,
        "partitions": [{"partition": index, "at": at} for index, at in stands[:_SHOWN]],
        "partitions_total": len(answer.messages),
        "moved": sorted(indexes[key] for key in answer.moved if key in indexes)[:_SHOWN],
    }


def _place(asked: dict[str, Any], viewer: Viewer) -> tuple[TopicName, SubscriptionInfo, Place]:
    """Return the subscription that is asked about, and where it is to go; judged as what the visitor does."""
    name = asked["name"]
    if not isinstance(asked["topic"], str) or not isinstance(name, str):
        raise InvalidArgumentError("The topic and the subscription are no texts.", "Name them.")
    topic = TopicName.parse(asked["topic"])
    [info] = viewer.access.metadata.list_subscriptions(topic, name, brief=True)
    to = _given(asked["to"], topic)
    return topic, info, resolve_place(viewer.access, topic, to, info.isolation_level)


def _given(to: Any, topic: TopicName) -> GivenPlace:
    """Return a place as ``Log.seek`` takes it."""
    match to:
        case {"at": str(where), **rest} if not rest and where in (EARLIEST, LATEST):
            return where
        case {"time_ms": int(at_ms), **rest} if not rest and 0 <= at_ms <= _LATEST_MS:
            return datetime.fromtimestamp(at_ms / 1000, UTC)
        case {"positions": dict(positions), **rest} if not rest and positions:
            return {str(topic): positions}
    raise InvalidArgumentError(f"{to!r:.120} is no place to go to.", _WAYS)


def _row(part: PartitionPreview) -> dict[str, Any]:
    return {
        "partition": part.index,
        "from": _shown(part.start),
        "to": _shown(part.end),
        "repeated": part.repeated,
        "skipped": part.skipped,
        "moved": part.moved,
    }


def _shown(key: int) -> str:
    return str(message_id_of(key) if index_of(key) else position_of(key))
