"""What an import needs of a log that others wrote, whatever its format: rows in order, and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from txn_source.foreign.foreign_log import ForeignPartition, TransactionSpans
from txn_source.model.errors import DataLossError, InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.model.visibility import IntArray

UNDECIDED, COMMITTED, ABORTED = 0, 1, 2
BEYOND = (1 << 63) - 1
"""Above every position: the marker of an undecided transaction."""
_UNIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages in a row, as the target takes them; of each its ``Position.key``, and what names its transaction."""

    batch: pa.RecordBatch
    keys: IntArray
    names: IntArray
    """``NO_TXN`` of plain ones."""


Part = tuple[int, int, int, int, int, tuple[int, int] | None]
"""A transaction on a partition: name, first, marker, last, state and id."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Transactions on a partition, an element to each, by their first entries."""

    spans: TransactionSpans
    """``markers`` lie above all of their entries."""
    lasts: IntArray
    """Key of the last entry with data; that below the marker if it isn't known."""
    states: IntArray
    ids: Sequence[tuple[int, int] | None]
    """What names a transaction on all partitions of the log; None if the format doesn't tell."""

    @classmethod
    def of(cls, rows: Sequence[Part]) -> Parts:
        rows = sorted(rows, key=lambda row: row[1])
        table = np.array([row[:5] for row in rows], np.int64).reshape(-1, 5)
        names, firsts, markers, lasts, states = (np.ascontiguousarray(table[:, at]) for at in range(5))
        return cls(TransactionSpans(names, firsts, markers), lasts, states, [row[5] for row in rows])


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """A partition that is imported; its format says how its messages and transactions are read."""

    index: int
    """Its number in the target."""
    partition: ForeignPartition
    columns: Sequence[str]
    """The stored columns that ``converted`` takes."""
    converted: Callable[[pa.RecordBatch], Rows]
    """Returns stored messages as the target takes them."""
    parts: Callable[[PositionRange], Parts]
    """Returns the transactions that touch a range."""

    def check(self, trace: Mapping[str, Any], at: Position) -> Position:
        """Return where an import goes on that had come to a position: there, or at the log's start behind it.

        Raises:
            DataLossError: messages between the two are gone, or messages below the position came later.
            InvalidArgumentError: the log ends below the position.
        """
        bounds = self.partition.bounds()
        for late in self.partition.late(trace, at):
            raise DataLossError(
                f"Partition {self.index} has {late} now, which came when its import had come to {at} already.",
                "Delete the topic and import it again.",
            )
        if at < bounds.log_start:
            if self.partition.follows(trace):
                return bounds.log_start
            raise DataLossError(
                f"Partition {self.index} begins at {bounds.log_start}, and its import had come to {at}: what lies"
                " between was deleted before it was imported.",
                "Restore it in the source, or delete the topic and import it again.",
            )
        if at > bounds.log_end:
            raise InvalidArgumentError(
                f"Partition {self.index} ends at {bounds.log_end}, and its import had come to {at}.",
                "Import from the same log, or from a copy that isn't older.",
            )
        return at

    def ranges(self, of: PositionRange, size: int) -> list[PositionRange]:
        """Return ranges that make up a range, in order, of about so many bytes each; ``rows`` reads any of them."""
        return [unit.of for unit in self.partition.units(of, size)]

    def rows(self, of: PositionRange) -> Iterator[Rows]:
        """Yield all messages of a range, in order."""
        decisions = self.partition.decisions(of)
        for unit in self.partition.units(of, _UNIT_BYTES):
            for batch in self.partition.read(unit, IsolationLevel.READ_UNCOMMITTED, decisions, self.columns):
                yield self.converted(batch)


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic that is imported. ``identity`` tells it from another one of its name; see ``is_same``.

    ``schema`` has the types that keys and values are to have in the target; None: they are bytes.
    """

    name: str
    identity: str
    partitions: Sequence[SourcePartition]
    schema: pa.Schema | None = None

    @property
    def partition_count(self) -> int:
        """How many partitions the target needs."""
        return max(partition.index for partition in self.partitions) + 1


def is_same(identity: str, other: str) -> bool:
    """True unless identities differ in a part that both have: an id of a topic is known only where its file is."""
    parts, others = identity.split(":"), other.split(":")
    return len(parts) == len(others) and all(a == b or not (a and b) for a, b in zip(parts, others, strict=True))
