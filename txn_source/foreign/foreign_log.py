"""What every log that others wrote offers to a planner and to readers, whatever its format.

Positions are the model's, so bounds, levels, aborted sets and what is visible are decided by the model alone. An
*entry* is what the format gives one header and at most one transaction: a record batch of Kafka, an entry of Pulsar. It
begins at a position; Kafka's takes as many as it has offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from txn_source.model.bounds import Bounds
from txn_source.model.errors import TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.model.transaction import TransactionState
from txn_source.model.visibility import IntArray, needed
from txn_source.reading.places import Inside


class PartitionName(NamedTuple):
    """A partition of a topic, as the format names topics."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class TransactionSpans:
    """Transactions of a partition, an element to each: what its entries name it by, and from where to where it reaches.

    What names it may name others, too (Kafka's producer id), but none whose entries lie between its first and its
    marker.
    """

    names: IntArray
    firsts: IntArray
    """``Position.key`` of the first entry, inclusive."""
    markers: IntArray
    """That of the marker, inclusive."""

    @classmethod
    def none(cls) -> TransactionSpans:
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty)

    def needed(self, of: PositionRange) -> TransactionSpans:
        """Return those that a read of a range needs."""
        which = needed(self.firsts, self.markers, of.start.key, of.end.key)
        return TransactionSpans(self.names[which], self.firsts[which], self.markers[which])

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Decisions:
    """What is known of a partition's transactions when a read is planned; small, and sent with each task."""

    aborted: TransactionSpans
    undecided: TransactionSpans
    """Their ``markers`` lie beyond every position."""

    def needed(self, of: PositionRange) -> Decisions:
        """Return what a read of a part of the range needs."""
        return Decisions(self.aborted.needed(of), self.undecided.needed(of))


@dataclass(frozen=True, slots=True)
class ForeignTransaction:
    """A transaction on one partition.

    Where a format has no producer ids, id and epoch are the two parts of the transaction's own id.
    """

    producer_id: int
    producer_epoch: int
    """That of its data; -1 if only its marker is left."""
    first: Position
    last: Position | None
    """Its last entry with data; None if that isn't known."""
    marker: Position | None
    """None: it is undecided."""
    state: TransactionState
    identity: tuple[int, int] | None = None
    """What names it on every partition, and nothing else; None if the format doesn't tell."""


@dataclass(frozen=True, slots=True)
class ReadUnit:
    """What one task can read: a range of a partition, about how much that is, and where it begins to look."""

    of: PositionRange
    rows: int
    """An estimate."""
    bytes: int
    """An estimate."""
    place: str
    """The object that has the range's first entry, and where in it to begin: hints, which may be out of date."""
    at: int
    inside: Inside | None = None
    """Of formats whose messages have no positions of their own: which messages of entries are left out."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The beginning of a range: where it ends, and how many records and stored bytes lie in it."""

    end: Position
    rows: int
    bytes: int


class ForeignPartition(Protocol):
    """A partition; what it answers is what the storage shows at that moment."""

    @property
    def name(self) -> PartitionName:
        """Topic and number."""

    @property
    def identity(self) -> str | None:
        """What tells the topic from another one of its name before or after it; None: nothing does, or needs to."""

    def resume(self, before: ForeignPartition) -> None:
        """Take over what was learnt of the same partition when it was looked at before, so that this needs less."""

    def bounds(self) -> Bounds:
        """Return the four bounds."""

    def decisions(self, of: PositionRange, as_of: Position | None = None) -> Decisions:
        """Return what a read of a range below the high watermark needs to know.

        With ``as_of`` it is what was known when the log ended there: markers at or above that don't count. So a batch
        of read_uncommitted shows the same statuses whenever it is read.
        """

    def units(self, of: PositionRange, unit_bytes: int) -> list[ReadUnit]:
        """Return ranges that make up a range, in order, of about so many bytes each."""

    def take(self, of: PositionRange, rows: int, size: int) -> Taken:
        """Return the beginning of a range that has at most so many records, and about so many bytes; not nothing."""

    def read(
        self,
        unit: ReadUnit,
        level: IsolationLevel,
        decisions: Decisions,
        columns: Sequence[str],
        skipped: Callable[[TxnLogError], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a unit that the level shows, in the log's order.

        ``skipped`` is told of what is damaged or lost, and the read goes on behind it; None: that raises.
        """

    def count(self, unit: ReadUnit, level: IsolationLevel, decisions: Decisions) -> int | None:
        """Return how many rows ``read`` would yield; None: they must be read to know."""

    def transactions(self, of: PositionRange) -> list[ForeignTransaction]:
        """Return the transactions that touch a range, by their first position."""

    def firsts(self, identities: Collection[tuple[int, int]], of: PositionRange) -> Mapping[tuple[int, int], Position]:
        """Return where transactions have their first data on the partition, of those that have some in a range."""

    def position_at(self, timestamp: int) -> Position | None:
        """Return the first position of a record whose time, in milliseconds, is at or after one; None if none is."""

    def trace(self, at: Position) -> Mapping[str, Any]:
        """Return what a stream is to keep with a position that it has come to, as JSON; empty: nothing.

        ``end`` is ``log`` in it where nothing was left to read: if all files of the topic are gone then, none is lost.
        """

    def follows(self, trace: Mapping[str, Any]) -> bool:
        """True if the log's start is known to be what comes next behind the position of a trace."""

    def late(self, trace: Mapping[str, Any], at: Position) -> Sequence[str]:
        """Return what lies below the position of a trace now, and didn't then: it was passed over, as text."""

    def without_late(self, trace: Mapping[str, Any], at: Position) -> None:
        """Leave out what ``late`` tells, from now on."""


class NoTraces:
    """Of partitions of a format whose positions tell all that there is to tell."""

    def trace(self, at: Position) -> Mapping[str, Any]:
        return {}

    def follows(self, trace: Mapping[str, Any]) -> bool:
        return False

    def late(self, trace: Mapping[str, Any], at: Position) -> Sequence[str]:
        return ()

    def without_late(self, trace: Mapping[str, Any], at: Position) -> None:
        return


class ForeignLog(Protocol):
    """A log that others wrote."""

    @property
    def identity(self) -> str | None:
        """What tells it from another log that lies there before or after it; None: nothing does."""

    def partitions(self) -> list[PartitionName]:
        """Return all partitions, in order."""

    def partition(self, name: PartitionName) -> ForeignPartition:
        """Return one, or raise TOPIC_NOT_FOUND."""
