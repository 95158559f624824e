"""The consistent cut: bounds of several partitions, lowered until no committed transaction is cut in two.

A committed transaction is below the bounds if all its entries on the partitions of the read are, and above them if none
is. The fixpoint: while a committed transaction has an entry at or above the bound of one partition, and one below the
bound of another, that other bound is lowered to the transaction's first position there. Bounds only go down, so there
is one largest cut at or below the bounds one begins with, in whatever order they are lowered.

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
    """Lowers bounds as it learns of transactions; each is handled once.

    1. ``add`` every span, on the partitions of the read, of transactions that have an entry at or above a bound.
    2. ``lower``; if a bound went down, add the transactions that have come to lie above it, and lower again.
    """

    def __init__(self, bounds: Mapping[int, int]) -> None:
        """Begin with exclusive bounds, ``Position.key`` by partition id."""
        self.bounds = dict(bounds)
        self._spans: dict[int, list[CommittedSpan]] = defaultdict(list)
        self._waiting: dict[int, list[CommittedSpan]] = defaultdict(list)
        self._above: set[int] = set()

    def add(self, spans: Iterable[CommittedSpan]) -> None:
        """Take spans of transactions that are not known yet, all that they have on the partitions of the read."""
        touched = set()
        for span in spans:
            self._spans[span.txn].append(span)
            self._waiting[span.partition_id].append(span)
            touched.add(span.partition_id)
        for partition_id in touched:
            self._waiting[partition_id].sort(key=lambda span: span.last)

    def knows(self, txn: int) -> bool:
        """True if the transaction's spans were added."""
        return txn in self._spans

    def lower(self) -> set[int]:
        """Lower the bounds until no known transaction is cut in two; return the partitions whose bounds went down."""
        lowered: set[int] = set()
        check = set(self._waiting)
        while check:
            partition_id = check.pop()
            waiting = self._waiting[partition_id]
            while waiting and waiting[-1].last >= self.bounds[partition_id]:
                txn = waiting.pop().txn
                if txn in self._above:
                    continue
                self._above.add(txn)
                for span in self._spans[txn]:
                    if span.first < self.bounds[span.partition_id]:
                        self.bounds[span.partition_id] = span.first
                        lowered.add(span.partition_id)
                        check.add(span.partition_id)
        return lowered
