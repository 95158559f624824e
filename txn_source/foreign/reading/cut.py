"""The consistent cut over partitions of others' logs: ``model.cut``, over the transactions that a format tells.

The cut is a promise where the format names a transaction alike on each partition. A transaction without such a name is
whole on each partition alone; ``PartitionSpans.said`` reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from txn_source.foreign.foreign_log import ForeignTransaction
from txn_source.foreign.reading.topics import SeenPartition
from txn_source.model.cut import Ranges, lower_to_cut, raise_to_cut
from txn_source.model.position import Position, PositionRange
from txn_source.model.transaction import TransactionState

Identity = tuple[int, int]


def lowered(
    partitions: Sequence[SeenPartition], ranges: Sequence[PositionRange], *, from_cut: bool = False
) -> tuple[list[Position], str | None]:
    """Return the ends of ranges lowered to a cut, not below their starts; and the promise that can't be kept, or None.

    The end of one partition alone is lowered only if it begins at a cut (``from_cut``), as a batch of a stream does.
    """
    ends = [reach.end for reach in ranges]
    if all(of.bounds.log_end <= end for of, end in zip(partitions, ends, strict=True)):
        return ends, None
    if len(ends) == 1:
        return ([_lowered_alone(partitions[0], ranges[0])] if from_cut else ends), None
    spans = PartitionSpans(partitions, ranges)
    return _until_whole(spans, ranges, lambda ends: lower_to_cut(spans, ends), _lowered_alone), spans.said()


def raised(partitions: Sequence[SeenPartition], ranges: Sequence[PositionRange]) -> list[Position]:
    """Return the ends of ranges raised to a cut, which may lie above what can be read; the starts are a cut."""
    if len(ranges) == 1:
        return [_raised_alone(partitions[0], ranges[0])]
    spans = PartitionSpans(partitions, ranges)
    starts = {index: reach.start.key for index, reach in enumerate(ranges)}
    return _until_whole(spans, ranges, lambda ends: raise_to_cut(spans, ends, starts), _raised_alone)


def _until_whole(
    spans: PartitionSpans,
    ranges: Sequence[PositionRange],
    cut: Callable[[Mapping[int, int]], Mapping[int, int]],
    alone: Callable[[SeenPartition, PositionRange], Position],
) -> list[Position]:
    """Return ends at a cut at which a transaction without a name over all partitions is whole on each of them, too."""
    ends = [reach.end for reach in ranges]
    while True:
        found = cut({index: end.key for index, end in enumerate(ends)})
        at_cut = [Position.from_key(found[index]) for index in range(len(ends))]
        ends = [
            alone(of, PositionRange(reach.start, end)) if of.label in spans.untold else end
            for of, reach, end in zip(spans.partitions, ranges, at_cut, strict=True)
        ]
        if ends == at_cut:
            return ends


def _lowered_alone(of: SeenPartition, reach: PositionRange) -> Position:
    """Return the largest end at or below that of a range at which no transaction of the range is cut in two."""
    end = reach.end
    spans = _committed_in(of, reach)
    while cut := [first for first, last in spans if first < end <= last]:
        end = min(cut)
    return end


def _raised_alone(of: SeenPartition, reach: PositionRange) -> Position:
    """Return the smallest such end at or above that of a range."""
    end = reach.end
    while cut := [last for _, last in _committed_in(of, PositionRange(reach.start, end)) if last >= end]:
        end = Position.from_key(max(cut).key + 1)
    return end


def _committed_in(of: SeenPartition, reach: PositionRange) -> list[tuple[Position, Position]]:
    """Return the first and the last data of committed transactions that begin in a range."""
    found = of.partition.transactions(reach)
    committed = (txn for txn in found if txn.state is TransactionState.COMMITTED and txn.first >= reach.start)
    return [(txn.first, txn.last) for txn in committed if txn.last is not None]


class PartitionSpans:
    """What committed transactions wrote to the partitions of a read (``model.cut.CommittedSpans``), by index.

    The transactions of a partition are looked at from a position on, which goes down as far as it is asked for.
    """

    def __init__(self, partitions: Sequence[SeenPartition], ranges: Sequence[PositionRange]) -> None:
        self.partitions = partitions
        self._starts = [reach.start.key for reach in ranges]
        self._tables: dict[int, dict[Identity, ForeignTransaction]] = {}
        self._lows: dict[int, int] = {}
        self.untold: set[str] = set()
        """Labels of partitions where a transaction that reaches over the end has no name."""

    def said(self) -> str | None:
        """Return the promise that can't be kept, or None."""
        if not self.untold:
            return None
        return (
            f"transactions across the end of the read on {', '.join(sorted(self.untold)[:8])} have no name that"
            " distinguishes them from others of their producers: the read may have parts of them"
        )

    def lowest_above(self, ranges: Ranges, bounds: Mapping[int, int]) -> Mapping[int, int]:
        """Of those whose last entry on a partition lies in its range: the smallest first positions below bounds."""
        return self._firsts(self._ended_in(ranges), {p: (self._starts[p], bound) for p, bound in bounds.items()})

    def lowest_cut(self, ranges: Ranges, bounds: Mapping[int, int]) -> Mapping[int, int]:
        """Of those that have an entry at or above a bound: the smallest first positions in each range."""
        return self._firsts(self._ended_in({p: (bound, self._end(p)) for p, bound in bounds.items()}), ranges)

    def highest_below(self, ranges: Ranges, bounds: Mapping[int, int]) -> Mapping[int, int]:
        """Of those whose first entry on a partition lies in its range: the largest last positions above bounds."""
        names: set[Identity] = set()
        for p, (low, high) in ranges.items():
            table = self._table(p, low)
            done = {name: txn for name, txn in table.items() if txn.state is TransactionState.COMMITTED}
            names |= {name for name, txn in done.items() if low <= txn.first.key < high}
        found: dict[int, int] = {}
        for p, bound in bounds.items():
            table = self._table(p, bound)
            above = [last for name in names & table.keys() if (last := _last(table[name])) >= bound]
            if above:
                found[p] = max(above)
        return found

    def _ended_in(self, ranges: Ranges) -> set[Identity]:
        names: set[Identity] = set()
        for p, (low, high) in ranges.items():
            if low < self._end(p):
                table = self._table(p, low)
                names |= {name for name, txn in table.items() if _may_cut(txn) and low <= _last(txn) < high}
        return names

    def _firsts(self, names: Iterable[Identity], ranges: Ranges) -> Mapping[int, int]:
        """Return by partition the smallest first position in its range of some transactions, of those committed."""
        wanted = set(names)
        found: dict[int, int] = {}
        for p, (low, high) in ranges.items():
            if not wanted or low >= high:
                continue
            of = PositionRange(Position.from_key(low), Position.from_key(high))
            for name, first in sorted(
                self.partitions[p].partition.firsts(wanted, of).items(), key=lambda item: item[1]
            ):
                if first.key < low:
                    continue  # it isn't wholly at or above the starts
                if self._committed(p, name, first.key):
                    found[p] = first.key
                    break
        return found

    def _committed(self, p: int, name: Identity, first: int) -> bool:
        """True if a transaction is known to be committed; record the partition if the name isn't its own."""
        if name not in self._table(p, first):
            self.untold.add(self.partitions[p].label)
            return False
        known = {table[name].state for table in self._tables.values() if name in table}
        return TransactionState.COMMITTED in known and TransactionState.ABORTED not in known

    def _end(self, p: int) -> int:
        """The log's end, not the high watermark: entries above it may belong to transactions that are cut elsewhere."""
        return self.partitions[p].bounds.log_end.key

    def _table(self, p: int, low: int) -> dict[Identity, ForeignTransaction]:
        """Return the transactions of a partition that reach to a position or behind it."""
        if low < self._lows.get(p, self._end(p) + 1):
            asked, end = low, self._end(p)
            if p in self._lows:  # look further than asked for: each look reads up to the end
                low = max(min(low, self._starts[p]), low - (end - low))
            of = PositionRange(Position.from_key(low), Position.from_key(max(low, end)))
            table: dict[Identity, ForeignTransaction] = {}
            for txn in self.partitions[p].partition.transactions(of):
                if txn.identity is not None:
                    table[txn.identity] = txn
                elif txn.state is TransactionState.COMMITTED and txn.last is not None and txn.last.key >= asked:
                    self.untold.add(self.partitions[p].label)
            self._tables[p], self._lows[p] = table, low
        return self._tables[p]


def _may_cut(txn: ForeignTransaction) -> bool:
    """True for a transaction that is committed, or may be on another partition."""
    return txn.state is not TransactionState.ABORTED


def _last(txn: ForeignTransaction) -> int:
    """Return the key of the last entry with data; below all if it lies before what was looked at."""
    return -1 if txn.last is None else txn.last.key
