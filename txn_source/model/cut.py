"""The consistent cut: bounds of several partitions, moved until no committed transaction is cut in two.

A committed transaction is below the bounds if all its entries on the partitions of the read are, and above them if none
is. The fixpoint: while a committed transaction has an entry at or above the bound of one partition, and one below the
bound of another, that other bound is lowered to the transaction's first position there. Bounds only go down, so there
is one largest cut at or below the bounds one begins with, in whatever order they are lowered.

The other way round there is one smallest cut at or above bounds: the bound on the partition where the transaction has
an entry at or above it is raised behind the transaction's last position there.

Aborted and open transactions cut nothing: what is aborted isn't seen, and no bound lies behind an open one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommittedSpan:
    """What a committed transaction wrote to one partition: keys of its first and last entry, both inclusive."""

    txn: int
    partition_id: int
    first: int
    last: int


class ConsistentCut:
    """Moves bounds as it learns of transactions, in one direction; each is handled once.

    1. ``add`` every span, on the partitions of the read, of the transactions that the bounds may cut in two.
    2. ``lower`` or ``raise_``; if a bound moved, add the transactions that it may cut now, and go on.
    """

    def __init__(self, bounds: Mapping[int, int]) -> None:
        """Begin with exclusive bounds, ``Position.key`` by partition id."""
        self.bounds = dict(bounds)
        self._spans: dict[int, list[CommittedSpan]] = defaultdict(list)
        self._by_last: dict[int, list[CommittedSpan]] = defaultdict(list)
        self._by_first: dict[int, list[CommittedSpan]] = defaultdict(list)
        self._moved: set[int] = set()

    def add(self, spans: Iterable[CommittedSpan]) -> None:
        """Take spans of transactions that are not known yet, all that they have on the partitions of the read."""
        touched = set()
        for span in spans:
            self._spans[span.txn].append(span)
            self._by_last[span.partition_id].append(span)
            self._by_first[span.partition_id].append(span)
            touched.add(span.partition_id)
        for partition_id in touched:
            self._by_last[partition_id].sort(key=lambda span: span.last)
            self._by_first[partition_id].sort(key=lambda span: -span.first)

    def knows(self, txn: int) -> bool:
        """True if the transaction's spans were added."""
        return txn in self._spans

    def lower(self) -> set[int]:
        """Lower the bounds until no known transaction is cut in two; return the partitions whose bounds went down."""
        lowered: set[int] = set()
        check = set(self._by_last)
        while check:
            partition_id = check.pop()
            waiting = self._by_last[partition_id]
            while waiting and waiting[-1].last >= self.bounds[partition_id]:
                for span in self._spans_once(waiting.pop().txn):
                    if span.first < self.bounds[span.partition_id]:
                        self.bounds[span.partition_id] = span.first
                        lowered.add(span.partition_id)
                        check.add(span.partition_id)
        return lowered

    def raise_(self) -> set[int]:
        """Raise the bounds until no known transaction is cut in two; return the partitions whose bounds went up."""
        raised: set[int] = set()
        check = set(self._by_first)
        while check:
            partition_id = check.pop()
            waiting = self._by_first[partition_id]
            while waiting and waiting[-1].first < self.bounds[partition_id]:
                for span in self._spans_once(waiting.pop().txn):
                    if span.last >= self.bounds[span.partition_id]:
                        self.bounds[span.partition_id] = span.last + 1
                        raised.add(span.partition_id)
                        check.add(span.partition_id)
        return raised

    def _spans_once(self, txn: int) -> list[CommittedSpan]:
        if txn in self._moved:
            return []
        self._moved.add(txn)
        return self._spans[txn]
