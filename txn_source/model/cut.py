"""The consistent cut: bounds of several partitions, moved until no committed transaction is cut in two.

A committed transaction is below the bounds if all its entries on the partitions of the read are, and above them if none
is. The fixpoint: while a committed transaction has an entry at or above the bound of one partition, and one below the
bound of another, that other bound is lowered to the transaction's first position there. Bounds only go down, so there
is one largest cut at or below the bounds one begins with, in whatever order they are lowered.

The other way round there is one smallest cut at or above bounds: the bound on the partition where the transaction has
an entry at or above it is raised behind the transaction's last position there.

Aborted and open transactions cut nothing: what is aborted isn't seen, and no bound lies behind an open one.

Only bounds are kept here, and no transactions: a step asks what those reach to that ended, or began, where the last
step moved a bound. Its answer has a number for each partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Ranges = Mapping[int, tuple[int, int]]
"""``[low, high)`` by partition id, as ``Position.key``."""
BEYOND = (1 << 63) - 1
"""Above every position."""
_NEAR = 256
"""Entries above a bound that are looked at first: mostly they hold all that the bound cuts. When bounds have gone down
together, what began later than all of them is passed over."""


class CommittedSpans(Protocol):
    """What committed transactions wrote to the partitions of a read: a first and a last entry on each.

    Bounds are exclusive, ``Position.key`` by partition id. Each answer has the partitions that something was found on.
    """

    def lowest_above(self, ranges: Ranges, bounds: Mapping[int, int]) -> Mapping[int, int]:
        """Of the transactions whose last entry on a partition lies in its range: the smallest of their first positions
        on each partition, where it is below the bound."""

    def lowest_cut(self, ranges: Ranges, bounds: Mapping[int, int]) -> Mapping[int, int]:
        """Of the transactions that have an entry at or above a bound: the smallest of their first positions in each
        range."""

    def highest_below(self, ranges: Ranges, bounds: Mapping[int, int]) -> Mapping[int, int]:
        """Of the transactions whose first entry on a partition lies in its range: the largest of their last positions
        on each partition, where it is at or above the bound."""


def lower_to_cut(
    spans: CommittedSpans, bounds: Mapping[int, int], starts: Mapping[int, int] | None = None
) -> dict[int, int]:
    """Return the largest consistent cut at or below exclusive bounds.

    ``starts`` are a cut below the bounds, if one is known: then what lies between the two is looked at first, and else
    what lies above the bounds. If they are no cut, the result is whole for all transactions that lie above them.
    """
    cut = dict(bounds)
    _lower(spans, cut, spans.lowest_above({p: (bound, bound + _NEAR) for p, bound in cut.items()}, cut), _NEAR)
    if starts is None:
        found = spans.lowest_above({p: (bound, BEYOND) for p, bound in cut.items()}, cut)
    else:
        found = spans.lowest_cut({p: (starts[p], bound) for p, bound in cut.items()}, cut)
    _lower(spans, cut, found, BEYOND)
    return cut


def _lower(spans: CommittedSpans, cut: dict[int, int], found: Mapping[int, int], reach: int) -> None:
    """Lower bounds to what was found below them, and so on with what ended up to ``reach`` above the new ones."""
    while found:
        ranges = {p: (first, min(cut[p], first + reach)) for p, first in found.items()}
        assert all(low < high for low, high in ranges.values()), "a bound only goes down"
        cut.update(found)
        found = spans.lowest_above(ranges, cut)


def raise_to_cut(spans: CommittedSpans, bounds: Mapping[int, int], starts: Mapping[int, int]) -> dict[int, int]:
    """Return the smallest consistent cut at or above exclusive bounds; ``starts`` are a cut below them."""
    cut = dict(bounds)
    found = spans.highest_below({p: (starts[p], bound) for p, bound in cut.items()}, cut)
    while found:
        ranges = {p: (cut[p], last + 1) for p, last in found.items()}
        assert all(low < high for low, high in ranges.values()), "a bound only goes up"
        cut.update({p: last + 1 for p, last in found.items()})
        found = spans.highest_below(ranges, cut)
    return cut
