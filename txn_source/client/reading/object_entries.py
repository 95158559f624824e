"""Reading entries of one ledger from its tiered copy.

The messages of aborted transactions lie in a second file. It is opened only where a reader sees some of them, and then
entries come from both in the order of the ledger. Each row group is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import pyarrow as pa

from txn_source.client.reading.batch_assembly import JoinedEntries, StoredRows
from txn_source.client.reading.skipping import RowGroups
from txn_source.model.copies import TieredCopy
from txn_source.model.position import Position, PositionRange
from txn_source.model.visibility import BoolArray, IntArray
from txn_source.reading.filters import Seen
from txn_source.storage.arrays import array_of
from txn_source.storage.object_root import Root
from txn_source.storage.tiered import TieredReader

ObjectPart = tuple[Mapping[str, IntArray], Mapping[int, str], tuple[tuple[int, StoredRows], ...], Position]
"""Columns of entries, producers' names, stored rows, and up to where all has been read; see ``copy_fallback.Part``."""


def read_object(root: Root, copy: TieredCopy, of: PositionRange, seen: Seen, stored: pa.Schema) -> Iterator[ObjectPart]:
    """Yield a part for each row group in which the reader sees anything; others aren't read.

    Args:
        root: the log's.
        copy: of the ledger at the range's start.
        of: the range, which no other ledger's entries are in.
        seen: which entries the reader sees.
        stored: the stored columns that are wanted; none: no row group is read.

    Raises:
        SegmentUnreadableError: a file that the reader needs is missing or damaged.
    """
    with ExitStack() as opened:
        reader = opened.enter_context(TieredReader(root, copy))
        footer = reader.footer
        entries, producers = footer.entries, footer.summary.producers
        positions = entries["entry_id"] + Position(of.start.ledger_id, 0).key
        columns = entries | {"position": positions, "length": entries["bytes"]}
        low, high = (int(np.searchsorted(positions, bound.key)) for bound in (of.start, of.end))
        files = [_Rows(reader, footer.inside, stored)]
        keep = np.zeros(len(positions), np.bool_)
        files[0].look(columns, low, high, seen, keep)
        if footer.aborted is not None:
            others = np.setdiff1d(np.arange(len(positions)), footer.inside, assume_unique=True)
            within = others[slice(*np.searchsorted(others, (low, high)))]
            keep[within] = seen(_some(columns, within), producers)
            if len(stored) and keep[within].any():
                files.append(_Rows(opened.enter_context(TieredReader(root, footer.aborted)), others, stored))
                files[1].look(columns, low, high, seen, keep)
        cuts = [footer.row_group_entries, *(file.starts for file in files[1:])]
        edges = np.unique(np.concatenate([*cuts, [low, high]]))
        for first, last in pairwise(edges[(edges >= low) & (edges <= high)].tolist()):
            kept = np.flatnonzero(keep[first:last]) + first
            if not len(kept):
                continue
            part = _some(columns, kept)
            rows: tuple[tuple[int, StoredRows], ...] = ()
            if len(stored):
                rows = ((0, JoinedEntries(_merged(files, first, last, keep), part["messages"])),)
            yield part, producers, rows, Position.from_key(int(positions[last - 1])).plus(1)
        yield {"position": positions[:0]}, producers, (), of.end


def _some(columns: Mapping[str, IntArray], indexes: IntArray) -> dict[str, IntArray]:
    """Return columns of some entries, ascending: neighbours without a copy."""
    which: IntArray | slice = indexes
    if len(indexes) and int(indexes[-1]) - int(indexes[0]) + 1 == len(indexes):
        which = slice(int(indexes[0]), int(indexes[-1]) + 1)
    return {name: column[which] for name, column in columns.items()}


class _Rows:
    """The rows of one file, of which a row group is kept at a time.

    ``entries`` are those whose messages it has, as indexes into the ledger's.
    """

    def __init__(self, reader: TieredReader, entries: IntArray, stored: pa.Schema) -> None:
        self._reader = reader
        self._entries = entries
        self._fields = list(stored)
        self._messages = reader.footer.messages
        self._rows_to = np.concatenate(([0], np.cumsum(self._messages)))
        self._edges = reader.footer.row_groups
        self._group = -1
        self._table: pa.Table | None = None

    @property
    def starts(self) -> IntArray:
        """Where row groups begin, as indexes into the ledger's entries."""
        return self._entries[self._edges[:-1]]

    def look(self, columns: Mapping[str, IntArray], low: int, high: int, seen: Seen, keep: BoolArray) -> None:
        """Note for the entries ``[low, high)`` that are here whether they are kept, row group by row group."""
        statistics = RowGroups(self._reader.footer.metadata)
        start, end = (int(i) for i in np.searchsorted(self._entries, (low, high)))
        for group, (first, last) in enumerate(pairwise(self._edges.tolist())):
            within = self._entries[max(first, start) : min(last, end)]
            if len(within):
                producers = self._reader.footer.summary.producers
                keep[within] = seen(_some(columns, within), producers, statistics.of(group))

    def read(self, first: int, last: int, keep: BoolArray) -> tuple[pa.Table, IntArray] | None:
        """Return the rows of those of the ledger's entries ``[first, last)`` that are kept and here.

        They lie in one row group. With the rows comes for each the entry that it is of; None if there are none.
        """
        low, high = (int(i) for i in np.searchsorted(self._entries, (first, last)))
        entries = self._entries[low:high]
        kept = keep[entries]
        if not kept.any():
            return None
        group = int(np.searchsorted(self._edges, low, "right")) - 1
        if group != self._group or self._table is None:
            self._table = None  # let go of it before the next one comes
            self._table, self._group = self._reader.read_row_group(group, self._fields), group
        start, end = int(self._rows_to[low]), int(self._rows_to[high])
        table = self._table.slice(start - int(self._rows_to[self._edges[group]]), end - start)
        messages = self._messages[low:high]
        if not kept.all():
            table = table.filter(array_of(np.repeat(kept, messages)))
        return table, np.repeat(entries[kept], messages[kept])


def _merged(files: Sequence[_Rows], first: int, last: int, keep: BoolArray) -> pa.RecordBatch:
    """Return the rows of the kept entries ``[first, last)`` in the order of the ledger, whichever files have them."""
    found = [rows for rows in (file.read(first, last, keep) for file in files) if rows is not None]
    table = pa.concat_tables([table for table, _ in found]).combine_chunks()
    if len(found) > 1:
        entries = np.concatenate([entries for _, entries in found])
        table = table.take(array_of(np.argsort(entries, kind="stable"))).combine_chunks()
    [batch] = table.to_batches()
    return batch
