"""What is to be read of a log that others wrote, and how."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace

from txn_source.foreign.foreign_log import PartitionName
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST, Position
from txn_source.model.values import dataclass

MAX_PARTITION_BYTES = 128 << 20
Point = Position | str
"""A position, or ``earliest`` or ``latest``."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a read. Of what says something about a partition its own point counts, then its own time.

    A position is inclusive as a start and exclusive as an end. A time, in milliseconds, stands for the first record of
    that time or a later one.
    """

    everywhere: str
    """``earliest`` or ``latest``: where partitions are that nothing else speaks of."""
    points: Mapping[PartitionName, Point] = field(default_factory=dict)
    times: Mapping[PartitionName, int] = field(default_factory=dict)
    time: int | None = None
    """Of all partitions without a point or a time of their own."""
    bare: Position | None = None
    """A position whose partition isn't named: allowed if just one is read."""
    must_match: bool = False
    """A time behind all records is an error; else it stands for the end."""
    complete: bool = False
    """All partitions must be named, as Kafka's connector wants it."""

    cut: bool = False
    """It may name partitions that aren't read, and names all that are."""

    def at(self, time: int) -> Side:
        """Return the side of the same default at a time in milliseconds."""
        return Side(self.everywhere, time=time)


@dataclass(frozen=True, slots=True)
class ForeignCut:
    """The same moment of several topics: up to where a reader of a level could read all of their partitions.

    ``scan`` takes it as start or end, and Spark its text as ``startingOffsets`` or ``endingOffsets``.
    """

    positions: Mapping[PartitionName, Position]
    isolation_level: IsolationLevel
    offset: Callable[[Position], int | Position] = field(compare=False, repr=False)

    def json(self) -> str:
        """Return the cut as text, ``{"level": "read_committed", "positions": {"orders": {"0": 42}}}``."""
        found: dict[str, dict[str, int | str]] = {}
        for name, position in self.positions.items():
            at = self.offset(position)
            found.setdefault(name.topic, {})[str(name.partition)] = at if isinstance(at, int) else str(at)
        return json.dumps({"level": self.isolation_level.value, "positions": found})

    def __str__(self) -> str:
        return self.json()


@dataclass(frozen=True, slots=True)
class Selection:
    """Which topics are read: exactly one of the three is given."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """A regular expression that the whole name matches."""
    partitions: tuple[PartitionName, ...] | None = None
    several: bool = True
    """By how they are named: what columns there are must not depend on how many topics match."""


_FROM_EARLIEST, _TO_LATEST = Side(EARLIEST), Side(LATEST)


@dataclass(frozen=True, slots=True)
class ForeignRequest:
    """How to read a selection."""

    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    start: Side = _FROM_EARLIEST
    end: Side = _TO_LATEST
    consistent_cut: bool = True
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_partition_bytes: int = MAX_PARTITION_BYTES

    def pinned(self) -> ForeignRequest:
        """Return what a task needs of it: it has ranges of its own."""
        return replace(self, start=_FROM_EARLIEST, end=_TO_LATEST)
