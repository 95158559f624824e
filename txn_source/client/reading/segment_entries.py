"""Reading hot copies: entries from the metadata, bytes from segments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.batch_assembly import EntryBatches, StoredRows
from txn_source.metadata.stub.metadata_stub import EntryPage
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.position import Position, PositionRange, ledger_of
from txn_source.storage.arrays import numbers_in
from txn_source.storage.segment import SegmentReader

_GROUP_BYTES = 8 << 20
_GAP_BYTES = 64 << 10
"""Entries further apart than this in a file are read one by one; nearer ones, with what lies between, at once."""
_MAX_OPEN_SEGMENTS = 64
IntArray = npt.NDArray[np.int64]
Columns = Mapping[str, IntArray]
HotPart = tuple[Columns, Mapping[int, str], tuple[tuple[int, StoredRows], ...], Position]
"""Columns of the entries that are seen, producers' names, (first entry, rows) by schema, and the end, exclusive."""


class HotCopies:
    """Reads ranges of a partition from segments, of which it keeps the most recently used few open."""

    def __init__(self, access: Access) -> None:
        self._stub = access.metadata
        self._root = access.root
        self._open: OrderedDict[str, SegmentReader] = OrderedDict()

    def close(self) -> None:
        """Close all segments; closing again is harmless."""
        for path in list(self._open):
            self._open[path].close()
            del self._open[path]  # after its file: an interrupt leaves it to the next close

    def __del__(self) -> None:
        """Close what is left if an interrupt came in the way of ``close``."""
        if hasattr(self, "_open"):  # and not in the way of __init__
            self.close()

    def read(
        self,
        partition_id: int,
        of: PositionRange,
        seen: Callable[[Columns, Mapping[int, str]], npt.NDArray[np.bool_]],
        *,
        with_bytes: bool,
    ) -> Iterator[HotPart]:
        """Yield the entries that are seen, about 8 MiB of them at once, as far as ledgers have a hot copy.

        Raises:
            SegmentUnreadableError: at the entry after those that were yielded.
        """
        for page in self._stub.list_entries(partition_id, of):
            columns = {name: numbers_in(page.entries[name]) for name in page.entries.column_names}
            keep = seen(columns, page.producers)
            if not keep.all():
                columns = {name: column[keep] for name, column in columns.items()}
            if not with_bytes or not keep.any():
                yield columns, page.producers, (), page.end
                continue
            edges = _groups(columns["length"])
            for first, last in pairwise(edges):
                yield from self._group(columns, page, first, last)

    def _group(self, columns: Columns, page: EntryPage, first: int, last: int) -> Iterator[HotPart]:
        positions = columns["position"]
        end = Position.from_key(int(positions[last])) if last < len(positions) else page.end
        mine = {name: column[first:last] for name, column in columns.items()}
        try:
            stored = self._batches(mine, page.segments)
        except SegmentUnreadableError:
            ledgers = ledger_of(positions[first:last])
            edges = np.flatnonzero(np.diff(ledgers)) + 1
            if not len(edges):
                empty = {name: column[:0] for name, column in mine.items()}
                yield empty, page.producers, (), Position.from_key(int(positions[first]))  # all below it was read
                raise
            for a, b in pairwise([0, *edges.tolist(), last - first]):  # only the ledger with the damage fails
                yield from self._group(columns, page, first + a, first + b)
            return
        yield mine, page.producers, stored, end

    def _batches(self, columns: Columns, paths: Mapping[int, str]) -> tuple[tuple[int, StoredRows], ...]:
        """Read entries segment by segment, and return them in the order of their positions."""
        ids, offsets, lengths = columns["segment_id"], columns["offset"], columns["length"]
        order = np.lexsort((offsets, ids))
        batches: list[pa.RecordBatch | None] = [None] * len(order)
        schemas = np.empty(len(order), np.int64)
        known: list[pa.Schema] = []
        for first, last in _windows(ids[order], offsets[order], lengths[order]):
            window = order[first:last]
            segment = self._segment(paths[int(ids[window[0]])])
            read = segment.read(
                offsets[window].tolist(),
                (offsets[window] + lengths[window]).tolist(),
                columns["crc32c"][window].tolist(),
                columns["position"][window].tolist(),
            )
            number = next((i for i, schema in enumerate(known) if schema.equals(segment.schema)), len(known))
            if number == len(known):
                known.append(segment.schema)
            schemas[window] = number
            for index, batch in zip(window.tolist(), read, strict=True):
                batches[index] = batch
        edges = [0, *(np.flatnonzero(np.diff(schemas)) + 1).tolist(), len(order)]
        return tuple((a, EntryBatches(batches[a:b])) for a, b in pairwise(edges))

    def _segment(self, path: str) -> SegmentReader:
        found = self._open.get(path)
        if found is None:
            found = self._open[path] = SegmentReader(self._root, path)
            if len(self._open) > _MAX_OPEN_SEGMENTS:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(path)
        return found


def _groups(lengths: IntArray) -> list[int]:
    """Return where to cut entries into groups of about so many bytes, one at least, with both ends."""
    bytes_to = np.cumsum(lengths)
    edges = [0]
    while edges[-1] < len(lengths):
        before = int(bytes_to[edges[-1] - 1]) if edges[-1] else 0
        edges.append(max(edges[-1] + 1, int(np.searchsorted(bytes_to, before + _GROUP_BYTES, "right"))))
    return edges


def _windows(ids: IntArray, offsets: IntArray, lengths: IntArray) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of entries that lie close together in one segment; they come by segment and offset."""
    ends = offsets + lengths
    gaps = offsets[1:] - ends[:-1]
    breaks = np.flatnonzero((ids[1:] != ids[:-1]) | (gaps < 0) | (gaps > _GAP_BYTES)) + 1
    for first, last in pairwise([0, *breaks.tolist(), len(ids)]):
        while first < last:
            reach = int(np.searchsorted(ends[first:last], offsets[first] + 2 * _GROUP_BYTES, "right"))
            yield first, (stop := first + max(1, reach))
            first = stop
