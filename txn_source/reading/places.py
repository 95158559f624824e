"""Places in a log: where a read begins or ends, and the cuts that several reads share.

A log names a partition by its topic, as that log has topics, and a number. A position is inclusive as a start and
exclusive as an end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from txn_source.model.isolation import IsolationLevel
from txn_source.model.place_text import PlaceText
from txn_source.model.position import MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count
from txn_source.model.values import dataclass

Name = tuple[Any, int]
"""A partition: its topic and its number; -1 is that of a topic without partitions."""
Place = Position | MessageId
"""An entry, or a message inside of one."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message of a time or a later one; of our own log that is the publish time."""

    us: int
    """Microseconds since 1970."""
    must_match: bool = False
    """It is an error if there is none; else that stands for the end."""

    @property
    def ms(self) -> int:
        """In whole milliseconds, rounded up: what is at or after it is at or after the time."""
        return -(-self.us // 1000)


@dataclass(frozen=True, slots=True)
class AsOf:
    """Where read_committed ended at a time."""

    us: int


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a stream has come to on a partition, as its checkpoint tells it."""

    position: Position | None
    """None: it has others, and this one is new."""
    identity: str | None = None
    """What told the topic from others of its name; None: nothing did."""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """What the partition noted of what lies below the position."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The same moment of several topics: up to where a reader of a level could read all of their partitions.

    At read_committed every transaction is wholly below it or wholly above it, as far as the log tells which ones are
    one. ``scan`` takes it as start or end, and Spark takes its text as ``startingOffsets`` or ``endingOffsets``, for
    reads of any of its topics.
    """

    positions: Mapping[Name, Position]
    isolation_level: IsolationLevel
    starts: Mapping[Name, Position] = field(default_factory=dict, repr=False, compare=False)
    """Where the partitions began then. Its text doesn't say it."""
    shown: Callable[[Place], int | str] = field(default=str, repr=False, compare=False)
    """Returns a position as the log's text has it."""

    def json(self) -> str:
        """Return the cut as text, ``{"level": "read_committed", "positions": {"orders": {"0": "12:40"}}}``."""
        positions = by_topic(self.positions, self.shown)
        return json.dumps({"level": self.isolation_level.value, "positions": positions})

    def __str__(self) -> str:
        return self.json()

    def __repr__(self) -> str:
        return f"<Cut of {format_count(len(self.positions), 'partition')} at {self.isolation_level}>"


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a read. Of what says something about a partition its own point counts, then its own time."""

    everywhere: str
    """``earliest`` or ``latest``: where partitions are that nothing else speaks of."""
    points: Mapping[Name, Place | str] = field(default_factory=dict)
    """Places, or one of these words."""
    time_us: int | None = None
    """Of all partitions without a point or a time of their own, as ``AtTime``."""
    times_us: Mapping[Name, int] = field(default_factory=dict)
    bare: Place | None = None
    """A place whose partition isn't named: allowed if just one is read."""
    cut: IsolationLevel | None = None
    """The level of the cut that the points are: they may name what isn't read, and must name all that is."""
    complete: bool = False
    """All partitions must be named, as Kafka's connector wants it."""
    must_match: bool = False
    """A time behind all messages is an error."""

    @classmethod
    def parse(cls, value: Any, default: str, grammar: PlaceText) -> Side:
        """Return the side that a value means.

        Args:
            value: None, a ``Side``, a ``Cut``, or what the log's grammar reads.
            default: what None, and partitions that aren't named, stand for.
            grammar: the log's.
        """
        match value:
            case None:
                return cls(default)
            case Side():
                return value
            case Cut():
                return cls(default, value.positions, cut=value.isolation_level)
        said = grammar.parse(value)
        cut = None if said.cut is None else IsolationLevel.parse(said.cut)
        return cls(said.everywhere or default, said.points, said.publish_time_us, bare=said.bare, cut=cut)

    def at(self, name: Name) -> Place | AtTime | str:
        """Return where the side is on a partition."""
        point = self.points.get(name, self.bare)
        if point is not None:
            return point
        time_us = self.times_us.get(name, self.time_us)
        return self.everywhere if time_us is None else AtTime(time_us, self.must_match)

    def inside(self, name: Name) -> MessageId | None:
        """Return the message at which the side is on a partition; None: it is between entries."""
        point = self.points.get(name, self.bare)
        return point if isinstance(point, MessageId) else None


@dataclass(frozen=True, slots=True)
class Inside:
    """Where a range begins and ends if that is inside an entry, which it then has in part.

    Ids are compared by entry and index; a message that is alone in its entry has index 0. None: between entries.
    """

    start: MessageId | None = None
    """The first message, inclusive. The range has its entry."""
    end: MessageId | None = None
    """The last one, exclusive. The range has its entry, or ends before it."""


def by_topic(
    places: Mapping[Name, Position] | Mapping[Name, MessageId] | Mapping[Name, Place],
    shown: Callable[[Place], int | str] = str,
) -> dict[str, dict[str, int | str]]:
    """Return places as JSON has them, ``{"orders": {"0": "12:40"}}``, sorted; a message at its entry's begin is that.

    Args:
        places: by partition.
        shown: returns a place as the log's text has it.
    """
    topics: dict[str, dict[str, int | str]] = {}
    for (topic, index), at in sorted(places.items()):
        name = topic.short if isinstance(topic, TopicName) else topic
        first = at.position if isinstance(at, MessageId) and at.batch_index == 0 else at
        topics.setdefault(name, {})[str(index)] = shown(first)
    return topics
