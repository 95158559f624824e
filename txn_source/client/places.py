"""A place in topics, as people write it: where a read starts or ends, or where a subscription is to stand.

There is one way to write one (``model/place_text.py``): ``earliest``, ``latest``, a position (``12:40``), a message id
(``12:40:3``), a moment, or a mapping (or its JSON) from topic to partition to one of the first four. ``Side`` is what
it means to a read, which begins and ends between entries; ``SubscriptionPlace`` what it means to a subscription, which
stands at messages. ``Sought`` is where one stands after a seek.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.moments import time_us
from txn_source.model.place_text import Parsed, PlaceText
from txn_source.model.position import MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.reading.places import Side

Point = Position | MessageId | str
"""A place in one partition: at an entry, at a message, or ``earliest`` or ``latest``."""

GivenPlace = str | Position | MessageId | datetime | Mapping[Any, Any]
"""A place as callers give it; what is none of these, or can't be read, is refused."""

_POINT = re.compile(r"[0-9]+(:[0-9]+){1,2}")
_TIME = re.compile(r"\d{4}-.*|-?\d+")


@dataclass(frozen=True, slots=True)
class SubscriptionPlace:
    """Where a subscription of one topic is to stand.

    One of the four says it: ``everywhere`` (``earliest`` or ``latest``), the first message published at or after
    ``publish_time_us``, ``bare`` (a place whose partition isn't named), or ``points`` by partition index.
    """

    everywhere: str | None = None
    publish_time_us: int | None = None
    bare: Position | MessageId | None = None
    points: Mapping[int, Point] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: GivenPlace, topic: TopicName) -> SubscriptionPlace:
        """Return the place in a topic that a value means.

        Args:
            value: ``earliest``, ``latest``, a ``Position`` or ``MessageId`` or its text, a datetime with a time zone
                or a text that ``time_us`` reads, or a mapping (or its JSON) from the topic to partition to place.
            topic: the only one that a mapping may name.
        """
        parsed = _SUBSCRIPTION.parse(value)
        if parsed.topics is not None and parsed.topics != {topic}:
            raise InvalidArgumentError(f"{value!r:.120} doesn't name topic {topic.short!r} alone.", SEEK_HINT)
        points = {index: point for (_, index), point in parsed.points.items()}
        return cls(parsed.everywhere, parsed.publish_time_us, parsed.bare, points)


@dataclass(frozen=True, slots=True, eq=False)
class Sought(Mapping[int, MessageId]):
    """Where a subscription stands after a seek: the next message of each partition, by the partition's index.

    It is a mapping, and compares as one: ``sought[0]`` is the id of the next message of partition 0. At the end of a
    partition that is the id that its next message will have at the earliest.

    Attributes:
        epoch: the subscription's, which the seek has begun.
        places: what the mapping has.
        moved: the partitions, by index, in which the place asked for isn't there; they are at the nearest one.
    """

    epoch: int
    places: Mapping[int, MessageId]
    moved: frozenset[int] = frozenset()

    def __getitem__(self, partition: int) -> MessageId:
        return self.places[partition]

    def __iter__(self) -> Iterator[int]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def parse_side(value: Any, default: str) -> Side:
    """Return the side of a read that a value means.

    Args:
        value: None, ``earliest``, ``latest``, a ``Position`` or its text, a ``MessageId`` (or its text) that is the
            first one of its entry, a datetime with a time zone, a ``Cut``, or a mapping (or its JSON) from topic to
            partition to position.
        default: what None, and partitions not named, stand for.
    """
    return Side.parse(value, default, _OFFSETS)


def side_at(text: str, default: str) -> Side:
    """Return the side that is at a publish time, as ``time_us`` reads it."""
    return Side(default, time_us=time_us(text))


def side_of_text(text: str | None, default: str) -> Side:
    """Return the side that a text of the command line means, which may be a publish time, too."""
    is_time = text is not None and _TIME.fullmatch(text.strip())
    return side_at(text, default) if text is not None and is_time else parse_side(text, default)


def _partition(topic: TopicName, index: int) -> tuple[TopicName, int]:
    return topic, index


def _point(value: Any) -> Position | MessageId:
    """Return the entry or the message that a value or its text names."""
    if isinstance(value, MessageId) or (isinstance(value, str) and value.count(":") == 2):
        return MessageId.parse(value)
    return Position.parse(value)


def _position_of_a_partition(value: Any) -> Position:
    """Return where a partition's offset lies: its text has two parts, as in what streams write."""
    return _between_entries(value if isinstance(value, MessageId) else Position.parse(value))


def _offset(value: Any) -> Parsed:
    if isinstance(value, Position | MessageId) or (isinstance(value, str) and _POINT.fullmatch(value)):
        return Parsed(bare=_between_entries(_point(value)))
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{value!r:.120} is no place in a topic.", _OFFSETS_HINT)
    try:
        return Parsed(bare=Position.parse(value))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.fact, _OFFSETS_HINT) from None


def _message_or_time(value: Any) -> Parsed:
    try:
        if isinstance(value, Position | MessageId) or (isinstance(value, str) and _POINT.fullmatch(value)):
            return Parsed(bare=_point(value))
        if isinstance(value, str):
            return Parsed(publish_time_us=time_us(value))
    except InvalidArgumentError:
        pass
    raise InvalidArgumentError(f"{value!r:.120} is no place in a topic.", SEEK_HINT)


def _point_to_stand_at(value: Any) -> Position | MessageId:
    try:
        return _point(value)
    except InvalidArgumentError:
        raise InvalidArgumentError(f"{value!r:.120} is no place in a partition.", SEEK_HINT) from None


def _between_entries(point: Position | MessageId) -> Position:
    """Return the position of the entry that a message is the first one of."""
    if isinstance(point, Position):
        return point
    if point.batch_index:
        raise InvalidArgumentError(
            f"Message {point} lies inside its entry, and a read starts and ends between entries.",
            f"Use {point.position} for the entry with all of its messages, or {point.position.plus(1)} for the next.",
        )
    return point.position


_OFFSETS_HINT = 'Use earliest, latest, a position such as "12:40", or JSON such as {"orders": {"0": "12:40"}}.'
SEEK_HINT = 'Use earliest, latest, a message id such as "12:40:3", a position, a time, or {"orders": {"0": "12:40"}}.'
_OFFSETS = PlaceText(TopicName.parse, _partition, _position_of_a_partition, _offset, _OFFSETS_HINT, cuts=True)
_SUBSCRIPTION = PlaceText(TopicName.parse, _partition, _point_to_stand_at, _message_or_time, SEEK_HINT)
