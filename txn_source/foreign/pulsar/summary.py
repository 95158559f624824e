"""What a plan needs to know of a ledger, learnt by one look at all its entries: an object never changes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from txn_source.foreign.pulsar import entries as of
from txn_source.foreign.pulsar.chunks import Chunk
from txn_source.foreign.pulsar.entries import Entries, look_into
from txn_source.foreign.pulsar.raw_entries import EntrySource
from txn_source.model.visibility import NO_TXN, BoolArray, IntArray

STRETCH_BYTES = 1 << 20
"""About so many bytes of entries lie between two places that a task can begin at."""


_DATA, _COMMIT, _ABORT = range(3)
_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactions in one ledger, an item each, by ascending number; keys are -1 where there is none.

    ``firsts`` and ``lasts`` are their first and last entry with data, ``markers`` their last marker, ``laters`` the
    first entry with data behind that. ``aborted`` is true if any marker aborts one.
    """

    numbers: IntArray
    firsts: IntArray
    lasts: IntArray
    markers: IntArray
    laters: IntArray
    aborted: BoolArray

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """One ledger: its transactions, the chunks in it, and places where a task can begin.

    ``firsts``, ``places``, ``sizes``, ``rows`` and ``times`` have an item for each stretch of entries: the first entry,
    where it lies, the bytes of all, their messages at most, and their latest publish time (ms). ``first_index`` is the
    broker's own number of the ledger's first message, ``next_index`` the one behind its last; -1: it gave none.
    """

    ledger_id: int
    entries: int
    txns: Transactions
    chunks: tuple[Chunk, ...]
    firsts: IntArray
    places: IntArray
    sizes: IntArray
    rows: IntArray
    times: IntArray
    first_index: int = -1
    next_index: int = -1


@dataclass(slots=True)
class _Stretches:
    firsts: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def add(self, found: Entries) -> None:
        sizes = found.raw.ends - found.raw.starts
        times = found.metadata.number(of.PUBLISH_TIME)
        total = np.cumsum(sizes)
        new = np.concatenate(([True], found.raw.places[1:] != found.raw.places[:-1]))
        if self.places and found.raw.places[0] == self.places[-1]:
            new[0] = False
        starts = np.flatnonzero(new)
        cut = [0]
        before = 0
        for start in starts.tolist():
            if start and int(total[start - 1]) - before >= STRETCH_BYTES:
                cut.append(start)
                before = int(total[start - 1])
        for start, end in zip(cut, [*cut[1:], len(found)], strict=True):
            part = slice(start, end)
            size, rows, time = int(sizes[part].sum()), int(found.messages[part].sum()), int(times[part].max())
            if self.places and (not new[start] or self.sizes[-1] + size <= STRETCH_BYTES):
                self.sizes[-1] += size
                self.rows[-1] += rows
                self.times[-1] = max(self.times[-1], time)
            else:
                self.firsts.append(found.raw.first + start)
                self.places.append(int(found.raw.places[start]))
                self.sizes.append(size)
                self.rows.append(rows)
                self.times.append(time)


def summarize(source: EntrySource, ledger_id: int) -> LedgerSummary:
    """Return what lies in a ledger; all checksums are looked at.

    Raises:
        SegmentUnreadableError: the object is damaged, or doesn't answer.
        DataLossError: it is gone.
    """
    events: list[tuple[IntArray, IntArray, IntArray]] = []
    chunks: list[Chunk] = []
    stretches = _Stretches()
    first_index = next_index = -1
    for raw in source.read(0, source.entries):
        found = look_into(raw, source.uri, ledger_id)
        stretches.add(found)
        if raw.first == 0:
            first_index = _index(found, 0) - max(int(found.messages[0]), 1)
        next_index = _index(found, -1)
        events.append(_events(found))
        chunks += chunks_in(found)
    firsts, places, sizes, rows, times = (
        np.array(items, np.int64)
        for items in (stretches.firsts, stretches.places, stretches.sizes, stretches.rows, stretches.times)
    )
    return LedgerSummary(
        ledger_id,
        source.entries,
        _transactions(*(np.concatenate([np.zeros(0, np.int64), *(part[at] for part in events)]) for at in range(3))),
        tuple(chunks),
        firsts,
        places,
        sizes,
        rows,
        times,
        first_index=max(first_index, -1),
        next_index=next_index,
    )


