"""A place in topics, as people write it: where a read starts or ends, or where a subscription is to stand.

There is one way to write one: ``earliest``, ``latest``, a position (``12:40``), a message id (``12:40:3``), a moment,
or a mapping (or its JSON) from topic to partition to one of the first four. ``Offsets`` is what it means to a read,
which begins and ends between entries; ``SubscriptionPlace`` what it means to a subscription, which stands at messages.
``Sought`` is where one stands after a seek.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

from txn_source.client.stream_offset import by_topic
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.moments import micros, time_us
from txn_source.model.position import EARLIEST, LATEST, MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count
from txn_source.model.values import dataclass

Point = Position | MessageId | str
"""A place in one partition: at an entry, at a message, or ``earliest`` or ``latest``."""

GivenPlace = str | Position | MessageId | datetime | Mapping[Any, Any]
"""A place as callers give it; what is none of these, or can't be read, is refused."""

_POINT = re.compile(r"[0-9]+(:[0-9]+){1,2}")
_INDEX = re.compile("[0-9]{1,9}")


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
        return cls(parsed.everywhere or default, positions, parsed.publish_time_us, bare, parsed.cut)

    @classmethod
    def at_time(cls, text: str, default: str) -> Offsets:
        """Return the offsets of a publish time, as ``time_us`` reads it."""
        return cls(default, publish_time_us=time_us(text))


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
        if parsed.mapping is not None and parsed.topics != {topic}:
            raise InvalidArgumentError(f"{parsed.mapping!r:.120} doesn't name topic {topic.short!r} alone.", SEEK_HINT)
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


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What a value says, before it is known which partitions there are; with the mapping that it is, and its topics."""

    everywhere: str | None = None
    points: Mapping[tuple[TopicName, int], Point] = field(default_factory=dict)
    publish_time_us: int | None = None
    bare: Position | MessageId | None = None
    cut: IsolationLevel | None = None
    mapping: Mapping[Any, Any] | None = None
    topics: frozenset[TopicName] = frozenset()


@dataclass(frozen=True, slots=True)
class _Words:
    """What the parser says of what can't be; the remedy is always ``hint``. ``value`` is what it is about."""

    refused: str
    not_json: str
    not_partitions: str
    not_an_index: str
    what: str
    hint: str

    def error(self, text: str, value: object, topic: object = None, why: str = "") -> InvalidArgumentError:
        """Return the error with a text of these, and what was found out besides."""
        return InvalidArgumentError(text.format(value=value, topic=topic) + why, self.hint)


@dataclass(frozen=True, slots=True)
class _Parser:
    """The parser.

    ``other`` reads text that is neither a point nor JSON, ``point`` a value in a mapping, and ``cuts`` allows the forms
    of a cut and of a stream's progress.
    """

    words: _Words
    other: Callable[[str], _Parsed]
    point: Callable[[Any], Position | MessageId]
    cuts: bool

    def parse(self, value: Any) -> _Parsed:
        """Return what a value says."""
        match value:
            case Position() | MessageId():
                return _Parsed(bare=value)
            case datetime():
                return _Parsed(publish_time_us=micros(value))
            case Mapping():
                return self._mapping(value)
            case str():
                return self._text(value.strip())
        raise self.words.error(self.words.refused, value)

    def _text(self, text: str) -> _Parsed:
        if text.lower() in (EARLIEST, LATEST):
            return _Parsed(text.lower())
        if text.startswith("{"):
            try:
                return self.parse(json.loads(text, object_pairs_hook=self._without_twins))
            except json.JSONDecodeError as error:
                raise self.words.error(self.words.not_json, text, why=f" ({error}).") from None
        return _Parsed(bare=_point(text)) if _POINT.fullmatch(text) else self.other(text)

    def _mapping(self, value: Mapping[Any, Any]) -> _Parsed:
        level = _level_of_cut(value) if self.cuts else None
        if self.cuts and ("epoch" in value or level) and isinstance(value.get("positions"), Mapping):
            value = value["positions"]  # as a streaming query's progress, or a cut, has it
        found: dict[tuple[TopicName, int], Point] = {}
        topics = set()
        for topic, partitions in value.items():
            name = TopicName.parse(topic)
            topics.add(name)
            if not isinstance(partitions, Mapping):
                raise self.words.error(self.words.not_partitions, partitions, topic)
            for index, point in partitions.items():
                place = name, self._index(topic, index)
                if place in found:
                    what = f"The {self.words.what} name partition {place[1]} of topic {topic!r} twice."
                    raise InvalidArgumentError(what, self.words.hint)
                everywhere = isinstance(point, str) and point.strip().lower() in (EARLIEST, LATEST)
                found[place] = point.strip().lower() if everywhere else self.point(point)
        return _Parsed(points=found, cut=level, mapping=value, topics=frozenset(topics))

    def _index(self, topic: Any, index: Any) -> int:
        if isinstance(index, str) and _INDEX.fullmatch(index):
            index = int(index)
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise self.words.error(self.words.not_an_index, index, topic)
        return index

    def _without_twins(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"The {self.words.what} name one of {names} twice.", self.words.hint)
        return dict(pairs)


def _point(value: Any) -> Position | MessageId:
    """Return the entry or the message that a value or its text names."""
    if isinstance(value, MessageId) or (isinstance(value, str) and value.count(":") == 2):
        return MessageId.parse(value)
    return Position.parse(value)


def _position_of_a_partition(value: Any) -> Position | MessageId:
    """Return where a partition's offset lies: its text has two parts, as in what streams write."""
    return value if isinstance(value, MessageId) else Position.parse(value)


def _not_a_position(text: str) -> _Parsed:
    try:
        return _Parsed(bare=Position.parse(text))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.fact, _OFFSETS_HINT) from None


def _time_of_publishing(text: str) -> _Parsed:
    try:
        return _Parsed(publish_time_us=time_us(text))
    except InvalidArgumentError:
        raise InvalidArgumentError(f"{text!r:.120} is no place in a topic.", SEEK_HINT) from None


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


def _level_of_cut(value: Mapping[Any, Any]) -> IsolationLevel | None:
    return IsolationLevel.parse(value["level"]) if value.keys() == {"level", "positions"} else None


_OFFSETS_HINT = 'Use earliest, latest, a position such as "12:40", or JSON such as {"orders": {"0": "12:40"}}.'
SEEK_HINT = 'Use earliest, latest, a message id such as "12:40:3", a position, a time, or {"orders": {"0": "12:40"}}.'
_OFFSETS = _Parser(
    _Words(
        refused="{value!r:.120} are not offsets.",
        not_json="The offsets {value!r:.120} are not JSON",
        not_partitions="The offsets of topic {topic!r} are {value!r:.80}.",
        not_an_index="{value!r} is not a partition of topic {topic!r}.",
        what="offsets",
        hint=_OFFSETS_HINT,
    ),
    _not_a_position,
    _position_of_a_partition,
    cuts=True,
)
_SUBSCRIPTION = _Parser(
    _Words(
        refused="{value!r:.120} is no place in a topic.",
        not_json="{value!r:.120} is not JSON",
        not_partitions="{value!r:.120} are no partitions and places.",
        not_an_index="Topic {topic!r} has no partition {value!r:.80}.",
        what="places",
        hint=SEEK_HINT,
    ),
    _time_of_publishing,
    _point_to_stand_at,
    cuts=False,
)
