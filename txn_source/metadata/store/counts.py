"""How many messages lie in a range, by the running totals in the rows.

The entries of an old ledger are no longer here. What is needed of them, because the range begins or ends inside the
ledger, or an aborted transaction does that is counted in part, the ledger's object knows: whoever asks counts there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from txn_source.metadata.store.prepared import Prepared
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import ABORTED, DATA
from txn_source.model.position import MAX_ENTRY_ID, Position, PositionRange, ledger_of

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@dataclass(frozen=True, slots=True)
class Count:
    """How many messages there are, without those of some ledgers."""

    messages: int
    ledger_ids: Sequence[int]
    """Ledgers whose part of the range is to be counted from their objects."""


def count(connection: Connection, partition_id: int, of: PositionRange, level: IsolationLevel) -> Count | None:
    """Return how many messages a reader of a level sees in a range; None if the ledger that it starts in is gone.

    The range ends at or below the level's bound, so all transactions in it are decided if they matter.
    """
    if of.empty:
        return Count(0, ())
    found = _Ledgers.of(connection, partition_id, of)
    if of.start.ledger_id not in found.entries:
        return None
    unknown = found.purged_in_part(of)
    while True:
        total = 0
        missing: set[int] = set()
        for piece in _without(of, sorted(unknown)):
            total += found.messages_before(connection, piece.end) - found.messages_before(connection, piece.start)
            if level is IsolationLevel.READ_COMMITTED:
                total -= _aborted_inside(connection, partition_id, piece)
                for txn, low, high in _aborted_in_part(connection, partition_id, piece):
                    missing.update(found.purged_between(ledger_of(low), ledger_of(high)))
                    total -= _messages_of(connection, partition_id, txn, low, high)
        if missing <= unknown:  # where they are cut out, a piece begins at the end of one of them
            return Count(total, sorted(unknown))
        unknown |= missing


class _Ledgers:
    """The ledgers that a range touches, by id: entries, and messages before and in them."""

    def __init__(self, partition_id: int, rows: Sequence[tuple[int, int, int, int, int]]) -> None:
        self._partition_id = partition_id
        self.entries = {ledger_id: entry_count for ledger_id, entry_count, *_ in rows}
        self._totals = {ledger_id: (before, messages) for ledger_id, _, before, messages, _ in rows}
        self._purged = [ledger_id for ledger_id, *_, purged in rows if purged]

    @classmethod
    def of(cls, connection: Connection, partition_id: int, of: PositionRange) -> _Ledgers:
        """Look at those of a range."""
        given = {"partition_id": partition_id, "first": of.start.ledger_id, "last": of.end.ledger_id}
        rows: Sequence[Any] = _LEDGERS.rows(connection, given)
        return cls(partition_id, rows)

    def purged_in_part(self, of: PositionRange) -> set[int]:
        """Return the ledgers without entries here that a range begins or ends in."""
        edges = [at.ledger_id for at in (of.start, of.end) if 0 < at.entry_id < self.entries.get(at.ledger_id, 0)]
        return {ledger_id for ledger_id in edges if ledger_id in self._purged}

    def purged_between(self, first: int, last: int) -> list[int]:
        """Return the ledgers without entries here among those from one to another, inclusive."""
        return [ledger_id for ledger_id in self._purged if first <= ledger_id <= last]

    def messages_before(self, connection: Connection, at: Position) -> int:
        """Return how many messages lie before a position since the partition was made."""
        if at.ledger_id not in self.entries:  # a ledger that begins where the range ends, and was made later
            return max(before + messages for before, messages in self._totals.values())
        before, messages = self._totals[at.ledger_id]
        if at.entry_id == 0:
            return before
        if at.entry_id >= self.entries[at.ledger_id]:
            return before + messages
        [(count,)] = _BEFORE.rows(connection, {"partition_id": self._partition_id, "position": at.key})
        return int(count)


def _without(of: PositionRange, ledger_ids: Sequence[int]) -> list[PositionRange]:
    """Return what is left of a range without some ledgers."""
    edges = [of.start]
    for ledger_id in ledger_ids:
        edges += [max(of.start, Position(ledger_id, 0)), Position(ledger_id, MAX_ENTRY_ID)]
    pieces = [PositionRange(start, end) for start, end in pairwise([*edges, of.end])][::2]
    return [piece for piece in pieces if not piece.empty]


def _aborted_inside(connection: Connection, partition_id: int, of: PositionRange) -> int:
    [(count,)] = _ABORTED_INSIDE.rows(
        connection, {"partition_id": partition_id, "start": of.start.key, "end": of.end.key}
    )
    return int(count)


def _aborted_in_part(connection: Connection, partition_id: int, of: PositionRange) -> list[tuple[int, int, int]]:
    """Return the aborted transactions with messages inside and outside of a range: the part that may be inside."""
    low, high = of.start.key, of.end.key
    rows = _ABORTED_IN_PART.rows(connection, {"partition_id": partition_id, "start": low, "end": high})
    return [(txn, max(first, low), min(last, high - 1)) for txn, first, last in rows]


def _messages_of(connection: Connection, partition_id: int, txn: int, low: int, high: int) -> int:
    of_part = {"partition_id": partition_id, "txn": txn, "low": low, "high": high}
    [(count,)] = _MESSAGES_OF.rows(connection, of_part)
    return int(count)


_LEDGERS = Prepared(
    """
    SELECT ledger_id, entries, messages_before, messages, purged FROM ledgers
    WHERE partition_id = :partition_id AND ledger_id BETWEEN :first AND :last"""
)
_BEFORE = Prepared("SELECT messages_before FROM entries WHERE partition_id = :partition_id AND position = :position")
_TOUCHES = f"""
    partition_id = :partition_id AND state = {ABORTED} AND marker_position >= :start AND first_position < :end"""
"""The aborted transactions that touch a range, see ``model/visibility.py``."""
_ABORTED_INSIDE = Prepared(
    f"""
    SELECT COALESCE(SUM(messages), 0) FROM transaction_partitions
    WHERE {_TOUCHES} AND first_position >= :start AND last_position < :end"""
)
_ABORTED_IN_PART = Prepared(
    f"""
    SELECT txn, first_position, last_position FROM transaction_partitions
    WHERE {_TOUCHES} AND NOT (first_position >= :start AND last_position < :end) AND last_position >= :start"""
)
_MESSAGES_OF = Prepared(
    f"""
    SELECT COALESCE(SUM(messages), 0) FROM entries
    WHERE partition_id = :partition_id AND position >= :low AND position <= :high AND kind = {DATA} AND txn = :txn"""
)
