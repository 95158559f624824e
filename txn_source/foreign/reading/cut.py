"""The consistent cut over partitions of logs that others wrote: ``model.cut``, told what a format knows.

It can be promised where a format names a transaction in the same way on each partition. Where it doesn't, what can't be
told is left as it is, and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from txn_source.foreign.foreign_log import ForeignTransaction
from txn_source.foreign.reading.topics import SeenPartition
from txn_source.model.cut import Ranges, lower_to_cut, raise_to_cut
from txn_source.model.position import Position, PositionRange
from txn_source.model.transaction import TransactionState

Identity = tuple[int, int]


def lowered(partitions: Sequence[SeenPartition], ranges: Sequence[PositionRange]) -> tuple[list[Position], str | None]:
    """Return the ends of ranges lowered to a cut, never below their starts; and what can't be promised, or None."""
    ends = [reach.end for reach in ranges]
    if len(ends) < 2 or all(of.bounds.log_end <= end for of, end in zip(partitions, ends, strict=True)):
        return ends, None
    spans = PartitionSpans(partitions, ranges)
    found = lower_to_cut(spans, {index: end.key for index, end in enumerate(ends)})
    return [Position.from_key(found[index]) for index in range(len(ends))], spans.said()


def raised(partitions: Sequence[SeenPartition], ranges: Sequence[PositionRange]) -> list[Position]:
    """Return the ends of ranges raised to a cut, which may lie above what can be read; the starts are a cut."""
    starts = {index: reach.start.key for index, reach in enumerate(ranges)}
    ends = {index: reach.end.key for index, reach in enumerate(ranges)}
    found = raise_to_cut(PartitionSpans(partitions, ranges), ends, starts)
    return [Position.from_key(found[index]) for index in range(len(ranges))]


class PartitionSpans:
    """What committed transactions wrote to the partitions of a read (``model.cut.CommittedSpans``), by index.

    The transactions of a partition are looked at from a position on, which goes down as far as it is asked for.
    """

    def __init__(self, partitions: Sequence[SeenPartition], ranges: Sequence[PositionRange]) -> None:
        self._partitions = partitions
        self._starts = [reach.start.key for reach in ranges]
        self._tables: dict[int, dict[Identity, ForeignTransaction]] = {}
        self._lows: dict[int, int] = {}
        self._untold: set[str] = set()

    def said(self) -> str | None:
        """Return what can't be promised."""
        if not self._untold:
            return None
        return (
            f"transactions that reach over the end of the read on {', '.join(sorted(self._untold)[:8])} can't be told"
            " from others of their producers: they may be seen in part"
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
                self._partitions[p].partition.firsts(wanted, of).items(), key=lambda item: item[1]
            ):
                if first.key < low:
                    continue  # it isn't wholly at or above the starts
                if self._committed(p, name, first.key):
                    found[p] = first.key
                    break
        return found

    def _committed(self, p: int, name: Identity, first: int) -> bool:
        """True if a transaction is known to be committed; what isn't a transaction's own name is noted."""
        if name not in self._table(p, first):
            self._untold.add(self._partitions[p].label)
            return False
        known = {table[name].state for table in self._tables.values() if name in table}
        return TransactionState.COMMITTED in known and TransactionState.ABORTED not in known

    def _end(self, p: int) -> int:
        """What lies above a high watermark that lags behind holds back what was committed elsewhere."""
        return self._partitions[p].bounds.log_end.key

    def _table(self, p: int, low: int) -> dict[Identity, ForeignTransaction]:
        """Return the transactions of a partition that reach to a position or behind it."""
        if low < self._lows.get(p, self._end(p) + 1):
            asked, end = low, self._end(p)
            if p in self._lows:  # look further than asked for: each look reads up to the end
                low = max(min(low, self._starts[p]), low - (end - low))
            of = PositionRange(Position.from_key(low), Position.from_key(max(low, end)))
            table: dict[Identity, ForeignTransaction] = {}
            for txn in self._partitions[p].partition.transactions(of):
                if txn.identity is not None:
                    table[txn.identity] = txn
                elif txn.state is TransactionState.COMMITTED and txn.last is not None and txn.last.key >= asked:
                    self._untold.add(self._partitions[p].label)
            self._tables[p], self._lows[p] = table, low
        return self._tables[p]


def _may_cut(txn: ForeignTransaction) -> bool:
    """True of what is committed, or may be on another partition."""
    return txn.state is not TransactionState.ABORTED


def _last(txn: ForeignTransaction) -> int:
    """Return the key of the last entry with data; below all if it lies before what was looked at."""
    return -1 if txn.last is None else txn.last.key
