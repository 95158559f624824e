"""What each message of a delivery acknowledges: its own place, and all up to where the next one begins.

A worked example. Entry 12:0 has three messages, 12:1 is a marker, 12:2 has two messages. A delivery wants
``[12:0:1, 12:2:1)`` and ``[12:2:1, 12:3:0)``. Below each message that was read is its range, which begins at its place:

    read     12:0:0   12:0:1             12:0:2             12:2:0             12:2:1
    range    -        [12:0:1, 12:0:2)   [12:0:2, 12:2:0)   [12:2:0, 12:2:1)   [12:2:1, 12:3:0)

- 12:0:0 lies in no wanted range, so it isn't given out.
- The marker lies in the range of 12:0:2: nobody acknowledges it by itself.
- The last message of a wanted range acknowledges up to the range's end, the first one from its start.

If the entries come in two record batches, and the first one ends with 12:0:2, then the range of that message ends right
behind it, at 12:0:3, and the first one of the next batch begins there: ``[12:0:3, 12:2:1)`` for 12:2:0. So what was
given out is never left with a hole. A wanted range without any message is yielded as it is, for its owner to
acknowledge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.model.errors import TxnLogError
from txn_source.model.message_ranges import MessageRange, index_of, message_key, packed, position_of
from txn_source.model.position import Position, key_of
from txn_source.storage.arrays import array_of, numbers_in

Places = npt.NDArray[np.int64]
"""Places of messages, a column each: row 0 has positions (``Position.key``), row 1 indexes in the entry."""


@dataclass(frozen=True, slots=True)
class BatchRanges:
    """The range ``[start, end)`` of each message of a batch: ``starts`` inclusive, ``ends`` exclusive, ascending."""

    starts: Places
    ends: Places

    def start(self, row: int) -> int:
        """Return where a message's range begins, ``message_key``, inclusive."""
        return _key(self.starts, row)

    def end(self, row: int) -> int:
        """Return where a message's range ends, ``message_key``, exclusive."""
        return _key(self.ends, row)

    def part(self, first: int, last: int) -> BatchRanges:
        """Return the ranges of rows ``[first, last)``."""
        return BatchRanges(self.starts[:, first:last], self.ends[:, first:last])

    def joined(self, rows: Sequence[int] | None = None) -> Iterator[MessageRange]:
        """Yield the ranges of rows (None: all), ascending; those of neighbours that touch as one."""
        taken = np.arange(self.starts.shape[1]) if rows is None else np.unique(np.asarray(rows, np.int64))
        if not len(taken):
            return
        before, behind = taken[:-1], taken[1:]
        touch = (behind - before == 1) & (self.ends[:, before] == self.starts[:, behind]).all(axis=0)
        edges = np.concatenate(([0], np.flatnonzero(~touch) + 1, [len(taken)])).tolist()
        for first, last in pairwise(edges):
            yield MessageRange(self.start(int(taken[first])), self.end(int(taken[last - 1])), last - first)


def wanted_messages(
    wanted: Sequence[MessageRange], read: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, BatchRanges] | MessageRange]:
    """Yield the wanted messages of what was read, with their ranges, and the wanted ranges in which there is none.

    Args:
        wanted: ascending, without overlaps.
        read: entries of one partition in order, with the columns ``__ledger_id, __entry_id, __batch_index``.
    """
    done = 0  # so many wanted ranges are done with
    begun: int | None = None  # where the last batch's part of the next one ended; None: it had none
    for batch, following in _with_next(read):
        places = _places(batch)
        found: list[tuple[slice, BatchRanges]] = []
        while done < len(wanted):
            item = wanted[done]
            start = item.start if begun is None else begun
            rows = slice(_rows_before(places, start), _rows_before(places, item.end))
            ends_here = following is None or rows.stop < batch.num_rows or following >= item.end
            if rows.start < rows.stop:
                ranges = _ranges(places[:, rows], start, item.end if ends_here else None)
                found.append((rows, ranges))
                begun = ranges.end(-1)
            elif ends_here and begun is None:
                yield MessageRange(item.start, item.end)
            if not ends_here:
                break
            done, begun = done + 1, None
        if found:
            yield _picked(batch, found)
    for item in wanted[done:]:
        yield MessageRange(item.start if begun is None else begun, item.end)
        begun = None


def _with_next(read: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, int | None]]:
    """Yield each batch that has rows with the place of the first message behind it, ``message_key``; None: none is.

    If the next batch can't be read, that place is right behind the last message of this one.
    """
    last: pa.RecordBatch | None = None
    batches = iter(read)
    while True:
        try:
            batch = next(batches, None)
        except TxnLogError:
            if last is not None:
                yield last, place_of(last, last.num_rows - 1) + 1
            raise
        if batch is None:
            break
        if not batch.num_rows:
            continue
        if last is not None:
            yield last, place_of(batch, 0)
        last = batch
    if last is not None:
        yield last, None


def place_of(batch: pa.RecordBatch, row: int) -> int:
    """Return a message's own place, ``message_key``."""
    ledger_id, entry_id, index = (batch.column(n)[row].as_py() for n in ("__ledger_id", "__entry_id", "__batch_index"))
    return message_key(Position(ledger_id, entry_id), index)


def _places(batch: pa.RecordBatch) -> Places:
    positions = key_of(numbers_in(batch["__ledger_id"]), numbers_in(batch["__entry_id"]))
    return np.stack([positions, numbers_in(batch["__batch_index"]).astype(np.int64)])


def _key(places: Places, row: int) -> int:
    return packed(int(places[0, row]), int(places[1, row]))


def _place(key: int) -> Places:
    return np.array([[position_of(key).key], [index_of(key)]])


def _rows_before(places: Places, key: int) -> int:
    """Return how many messages lie below a place, ``message_key``."""
    positions, indexes = places
    position = position_of(key).key
    first, last = (int(np.searchsorted(positions, position, side)) for side in ("left", "right"))
    return first + int(np.searchsorted(indexes[first:last], index_of(key)))


def _ranges(places: Places, start: int, end: int | None) -> BatchRanges:
    """Return the ranges of neighbours that begin at ``start`` and end at ``end``; None: right behind the last one."""
    last = _key(places, -1) + 1 if end is None else end
    behind_first = places[:, 1:]
    return BatchRanges(np.hstack([_place(start), behind_first]), np.hstack([behind_first, _place(last)]))


def _picked(batch: pa.RecordBatch, found: Sequence[tuple[slice, BatchRanges]]) -> tuple[pa.RecordBatch, BatchRanges]:
    """Return the rows that were found, which are all of them in most cases."""
    [(rows, ranges), *others] = found
    if others:
        ranges = BatchRanges(np.hstack([r.starts for _, r in found]), np.hstack([r.ends for _, r in found]))
        batch = batch.take(array_of(np.concatenate([np.arange(r.start, r.stop) for r, _ in found])))
    elif rows != slice(0, batch.num_rows):
        batch = batch.slice(rows.start, rows.stop - rows.start)
    return batch, ranges
