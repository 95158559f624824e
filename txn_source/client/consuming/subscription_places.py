"""Where a subscription is to stand: a value that people give, as a place of the service's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from txn_source.client.access import Access
from txn_source.client.reading.footers import TieredPlanning
from txn_source.client.reading.offsets import Offsets
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import message_key
from txn_source.model.position import EARLIEST, LATEST, MessageId, Position, PositionRange
from txn_source.model.subscription import Place
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName

_HINT = 'Use earliest, latest, a message id such as "12:40:3", a position, a time, or {"orders": {"0": "12:40"}}.'


def placed(access: Access, topic: TopicName, to: Any, level: IsolationLevel | None) -> Place:
    """Return where a value means to go: ``earliest`` or ``latest``, and places (``message_key``) by partition id.

    A time stands for the first message published at or after it; where there is none below the level's bound, for the
    bound.
    """
    if isinstance(to, str):
        to = _parsed(to.strip())
        if isinstance(to, str):
            return Place(to)
    stub = access.metadata
    [view] = stub.get_view([topic]).topics
    partitions = view.partitions
    match to:
        case datetime() | Offsets():
            micros = Offsets.parse(to, LATEST).publish_time_us
            assert micros is not None
            found = TieredPlanning(access).find_positions([p.partition_id for p in partitions], micros)
            bounds = {p.partition_id: p.bounds.upper(level or IsolationLevel.READ_COMMITTED) for p in partitions}
            points = {p: message_key(min(at or bounds[p], bounds[p])) for p, at in found.items()}
            return Place(points=points)
        case MessageId() | Position():
            return Place(points={_partition_of(stub, topic, partitions, to): _place(to)})
        case Mapping():
            return Place(points=_named(topic, partitions, to, level))
    raise InvalidArgumentError(f"{to!r:.120} is no place in a topic.", _HINT)


def _parsed(text: str) -> Any:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidArgumentError(f"{text!r:.120} is not JSON ({error}).", _HINT) from None
    digits = text.replace(":", "").isdigit()
    if digits and text.count(":") == 2:
        return MessageId.parse(text)
    if digits and text.count(":") == 1:
        return Position.parse(text)
    try:
        return Offsets.at_time(text, LATEST)
    except InvalidArgumentError:
        raise InvalidArgumentError(f"{text!r:.120} is no place in a topic.", _HINT) from None


def _place(at: MessageId | Position) -> int:
    return message_key(at.position, at.batch_index) if isinstance(at, MessageId) else message_key(at)


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
    topic: TopicName, partitions: tuple[PartitionView, ...], to: Mapping[Any, Any], level: IsolationLevel | None
) -> dict[int, int]:
    if set(map(str, to)) - {topic.short, str(topic)} or len(to) != 1:
        raise InvalidArgumentError(f"{to!r:.120} doesn't name topic {topic.short!r} alone.", _HINT)
    [of_topic] = to.values()
    if not isinstance(of_topic, Mapping):
        raise InvalidArgumentError(f"{of_topic!r:.120} are no partitions and places.", _HINT)
    by_index = {str(p.index): p for p in partitions}
    found = {}
    for index, at in of_topic.items():
        partition = by_index.get(str(index))
        if partition is None:
            raise InvalidArgumentError(
                f"Topic {topic.short!r} has no partition {index!r}.", f"It has 0 to {len(partitions) - 1}."
            )
        if isinstance(at, str):
            at = _parsed(at.strip())
        if at == EARLIEST:
            at = partition.bounds.log_start
        elif at == LATEST:
            at = partition.bounds.upper(level or IsolationLevel.READ_COMMITTED)
        if not isinstance(at, MessageId | Position):
            raise InvalidArgumentError(f"{at!r:.120} is no place in a partition.", _HINT)
        found[partition.partition_id] = _place(at)
    return found
