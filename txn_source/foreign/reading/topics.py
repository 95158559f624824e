"""The partitions of a read, at one moment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from txn_source.foreign.foreign_log import ForeignLog, ForeignPartition, PartitionName
from txn_source.foreign.formats import Format
from txn_source.foreign.target import ForeignTarget
from txn_source.model.bounds import Bounds
from txn_source.model.errors import InvalidArgumentError, TopicNotFoundError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.reading.places import Kept, Name
from txn_source.reading.request import Selection

_NAMED = 8


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """A partition of a read, with its bounds at the moment of the look."""

    name: PartitionName
    bounds: Bounds
    partition: ForeignPartition = field(compare=False)
    shown: Callable[[Position], int | str] = field(compare=False)
    """Returns a position as text, or as the number that it is in Kafka."""

    @property
    def label(self) -> str:
        """The partition's name for people."""
        return label(self.name)

    @property
    def identity(self) -> str | None:
        """Distinguishes the topic from another one of its name; None: unknown."""
        return self.partition.identity

    def has_lost(self, at: Position) -> bool:
        """True for each position below the log's start."""
        return at < self.bounds.log_start

    def trace(self, at: Position) -> Mapping[str, Any]:
        """Return facts that a checkpoint keeps beside a position."""
        return self.partition.trace(at)

    def again(self, begin: Kept, end: Kept, level: IsolationLevel) -> tuple[PositionRange, list[str]]:
        """Return the readable part of a batch that was planned before, and a text for each part that is gone."""
        until, first, upper = end.position, self.bounds.log_start, self.bounds.upper(level)
        assert until is not None
        start = first if begin.position is None else begin.position
        if self.is_other(end):
            return PositionRange(start, start), [f"is gone, and with it {self._between(start, until)} of a batch"]
        self.partition.without_late(end.trace, until)
        if start < first and self.partition.follows(begin.trace):
            start = first
        gone = []
        if start < first:
            lost = self._between(start, min(first, until))
            gone.append(f"begins at {self.shown(first)}: {lost} of a batch that was planned is gone")
        if until > upper:
            gone.append(f"shows {level} up to {self.shown(upper)} now, and {self._between(start, until)} was planned")
        low = max(start, first)
        return PositionRange(low, max(low, min(until, upper))), gone

    def gone_on(self, at: Kept) -> tuple[Position, list[str]]:
        """Return the position from which a stream goes on, and a text for each loss."""
        first, end = self.bounds.log_start, self.bounds.log_end
        if at.position is None:
            shown = self.shown(first)
            is_late = isinstance(shown, int) and shown > 0
            return first, [f"is new, and begins at {shown} already: what lay before is gone"] if is_late else []
        if self.is_other(at):
            return first, [f"was deleted and made again: its topic's id is {self.identity} now"]
        gone = [
            f"has {late} now, which came when the query was at {self.shown(at.position)} already"
            for late in self.partition.late(at.trace, at.position)
        ]
        if at.position < first:
            if not self.partition.follows(at.trace):
                gone.append(f"begins at {self.shown(first)}: {self._between(at.position, first)} is gone")
            return first, gone
        if at.position > end:
            gone.append(f"ends at {self.shown(end)}, and was read up to {self.shown(at.position)}")
        return at.position, gone

    def is_other(self, than: Kept) -> bool:
        """True if the topic is another one of that name."""
        return than.identity is not None and self.identity not in (None, than.identity)

    def _between(self, start: Position, end: Position) -> str:
        return f"[{self.shown(start)}, {self.shown(end)})"


class ForeignLook:
    """Partitions of another system's log, at one moment."""

    decisions = 0

    def __init__(self, target: ForeignTarget, log: ForeignLog, partitions: tuple[SeenPartition, ...]) -> None:
        self.log = log
        self.partitions = partitions
        self._target = target
        self.identity = log.identity

    @cached_property
    def payload(self) -> pa.Schema:
        """All columns that a read of the topics can name; raises SCHEMA_MISMATCH if the topics differ."""
        topics = list(dict.fromkeys(of.name.topic for of in self.partitions))
        return self._target.rules.columns(self.log, topics)


def label(name: Name) -> str:
    """Return a partition's name for people."""
    topic, number = name
    return topic if number < 0 else f"{topic}-{number}"


def topics_of(log: ForeignLog, rules: Format) -> dict[str, list[PartitionName]]:
    """Return the partitions of each topic that isn't the system's own, in order."""
    found: dict[str, list[PartitionName]] = {}
    for name in log.partitions():
        if not rules.is_internal(name.topic):
            found.setdefault(name.topic, []).append(name)
    return found


def names_of(log: ForeignLog, rules: Format, selection: Selection) -> list[PartitionName]:
    """Return the partitions that a selection takes, in the order of their topics' names in it.

    Raises:
        TopicNotFoundError: there is no topic, or no partition, of a name.
        InvalidArgumentError: the pattern is none.
    """
    there = log.partitions()
    if selection.pattern is not None:
        try:
            pattern = re.compile(selection.pattern)
        except re.error as error:
            raise InvalidArgumentError(
                f"{selection.pattern!r} is not a regular expression: {error}.", "Use one such as orders-.*."
            ) from None
        matching = [t for t in topics_of(log, rules) if any(map(pattern.fullmatch, rules.written(t)))]
        if not matching and not selection.if_there:
            raise TopicNotFoundError(f"No topic matches {selection.pattern!r}.", _there(log, rules))
        return [name for name in there if name.topic in matching]
    if selection.partitions is not None:
        wanted = sorted({PartitionName(*name) for name in selection.partitions})
        missing = [name for name in wanted if name not in there]
        if selection.if_there:
            return [name for name in wanted if name in there]
        if missing:
            raise TopicNotFoundError(f"There is no partition {missing[0]}.", _there(log, rules))
        return wanted
    found: dict[PartitionName, None] = {}
    for text in selection.topics or ():
        names = rules.find(text, there)
        if not names and not selection.if_there:
            raise TopicNotFoundError(f"There is no topic {text!r}.", _there(log, rules))
        found |= dict.fromkeys(names)
    return list(found)


def _there(log: ForeignLog, rules: Format) -> str:
    topics = list(topics_of(log, rules))
    more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
    return f"There are {', '.join(topics[:_NAMED])}{more}." if topics else "There are none but the system's own."
