"""What became of a topic's transactions: by their markers in the same topic, and by the broker's snapshot if given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from txn_source.foreign.foreign_log import Decisions, TransactionSpans
from txn_source.foreign.pulsar.managed_ledger import Snapshot
from txn_source.foreign.pulsar.summary import LedgerSummary, TxnInLedger
from txn_source.model.position import Position, PositionRange
from txn_source.model.transaction import TransactionState

_BEYOND = (1 << 63) - 1


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


def outcomes(summaries: Iterable[LedgerSummary], snapshot: Snapshot | None = None) -> dict[int, TxnOutcome]:
    """Return the transactions of a topic by number.

    A transaction is aborted if a marker aborts it, whatever else there is, as for the broker, which keeps a set of
    aborted ids; else committed by its marker; else undecided. One that has data behind its commit is undecided from
    there on. Up to its position a snapshot knows all: what isn't aborted there is committed.

    Args:
        summaries: the topic's ledgers, in their order.
        snapshot: that of the broker's transaction buffer.
    """
    known: dict[int, TxnInLedger] = {}
    for summary in summaries:
        for txn, part in summary.txns.items():
            _join(known.setdefault(txn, TxnInLedger()), part)
    return {txn: _outcome(txn, of, snapshot) for txn, of in known.items()}


def _join(to: TxnInLedger, part: TxnInLedger) -> None:
    """Add what a later ledger has of a transaction."""
    to.aborted |= part.aborted
    if part.first >= 0:
        to.first = part.first if to.first < 0 else to.first
        to.last = part.last
    if part.marker >= 0:
        to.marker, to.later = part.marker, part.later
    elif to.later < 0 and to.marker >= 0:
        to.later = part.first


def _outcome(txn: int, of: TxnInLedger, snapshot: Snapshot | None) -> TxnOutcome:
    open_from = of.first if of.marker < 0 else of.later
    state = TransactionState.OPEN if open_from >= 0 else TransactionState.COMMITTED
    if of.aborted or (snapshot is not None and txn in snapshot.aborted):
        state = TransactionState.ABORTED
    elif state is TransactionState.OPEN and snapshot is not None and open_from <= snapshot.last_key:
        state = TransactionState.COMMITTED
    return TxnOutcome(txn, of.first, of.last, of.marker, state, open_from)


def decisions(known: Mapping[int, TxnOutcome], of: PositionRange) -> Decisions:
    """Return what a read of a range needs to know of transactions."""
    aborted = [txn for txn in known.values() if txn.state is TransactionState.ABORTED and txn.first >= 0]
    undecided = [txn for txn in known.values() if txn.state is TransactionState.OPEN]
    return Decisions(
        _spans([(t.txn, t.first, max(t.marker, t.last)) for t in aborted]).needed(of),
        _spans([(t.txn, t.open_from, _BEYOND) for t in undecided]).needed(of),
    )


def as_known(known: Mapping[int, TxnOutcome], at: Position) -> dict[int, TxnOutcome]:
    """Return transactions as they were when the topic ended at a position: those ended behind it are undecided."""
    return {
        txn: replace(of, state=TransactionState.OPEN, open_from=of.first) if of.marker >= at.key else of
        for txn, of in known.items()
        if 0 <= of.first < at.key
    }


def _spans(rows: list[tuple[int, int, int]]) -> TransactionSpans:
    table = np.array(sorted(rows, key=lambda row: row[1]), np.int64).reshape(-1, 3)
    return TransactionSpans(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())
