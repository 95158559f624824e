"""A place in topics, as people write it: where a read starts or ends, or where a subscription is to stand.

There is one way to write one (``model/place_text.py``): ``earliest``, ``latest``, a position (``12:40``), a message id
(``12:40:3``), a moment, or a mapping (or its JSON) from topic to partition to one of the first four. ``Offsets`` is
what it means to a read, which begins and ends between entries; ``SubscriptionPlace`` what it means to a subscription,
which stands at messages. ``Sought`` is where one stands after a seek.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

from txn_source.client.stream_offset import by_topic
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.moments import time_us
from txn_source.model.place_text import Parsed, PlaceText
from txn_source.model.position import MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count
from txn_source.model.values import dataclass

Point = Position | MessageId | str
"""A place in one partition: at an entry, at a message, or ``earliest`` or ``latest``."""

GivenPlace = str | Position | MessageId | datetime | Mapping[Any, Any]
"""A place as callers give it; what is none of these, or can't be read, is refused."""

_POINT = re.compile(r"[0-9]+(:[0-9]+){1,2}")
_TIME = re.compile(r"\d{4}-.*|-?\d+")


@dataclass(frozen=True, slots=True)
class Cut:
    """The same moment of several topics: up to where a reader of a level could read all of their partitions.

    At read_committed every transaction is wholly below it or wholly above it. ``scan`` takes it as start or end, and
    Spark takes its text as ``startingOffsets`` or ``endingOffsets``, for reads of any of its topics.
    """

    positions: Mapping[tuple[TopicName, int], Position]
    isolation_level: IsolationLevel
    starts: Mapping[tuple[TopicName, int], Position] = field(default_factory=dict, repr=False, compare=False)
    """Where the partitions began then. Its text doesn't say it."""

    def json(self) -> str:
        """Return the cut as text, ``{"level": "read_committed", "positions": {"orders": {"0": "12:40"}}}``."""
        return json.dumps({"level": self.isolation_level.value, "positions": by_topic(self.positions)})

    def __str__(self) -> str:
        return self.json()

    def __repr__(self) -> str:
        return f"<Cut of {format_count(len(self.positions), 'partition')} at {self.isolation_level}>"


@dataclass(frozen=True, slots=True)
class Offsets:
    """One side of a read. Partitions that ``positions`` doesn't name are at ``default``.

    A position is the next one to read: inclusive as a start, exclusive as an end. ``publish_time_us``, if set, stands
    for the first message published at or after it. ``bare`` is a position whose partition isn't named: allowed if
    just one is read. ``cut`` is the level of the cut that the positions are: they may name topics that aren't read, and
    must name all that are.
    """

    default: str
    positions: Mapping[tuple[TopicName, int], Position | str] = field(default_factory=dict)
    publish_time_us: int | None = None
    bare: Position | None = None
    cut: IsolationLevel | None = None

    @classmethod
    def parse(cls, value: Any, default: str) -> Offsets:
        """Return the offsets that a value means.

        Args:
            value: None, ``earliest``, ``latest``, a ``Position`` or its text, a ``MessageId`` (or its text) that is
                the first one of its entry, a datetime with a time zone, a ``Cut``, or a mapping (or its JSON) from
                topic to partition to position.
            default: what None, and partitions not named, stand for.
        """
        match value:
            case None:
                return cls(default)
            case Offsets():
                return value
            case Cut():
                return cls(default, positions=value.positions, cut=value.isolation_level)
        parsed = _OFFSETS.parse(value)
        bare = None if parsed.bare is None else _between_entries(parsed.bare)
        positions = {
            place: point if isinstance(point, str) else _between_entries(point)
            for place, point in parsed.points.items()
        }
        cut = None if parsed.cut is None else IsolationLevel.parse(parsed.cut)
        return cls(parsed.everywhere or default, positions, parsed.publish_time_us, bare, cut)

    @classmethod
    def at_time(cls, text: str, default: str) -> Offsets:
        """Return the offsets of a publish time, as ``time_us`` reads it."""
        return cls(default, publish_time_us=time_us(text))

    @classmethod
    def of_text(cls, text: str | None, default: str) -> Offsets:
        """Return the offsets that a text of the command line means, which may be a publish time, too."""
        is_time = text is not None and _TIME.fullmatch(text.strip())
        return cls.at_time(text, default) if text is not None and is_time else cls.parse(text, default)


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


def _partition(topic: TopicName, index: int) -> tuple[TopicName, int]:
    return topic, index


def _point(value: Any) -> Position | MessageId:
    """Return the entry or the message that a value or its text names."""
    if isinstance(value, MessageId) or (isinstance(value, str) and value.count(":") == 2):
        return MessageId.parse(value)
    return Position.parse(value)


def _position_of_a_partition(value: Any) -> Position | MessageId:
    """Return where a partition's offset lies: its text has two parts, as in what streams write."""
    return value if isinstance(value, MessageId) else Position.parse(value)


def _offset(value: Any) -> Parsed:
    if isinstance(value, Position | MessageId) or (isinstance(value, str) and _POINT.fullmatch(value)):
        return Parsed(bare=_point(value))
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
