"""Places in a log: the starts and ends of reads, and the cuts that several reads share.

A partition is named by its topic, in the log's own form, and a number. A place is inclusive as a start and exclusive as
an end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from txn_source.model.isolation import IsolationLevel
from txn_source.model.place_text import PlaceText
from txn_source.model.position import MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count

Name = tuple[Any, int]
"""A partition: its topic and its number, -1 if the topic has no partitions."""
Place = Position | MessageId
"""An entry, or a message inside one."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message at or after a time; on our own log, of the publish time."""

    us: int
    """Microseconds since 1970."""
    must_match: bool = False
    """True: it is an error if there is no such message. False: the place is then the end."""

    @property
    def ms(self) -> int:
        """The time in milliseconds, rounded up, so that no earlier message is included."""
        return -(-self.us // 1000)


@dataclass(frozen=True, slots=True)
class AsOf:
    """The end of read_committed at a time."""

    us: int


@dataclass(frozen=True, slots=True)
class Kept:
    """The progress of a stream on a partition, as its checkpoint has it."""

    position: Position | None
    """The next position to read; None: the partition is new to the query."""
    identity: str | None = None
    """Distinguishes the topic from others of its name; None: unknown."""
    trace: Mapping[str, Any] = field(default_factory=dict)
    """``SourcePartition.trace`` of the position."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One moment of several topics: the end of a read of all their partitions at an isolation level.

    At read_committed each transaction is wholly below it or wholly above it, as far as the log tells which entries
    belong to one transaction. ``scan`` takes a cut as start or end, and Spark takes its text as ``startingOffsets`` or
    ``endingOffsets``, for reads of any of its topics.
    """

    positions: Mapping[Name, Position]
    isolation_level: IsolationLevel
    starts: Mapping[Name, Position] = field(default_factory=dict, repr=False, compare=False)
    """The log's start on each partition at that moment; the text leaves it out."""
    shown: Callable[[Place], int | str] = field(default=str, repr=False, compare=False)
    """Returns a position as text, or as the number that it is in Kafka."""

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
    """One side of a read: start or end. On each partition its own point counts first, then its own time."""

    everywhere: str
    """``earliest`` or ``latest``, for partitions without a point or a time."""
    points: Mapping[Name, Place | str] = field(default_factory=dict)
    """Places, ``earliest`` or ``latest``."""
    time_us: int | None = None
    """For partitions without a point or a time of their own; see ``AtTime``."""
    times_us: Mapping[Name, int] = field(default_factory=dict)
    bare: Place | None = None
    """A place without a partition: allowed if the read has one partition."""
    cut: IsolationLevel | None = None
    """The points are a cut of this level: they must name all partitions of the read, and may name others."""
    complete: bool = False
    """True: the points must name all partitions, as Kafka's connector demands."""
    must_match: bool = False
    """True: a time after all messages is an error."""

    @classmethod
    def parse(cls, value: Any, default: str, grammar: PlaceText) -> Side:
        """Return the side that a value names.

        Args:
            value: None, a ``Side``, a ``Cut``, or a value that the grammar reads.
            default: ``earliest`` or ``latest``, for None and for partitions that aren't named.
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
        """Return the side's place on a partition."""
        point = self.points.get(name, self.bare)
        if point is not None:
            return point
        time_us = self.times_us.get(name, self.time_us)
        return self.everywhere if time_us is None else AtTime(time_us, self.must_match)

    def inside(self, name: Name) -> MessageId | None:
        """Return the side's message on a partition; None: the side lies between entries."""
        point = self.points.get(name, self.bare)
        return point if isinstance(point, MessageId) else None


@dataclass(frozen=True, slots=True)
class Inside:
    """The start and the end of a range, where they lie inside an entry.

    Ids are compared by entry and index; a message that is alone in its entry has index 0. None: between entries.
    """

    start: MessageId | None = None
    """The first message, inclusive; the range includes its entry."""
    end: MessageId | None = None
    """The end, exclusive; the range includes its entry, or ends before it."""


def by_topic(
    places: Mapping[Name, Position] | Mapping[Name, MessageId] | Mapping[Name, Place],
    shown: Callable[[Place], int | str] = str,
) -> dict[str, dict[str, int | str]]:
    """Return places in the form ``{"orders": {"0": "12:40"}}``, sorted; an entry's first message becomes the entry.

    Args:
        places: by partition.
        shown: returns a place as text, or as the number that it is in Kafka.
    """
    topics: dict[str, dict[str, int | str]] = {}
    for (topic, index), at in sorted(places.items()):
        name = topic.short if isinstance(topic, TopicName) else topic
        first = at.position if isinstance(at, MessageId) and at.batch_index == 0 else at
        topics.setdefault(name, {})[str(index)] = shown(first)
    return topics
