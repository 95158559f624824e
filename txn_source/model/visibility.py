"""Which entries of a range a reader of a level sees: the aborted set, and one flag per entry.

Prior art is Kafka's ``TransactionIndex.collectAbortedTxns``; Kafka sends (producer, first offset) without the marker,
so its reader must walk the range in order. With the transaction's own id and both ends, a range splits anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import PositionRange

NO_TXN = -1
"""Stands for "no transaction" in arrays of transaction numbers; a real number is never negative."""

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def needed(firsts: Any, markers: Any, start: Any, end: Any) -> Any:
    """Return which decided transactions a read of ``[start, end)`` needs: those that touch it.

    A transaction reaches from its first entry on the partition to its marker, both inclusive.

    Args:
        firsts: ``Position.key`` of each one's first entry: an array, or a column of the database, of which a condition
            is made.
        markers: that of its marker, likewise.
        start: the key of the range's start, inclusive; of a column also a parameter.
        end: that of its end, exclusive.
    """
    return (markers >= start) & (firsts < end)


def visible(
    positions: IntArray, txns: IntArray, markers: BoolArray, of: PositionRange, level: IsolationLevel, aborted: IntArray
) -> BoolArray:
    """Return one flag per entry: does a reader of the level see it?

    Args:
        positions: ``Position.key`` of each entry.
        txns: transaction number of each entry, ``NO_TXN`` for a plain one.
        markers: true where the entry is a marker.
        of: the range that is read; its end is the cut-off, already at or below the level's bound.
        level: the reader's isolation level; read_uncommitted ignores the aborted set.
        aborted: transaction numbers of the aborted set of the range.

    An unknown transaction is visible: the service registers a transaction on a partition in the same step as its
    first entry there, and makes the abort known before the bound moves past it.
    """
    seen = (positions >= of.start.key) & (positions < of.end.key) & ~markers
    if level is IsolationLevel.READ_COMMITTED and len(aborted):
        seen &= ~hidden(txns, aborted)
    return seen


def hidden(txns: IntArray, aborted: IntArray) -> BoolArray:
    """Return where the transaction number is in the aborted set; ``NO_TXN`` never is."""
    return np.isin(txns, aborted)
