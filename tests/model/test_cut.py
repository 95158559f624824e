"""The consistent cut is closed over transactions, the largest there is, monotone, and found in any order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.selection import examples
from txn_source.model.cut import Ranges, lower_to_cut, raise_to_cut

PARTITIONS, LAST = 4, 12


@dataclass(frozen=True)
class CommittedSpan:
    """What a committed transaction wrote to one partition: its first and last entry, both inclusive."""

    txn: int
    partition_id: int
    first: int
    last: int


_RANGES = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(sorted)
_WRITES = st.dictionaries(st.integers(0, PARTITIONS - 1), _RANGES, min_size=1)
TRANSACTIONS = st.lists(_WRITES, max_size=8).map(
    lambda all_writes: [
        CommittedSpan(txn, partition, first, last)
        for txn, writes in enumerate(all_writes)
        for partition, (first, last) in writes.items()
    ]
)
BOUNDS = st.fixed_dictionaries({partition: st.integers(0, LAST + 1) for partition in range(PARTITIONS)})


def by_txn(spans: list[CommittedSpan]) -> dict[int, list[CommittedSpan]]:
    found = defaultdict(list)
    for span in spans:
        found[span.txn].append(span)
    return found


def is_cut(bounds: dict[int, int], spans: list[CommittedSpan]) -> bool:
    """Tell whether each transaction is wholly below the bounds or wholly above them."""
    return all(
        all(s.last < bounds[s.partition_id] for s in of_txn) or all(s.first >= bounds[s.partition_id] for s in of_txn)
        for of_txn in by_txn(spans).values()
    )


def naive_cut(bounds: dict[int, int], spans: list[CommittedSpan]) -> dict[int, int]:
    """Do what the definition says, over and over, until nothing changes."""
    bounds, changed = dict(bounds), True
    while changed:
        changed = False
        for of_txn in by_txn(spans).values():
            if any(s.last >= bounds[s.partition_id] for s in of_txn):
                for s in of_txn:
                    if s.first < bounds[s.partition_id]:
                        bounds[s.partition_id], changed = s.first, True
    return bounds


class Spans:
    """Spans in memory (``CommittedSpans``); it counts how many steps were asked for, and what was looked at."""

    def __init__(self, spans: list[CommittedSpan]) -> None:
        self.of_txn = by_txn(spans)
        self.spans = spans
        self.steps = 0
        self.looked_at: set[int] = set()

    def lowest_above(self, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        found = self._of({s.txn for s in self.spans if within(s.last, ranges.get(s.partition_id))})
        return smallest(s for s in found if s.first < bounds[s.partition_id])

    def lowest_cut(self, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        found = self._of({s.txn for s in self.spans if s.last >= bounds[s.partition_id]})
        return smallest(s for s in found if within(s.first, ranges.get(s.partition_id)))

    def highest_below(self, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        found = self._of({s.txn for s in self.spans if within(s.first, ranges.get(s.partition_id))})
        above = [s for s in found if s.last >= bounds[s.partition_id]]
        return {p: max(s.last for s in above if s.partition_id == p) for p in {s.partition_id for s in above}}

    def _of(self, txns: set[int]) -> list[CommittedSpan]:
        self.steps += 1
        self.looked_at |= txns
        return [s for txn in txns for s in self.of_txn[txn]]


def within(position: int, of: tuple[int, int] | None) -> bool:
    return of is not None and of[0] <= position < of[1]


def smallest(spans: Iterable[CommittedSpan]) -> dict[int, int]:
    found: dict[int, int] = {}
    for span in spans:
        found[span.partition_id] = min(span.first, found.get(span.partition_id, span.first))
    return found


def cut_of(bounds: dict[int, int], spans: list[CommittedSpan]) -> dict[int, int]:
    return lower_to_cut(Spans(spans), bounds)


def raised_from(
    bounds: dict[int, int], spans: list[CommittedSpan], starts: dict[int, int] | None = None
) -> dict[int, int]:
    return raise_to_cut(Spans(spans), bounds, starts or dict.fromkeys(bounds, 0))


@given(BOUNDS, TRANSACTIONS)
@settings(max_examples=examples(50), deadline=None)
def test_cut_is_the_largest_one_at_or_below_the_bounds(bounds, spans) -> None:
    """Compare with the definition carried out naively, and see that the result is a cut."""
    cut = cut_of(bounds, spans)
    assert is_cut(cut, spans)
    assert cut == naive_cut(bounds, spans)
    assert all(cut[p] <= bounds[p] for p in bounds)


@given(BOUNDS, BOUNDS, TRANSACTIONS)
@settings(max_examples=examples(50), deadline=None)
def test_raised_cut_is_the_smallest_one_at_or_above_the_bounds(bounds, other, spans) -> None:
    """Raise bounds: the result is a cut, and any cut at or above them lies at or above it."""
    cut = raised_from(bounds, spans)
    assert is_cut(cut, spans)
    assert all(cut[p] >= bounds[p] for p in bounds)
    higher = {p: max(other[p], bounds[p]) for p in bounds}
    if is_cut(higher, spans):
        assert all(higher[p] >= cut[p] for p in bounds)


@given(BOUNDS, BOUNDS, TRANSACTIONS)
@settings(max_examples=examples(50), deadline=None)
def test_transactions_between_a_known_cut_and_the_bounds_suffice(start, bounds, spans) -> None:
    """Begin at a cut and look only at transactions that begin between it and the bounds: the cut is the same."""
    start = cut_of(start, spans)
    bounds = {p: max(start[p], bounds[p]) for p in bounds}
    cut = lower_to_cut(Spans(spans), bounds, start)
    assert cut == cut_of(bounds, spans)
    assert all(cut[p] >= start[p] for p in bounds)
    assert raised_from(bounds, spans, start) == raised_from(bounds, spans)


@given(BOUNDS, BOUNDS, TRANSACTIONS)
@settings(max_examples=examples(50), deadline=None)
def test_transactions_above_starts_that_are_no_cut_stay_whole(start, bounds, spans) -> None:
    """Begin anywhere: what lies wholly above the starts is cut neither by what is lowered nor by what is raised."""
    bounds = {p: max(start[p], bounds[p]) for p in bounds}
    above = [
        s for of_txn in by_txn(spans).values() if all(s.first >= start[s.partition_id] for s in of_txn) for s in of_txn
    ]
    for moved in (
        lower_to_cut(Spans(spans), bounds), lower_to_cut(Spans(spans), bounds, start), raised_from(bounds, spans, start)
    ):  # fmt: skip
        assert is_cut({p: max(start[p], moved[p]) for p in bounds}, above)


def test_cost_is_of_what_lies_between_bounds_and_cut() -> None:
    """Cut one of many transfers in two, one after the other in two partitions: the others are not looked at."""
    spans = [CommittedSpan(n, p, n, n) for n in range(1000) for p in (0, 1)]
    of = Spans(spans)
    assert lower_to_cut(of, {0: 990, 1: 991}) == {0: 990, 1: 990}
    assert of.looked_at == set(range(990, 1000))
    assert of.steps == 3


def test_chain_of_transactions_is_followed_to_its_end() -> None:
    """Link many transactions, each over two neighbouring partitions: one bound held back lowers all of them."""
    count = 2000
    spans = [CommittedSpan(n, n + side, 5, 5) for n in range(count) for side in (0, 1)]
    bounds = {0: 5} | dict.fromkeys(range(1, count + 1), 100)
    assert cut_of(bounds, spans) == dict.fromkeys(range(count + 1), 5)
