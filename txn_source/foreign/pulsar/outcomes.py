"""What became of a topic's transactions: by their markers in the same topic, and by the broker's snapshot if given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from txn_source.foreign.foreign_log import Decisions, TransactionSpans
from txn_source.foreign.pulsar.managed_ledger import Snapshot
from txn_source.foreign.pulsar.summary import Groups, LedgerSummary
from txn_source.model.position import Position, PositionRange
from txn_source.model.transaction import TransactionState
from txn_source.model.visibility import BoolArray, IntArray

_BEYOND = (1 << 63) - 1
_STATES = (TransactionState.OPEN, TransactionState.COMMITTED, TransactionState.ABORTED)
_OPEN, _COMMITTED, _ABORTED = range(3)


@dataclass(frozen=True, slots=True)
class TxnOutcome:
    """A transaction in a topic: keys of its first and last entry with data (-1: none is left), and its marker's.

    ``open_from`` is where it is undecided from: its first entry, or the first one behind a commit. A marker is -1
    where there is none, or it isn't known where.
    """

    txn: int
    first: int
    last: int
    marker: int
    state: TransactionState
    open_from: int


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes(Mapping[int, TxnOutcome]):
    """The transactions of a topic by number, ascending; columns as those of ``TxnOutcome``, 48 bytes for each."""

    numbers: IntArray
    firsts: IntArray
    lasts: IntArray
    markers: IntArray
    states: IntArray
    opened: IntArray

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers.tolist())

    def __getitem__(self, number: int) -> TxnOutcome:
        at = int(np.searchsorted(self.numbers, number))
        if at == len(self.numbers) or self.numbers[at] != number:
            raise KeyError(number)
        return next(self.some(np.array([at])))

    def all(self) -> Iterator[TxnOutcome]:
        """Yield all."""
        return self.some(np.arange(len(self)))

    def some(self, which: IntArray) -> Iterator[TxnOutcome]:
        """Yield those with some indexes."""
        parts = (self.numbers, self.firsts, self.lasts, self.markers, self.states, self.opened)
        for txn, first, last, marker, state, opened in zip(*(part[which].tolist() for part in parts), strict=True):
            yield TxnOutcome(txn, first, last, marker, _STATES[state], opened)

    def undecided_from(self) -> IntArray:
        """Return the keys that undecided ones are undecided from."""
        return np.asarray(self.opened[self.states == _OPEN])

    def touching(self, of: PositionRange) -> IntArray:
        """Return the indexes of those with data in a range, that end there, or that reach over it."""
        firsts = np.where(self.firsts < 0, self.markers, self.firsts)
        firsts = np.where(self.markers < 0, firsts, np.minimum(firsts, self.markers))
        lasts = np.maximum(self.lasts, self.markers)
        return np.flatnonzero((firsts < of.end.key) & ((lasts >= of.start.key) | (self.markers < 0)))


def outcomes(summaries: Sequence[LedgerSummary], snapshot: Snapshot | None = None) -> Outcomes:
    """Return the transactions of a topic.

    A transaction is aborted if a marker aborts it, whatever else there is, as for the broker, which keeps a set of
    aborted ids; else committed by its marker; else undecided. One that has data behind its commit is undecided from
    there on. Up to its position a snapshot knows all: what isn't aborted there is committed.

    Args:
        summaries: the topic's ledgers, in their order.
        snapshot: that of the broker's transaction buffer.
    """
    none = np.zeros(0, np.int64)
    tables = [summary.txns for summary in summaries]
    numbers = np.concatenate([none, *(table.numbers for table in tables)])
    order = np.argsort(numbers, kind="stable")
    firsts, lasts, markers, laters = (
        (
            np.concatenate([none, *parts])[order]
            for parts in zip(*((t.firsts, t.lasts, t.markers, t.laters) for t in tables), strict=True)
        )
        if tables
        else (none, none, none, none)
    )
    of = Groups(numbers[order])
    ends = of.highest(markers)
    behind = of.spread(ends)
    later = np.where(markers == behind, laters, np.where(firsts > behind, firsts, -1))
    first = of.lowest(firsts)
    opened = np.where(ends < 0, first, of.lowest(np.where(behind < 0, -1, later)))
    aborted: BoolArray = of.any(np.concatenate([none != 0, *(table.aborted for table in tables)])[order])
    states = np.where(opened >= 0, _OPEN, _COMMITTED)
    if snapshot is not None:
        states = np.where((states == _OPEN) & (opened <= snapshot.last_key), _COMMITTED, states)
        aborted = aborted | np.isin(of.numbers, np.array(sorted(snapshot.aborted), np.int64))
    return Outcomes(of.numbers, first, of.highest(lasts), ends, np.where(aborted, _ABORTED, states), opened)


def decisions(known: Outcomes, of: PositionRange) -> Decisions:
    """Return what a read of a range needs to know of transactions."""
    aborted, undecided = (known.states == _ABORTED) & (known.firsts >= 0), known.states == _OPEN
    beyond = np.full(int(undecided.sum()), _BEYOND, np.int64)
    ends = np.maximum(known.markers, known.lasts)
    return Decisions(
        _spans(known.numbers[aborted], known.firsts[aborted], ends[aborted]).needed(of),
        _spans(known.numbers[undecided], known.opened[undecided], beyond).needed(of),
    )


def as_known(known: Outcomes, at: Position) -> Outcomes:
    """Return transactions as they were when the topic ended at a position: those ended behind it are undecided."""
    there = (known.firsts >= 0) & (known.firsts < at.key)
    ended = known.markers[there] >= at.key
    firsts = known.firsts[there]
    return Outcomes(
        known.numbers[there],
        firsts,
        known.lasts[there],
        known.markers[there],
        np.where(ended, _OPEN, known.states[there]),
        np.where(ended, firsts, known.opened[there]),
    )


def _spans(numbers: IntArray, firsts: IntArray, ends: IntArray) -> TransactionSpans:
    order = np.argsort(firsts, kind="stable")
    return TransactionSpans(numbers[order], firsts[order], ends[order])
