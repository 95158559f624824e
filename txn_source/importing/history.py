"""What an import needs of a log that others wrote, whatever its format: rows in order, and transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from txn_source.foreign.foreign_log import ForeignPartition, TransactionSpans
from txn_source.model.bounds import Bounds
from txn_source.model.errors import DataLossError, InvalidArgumentError
from txn_source.model.position import Position, PositionRange
from txn_source.model.values import dataclass
from txn_source.model.visibility import IntArray

UNDECIDED, COMMITTED, ABORTED = 0, 1, 2


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


class SourcePartition(Protocol):
    """A partition that is imported; ``index`` is its number in the target."""

    index: int

    @property
    def partition(self) -> ForeignPartition:
        """The source's own."""

    def bounds(self) -> Bounds:
        """Return the four bounds."""

    def trace(self, at: Position) -> Mapping[str, Any]:
        """Return what is to be kept with a position that an import has come to; see ``ForeignPartition.trace``."""

    def check(self, trace: Mapping[str, Any], at: Position) -> Position:
        """Return where an import goes on that had come to a position: there, or at the log's start behind it.

        Raises:
            DataLossError: what lies between is gone, or something lies below that came later.
            InvalidArgumentError: the log ends below.
        """

    def parts(self, of: PositionRange) -> Parts:
        """Return the transactions that touch a range."""

    def ranges(self, of: PositionRange, size: int) -> list[PositionRange]:
        """Return ranges that make up a range, in order, of about so many bytes each; ``rows`` reads any of them."""

    def rows(self, of: PositionRange) -> Iterator[Rows]:
        """Yield all messages of a range but markers, in order."""


def checked_start(of: ForeignPartition, index: int, trace: Mapping[str, Any], at: Position) -> Position:
    """Return where the import of a partition goes on; see ``SourcePartition.check``."""
    bounds = of.bounds()
    for late in of.late(trace, at):
        raise DataLossError(
            f"Partition {index} has {late} now, which came when its import had come to {at} already.",
            "Delete the topic and import it again.",
        )
    if at < bounds.log_start:
        if of.follows(trace):
            return bounds.log_start
        raise DataLossError(
            f"Partition {index} begins at {bounds.log_start}, and its import had come to {at}: what lies between was"
            " deleted before it was imported.",
            "Restore it in the source, or delete the topic and import it again.",
        )
    if at > bounds.log_end:
        raise InvalidArgumentError(
            f"Partition {index} ends at {bounds.log_end}, and its import had come to {at}.",
            "Import from the same log, or from a copy that isn't older.",
        )
    return at


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
