"""What is to be read of a log that others wrote, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from txn_source.foreign.foreign_log import PartitionName
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST, Position

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

    def at(self, time: int) -> Side:
        """Return the side of the same default at a time in milliseconds."""
        return Side(self.everywhere, time=time)


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
