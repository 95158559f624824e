"""Ranges of messages of one partition, and the set of those that a subscription has acknowledged.

A message's place is one integer that sorts as (entry's position, index in the entry) do: ``message_key``. Ranges are
half-open. What lies between two visible messages (markers, aborted entries) belongs to the first one's range, so
neighbours touch and the ranges of a stretch that is wholly acknowledged join to one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from txn_source.model.position import MessageId, Position

_ROW = struct.Struct("<5q")
_INDEX_BITS = 32
_INDEX_MASK = (1 << _INDEX_BITS) - 1


def message_key(position: Position, index: int = 0) -> int:
    """Return a message's place as one sortable integer; index 0 is the place before all messages of the entry."""
    return packed(position.key, index)


def packed(position_key: int, index: int) -> int:
    """Return a message's place from its entry's ``Position.key`` and its index."""
    return position_key << _INDEX_BITS | index


def position_of(key: int) -> Position:
    """Return the position of the entry that a message's place lies in."""
    return Position.from_key(key >> _INDEX_BITS)


def message_id_of(key: int) -> MessageId:
    """Return a message's place as its id."""
    at = position_of(key)
    return MessageId(at.ledger_id, at.entry_id, index_of(key))


def key_of(at: MessageId) -> int:
    """Return a message's id as its place."""
    return message_key(at.position, at.batch_index)


def index_of(key: int) -> int:
    """Return the index in its entry of a message's place."""
    return key & _INDEX_MASK


@dataclass(frozen=True, slots=True, order=True)
class MessageRange:
    """Messages of one partition with places in ``[start, end)``; ``messages`` is how many a reader sees in it."""

    start: int
    end: int
    messages: int = 0

    def __str__(self) -> str:
        start, end = (f"{position_of(key)}:{index_of(key)}" for key in (self.start, self.end))
        return f"[{start}, {end})"


class MessageRanges:
    """A set of messages as disjoint ranges, ascending; ranges that touch are joined."""

    __slots__ = ("_counts", "_ends", "_starts")

    def __init__(self, ranges: Iterable[MessageRange] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._counts: list[int] = []
        for item in ranges:
            self.add(item)

    def __iter__(self) -> Iterator[MessageRange]:
        return map(MessageRange, self._starts, self._ends, self._counts)

    def __len__(self) -> int:
        return len(self._starts)

    def __repr__(self) -> str:
        return f"<MessageRanges {', '.join(map(str, self))}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageRanges) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def messages(self) -> int:
        """How many messages there are in all ranges."""
        return sum(self._counts)

    @property
    def end(self) -> int:
        """Where the last range ends, exclusive; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def add(self, item: MessageRange) -> int:
        """Add a range and return how many of its messages are new.

        Of a range that was partly there the count of what is new isn't known; it is taken to be what the whole range
        has more than the parts that were there.
        """
        if item.start >= item.end:
            return 0
        first = bisect_left(self._ends, item.start)
        last = bisect_right(self._starts, item.end)
        start, end, there, overlapped = item.start, item.end, 0, 0
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
            there = sum(self._counts[first:last])
            overlapped = sum(
                self._counts[i] for i in range(first, last) if self._starts[i] < item.end and self._ends[i] > item.start
            )
        new = max(0, item.messages - overlapped)
        self._starts[first:last], self._ends[first:last], self._counts[first:last] = [start], [end], [there + new]
        return new

    def drop_below(self, key: int) -> None:
        """Forget the ranges that end at or below a place, and the part of one that lies below it."""
        gone = bisect_right(self._ends, key)
        del self._starts[:gone], self._ends[:gone], self._counts[:gone]
        if self._starts and self._starts[0] < key:
            self._starts[0] = key

    def covers(self, item: MessageRange) -> bool:
        """True if every place of a range is in the set."""
        at = bisect_right(self._starts, item.start) - 1
        return item.start >= item.end or (at >= 0 and self._ends[at] >= item.end)

    def touches(self, item: MessageRange) -> bool:
        """True if some place of a range is in the set."""
        at = bisect_right(self._ends, item.start)
        return item.start < item.end and at < len(self._starts) and self._starts[at] < item.end

    def joins(self, item: MessageRange) -> bool:
        """True if adding a range makes no range more: it touches one that is there, or has places in common with it."""
        return bisect_left(self._ends, item.start) < bisect_right(self._starts, item.end)

    def within(self, start: int, end: int) -> Iterator[MessageRange]:
        """Yield what is in the set of ``[start, end)``; the counts are those of the whole ranges."""
        for at in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[at] >= end:
                return
            yield MessageRange(max(start, self._starts[at]), min(end, self._ends[at]), self._counts[at])

    def missing(self, start: int, end: int) -> list[MessageRange]:
        """Return what isn't in the set of ``[start, end)``, ascending; without counts."""
        found = []
        for there in self.within(start, end):
            if start < there.start:
                found.append(MessageRange(start, there.start))
            start = there.end
        if start < end:
            found.append(MessageRange(start, end))
        return found

    def to_bytes(self) -> bytes:
        """Return the set in a form that ``from_bytes`` reads: five 64-bit integers a range."""
        rows = [
            (a >> _INDEX_BITS, a & _INDEX_MASK, b >> _INDEX_BITS, b & _INDEX_MASK, n)
            for a, b, n in zip(self._starts, self._ends, self._counts, strict=True)
        ]
        return b"".join(_ROW.pack(*row) for row in rows)

    @classmethod
    def from_bytes(cls, data: bytes) -> MessageRanges:
        """Return the set that ``to_bytes`` wrote."""
        found = cls()
        for a, i, b, j, n in _ROW.iter_unpack(data):
            found._starts.append(packed(a, i))
            found._ends.append(packed(b, j))
            found._counts.append(n)
        return found