def _index(found: Entries, at: int) -> int:
    """Return the broker's number behind an entry's last message, by which markers have one, too; -1: it gave none."""
    return int(found.broker.number(of.BROKER_INDEX)[at]) + 1 if found.broker.has(of.BROKER_INDEX)[at] else -1


def chunks_in(found: Entries) -> list[Chunk]:
    """Return the chunks among entries."""
    which = np.flatnonzero(found.chunks())
    starts, ends = (part[which].tolist() for part in found.metadata.slices(of.UUID))
    view = found.raw.data.data
    return [
        Chunk(key, bytes(view[start:end]), number, count, txn, place, stop)
        for key, start, end, number, count, txn, place, stop in zip(
            found.keys[which].tolist(),
            starts,
            ends,
            found.metadata.number(of.CHUNK)[which].tolist(),
            found.metadata.number(of.CHUNKS)[which].tolist(),
            found.txns[which].tolist(),
            found.raw.places[which].tolist(),
            found.raw.stops[which].tolist(),
            strict=True,
        )
    ]


def _events(found: Entries) -> tuple[IntArray, IntArray, IntArray]:
    """Return what happens to transactions in entries: numbers, keys, and which of ``_DATA``, ``_COMMIT``, ``_ABORT``.

    Markers of other kinds than commit and abort end nothing.
    """
    commits, aborts = found.decided()
    which = np.flatnonzero((found.txns != NO_TXN) & (commits | aborts | ~found.markers))
    kinds = np.where(aborts, _ABORT, np.where(commits, _COMMIT, _DATA))
    return found.txns[which], found.keys[which], kinds[which].astype(np.int64)


def _transactions(numbers: IntArray, keys: IntArray, kinds: IntArray) -> Transactions:
    """Return the transactions of events, which are in the order of their keys."""
    numbers, keys, kinds = (part[np.argsort(numbers, kind="stable")] for part in (numbers, keys, kinds))
    data = kinds == _DATA
    of = Groups(numbers)
    markers = of.highest(np.where(data, -1, keys))
    behind = of.spread(markers)
    return Transactions(
        of.numbers,
        of.lowest(np.where(data, keys, -1)),
        of.highest(np.where(data, keys, -1)),
        markers,
        of.lowest(np.where(data & (behind >= 0) & (keys > behind), keys, -1)),
        of.any(kinds == _ABORT),
    )


class Groups:
    """Neighbouring items with the same number, of which each group has one result."""

    def __init__(self, numbers: IntArray) -> None:
        new = np.ones(len(numbers), np.bool_)
        new[1:] = numbers[1:] != numbers[:-1]
        self._starts = np.flatnonzero(new)
        self._sizes = np.diff(np.append(self._starts, len(numbers)))
        self.numbers = numbers[self._starts]

    def highest(self, values: IntArray) -> IntArray:
        """Return the highest value of each."""
        return np.maximum.reduceat(values, self._starts) if len(values) else values

    def lowest(self, values: IntArray) -> IntArray:
        """Return the lowest value of each that isn't negative; -1 if there is none."""
        if not len(values):
            return values
        found = np.minimum.reduceat(np.where(values < 0, _NEVER, values), self._starts)
        return np.where(found == _NEVER, -1, found)

    def any(self, flags: BoolArray) -> BoolArray:
        """Return of each if any is true."""
        return np.logical_or.reduceat(flags, self._starts) if len(flags) else flags

    def spread(self, values: IntArray) -> IntArray:
        """Return, for each item, its group's value."""
        return np.repeat(values, self._sizes)
