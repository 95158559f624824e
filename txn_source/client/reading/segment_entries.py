"""Reading hot copies: entries from the metadata, bytes from segments."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.batch_assembly import EntryBatches, StoredRows
from txn_source.client.reading.shared_objects import SharedObjects
from txn_source.metadata.stub.metadata_stub import EntryPage
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.position import Position, PositionRange, ledger_of
from txn_source.model.roots import ONLY_MAIN
from txn_source.process.calls import begun
from txn_source.storage.arrays import numbers_in
from txn_source.storage.segment_store import EntryReader, ObjectSegments, Rows

if TYPE_CHECKING:
    from txn_source.client.reading.root_copies import RootCopies

_GROUP_BYTES = 8 << 20
_GAP_BYTES = 64 << 10
"""Entries further apart than this in a file are read one by one; nearer ones, with what lies between, at once."""
_MAX_OPEN_SEGMENTS = 64
_REMOTE_GAP_BYTES = 256 << 10
"""The same where a request takes longer than some bytes more."""
_AHEAD_BYTES = 32 << 20
"""So much is read before it is wanted, where each request takes long."""
_AHEAD_GROUPS = 8
IntArray = npt.NDArray[np.int64]
Columns = Mapping[str, IntArray]
HotPart = tuple[Columns, Mapping[int, str], tuple[tuple[int, StoredRows], ...], Position]
"""Columns of the entries that are seen, producers' names, (first entry, rows) by schema, and the end, exclusive."""


class HotCopies:
    """Reads ranges of a partition from segments, of which it keeps the most recently used few open.

    Where each request takes long, the ranges of several groups are asked for at once, and before they are wanted.
    """

    def __init__(self, access: Access) -> None:
        self._stub = access.metadata
        self._access = access
        self._segments = access.segments
        self._shared = SharedObjects(self._segments) if isinstance(self._segments, ObjectSegments) else None
        self._copies: RootCopies | None = None
        self._is_remote = self._segments.is_remote
        if access.metadata.roots:
            self._is_remote = self._in_roots().is_remote
        self._ahead = _AHEAD_GROUPS if self._is_remote else 1
        self._gap_bytes = _REMOTE_GAP_BYTES if self._is_remote else _GAP_BYTES
        self._open: OrderedDict[str, EntryReader] = OrderedDict()

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
        shared: bool = False,
    ) -> Iterator[HotPart]:
        """Yield the entries that are seen, about 8 MiB of them at once, as far as ledgers have a hot copy.

        With ``shared``, objects may have entries of other partitions that are read with this one: a part without
        entries comes when it is known what the next ones will take, so that the others can say so, too.

        Raises:
            SegmentUnreadableError: at the entry after those that were yielded.
        """
        groups = self._groups_of(self._stub.list_entries(partition_id, of), seen, with_bytes, shared)
        waiting: deque[_Group] = deque()
        for group in groups:
            if group.is_announcement:
                if waiting:
                    continue  # those come first
                yield group.columns, group.page.producers, (), group.end
                continue
            waiting.append(group)
            while len(waiting) >= self._ahead or sum(one.bytes for one in waiting) > _AHEAD_BYTES:
                yield from self._parts(waiting.popleft())
        while waiting:
            yield from self._parts(waiting.popleft())

    def _groups_of(
        self,
        pages: Iterable[EntryPage],
        seen: Callable[[Columns, Mapping[int, str]], npt.NDArray[np.bool_]],
        with_bytes: bool,
        shared: bool,
    ) -> Iterator[_Group]:
        """Yield groups whose bytes are being read; in order, with all that lies between them."""
        for page in pages:
            columns = {name: numbers_in(page.entries[name]) for name in page.entries.column_names}
            keep = seen(columns, page.producers)
            if not keep.all():
                columns = {name: column[keep] for name, column in columns.items()}
            if not with_bytes or not keep.any():
                yield _Group(columns, page, page.end, None)
                continue
            if shared and self._shared is not None:
                if not page.roots:
                    self._shared.announce(columns, page.segments)
                nothing = {name: column[:0] for name, column in columns.items()}
                yield _Group(nothing, page, Position.from_key(int(columns["position"][0])), None, True)
            for first, last in pairwise(_groups(columns, self._is_remote)):
                yield self._group(columns, page, first, last)

    def _group(self, columns: Columns, page: EntryPage, first: int, last: int) -> _Group:
        positions = columns["position"]
        end = Position.from_key(int(positions[last])) if last < len(positions) else page.end
        mine = {name: column[first:last] for name, column in columns.items()}
        return _Group(mine, page, end, self._begin(mine, page.segments, page.roots))

    def _parts(self, group: _Group) -> Iterator[HotPart]:
        page, columns = group.page, group.columns
        if group.windows is None:
            yield columns, page.producers, (), group.end
            return
        try:
            stored = _rows(len(columns["position"]), group.windows)
        except SegmentUnreadableError as error:
            positions = columns["position"]
            edges = (np.flatnonzero(np.diff(ledger_of(positions))) + 1).tolist()
            if not edges and len(positions) > 1 and not isinstance(error.__cause__, OSError):
                edges = [len(positions) // 2]  # the file is readable: halve the group until the damaged entry is alone
            if not edges:
                empty = {name: column[:0] for name, column in columns.items()}
                yield empty, page.producers, (), Position.from_key(int(positions[0]))  # all below it was read
                raise
            for a, b in pairwise([0, *edges, len(positions)]):  # only the damaged ledger or entry fails
                part = self._group(columns, page, a, b)
                yield from self._parts(part if b < len(positions) else replace(part, end=group.end))
            return
        yield columns, page.producers, stored, group.end

    def _begin(self, columns: Columns, paths: Mapping[int, str], roots: Mapping[int, int]) -> list[_Window]:
        """Begin to read entries segment by segment."""
        ids, offsets, lengths = columns["segment_id"], columns["offset"], columns["length"]
        order = np.lexsort((offsets, ids))
        windows = []
        for first, last in _windows(ids[order], offsets[order], lengths[order], self._gap_bytes):
            window = order[first:last]
            segment_id = int(ids[window[0]])
            path, of_roots = paths[segment_id], roots.get(segment_id, ONLY_MAIN)
            of = (
                offsets[window].tolist(),
                (offsets[window] + lengths[window]).tolist(),
                columns["crc32c"][window].tolist(),
                columns["position"][window].tolist(),
            )
            if self._shared is not None and of_roots == ONLY_MAIN:
                windows.append(_Window(window, self._shared.begin(path, *of)))
                continue
            read = partial(self._read, path, of_roots, *of)
            windows.append(_Window(window, begun(read) if self._is_remote else read))
        return windows

    def _read(self, path: str, roots: int, *of: list[int]) -> Rows:
        if roots != ONLY_MAIN:
            return self._in_roots().read(path, roots, of)
        return self._segment(path).read(*of)

    def _in_roots(self) -> RootCopies:
        if self._copies is None:
            from txn_source.client.reading.root_copies import RootCopies  # which most logs need not

            self._copies = RootCopies(self._access)
        return self._copies

    def _segment(self, path: str) -> EntryReader:
        if self._is_remote:
            return self._segments.open(path)  # by several threads
        found = self._open.get(path)
        if found is None:
            found = self._open[path] = self._segments.open(path)
            if len(self._open) > _MAX_OPEN_SEGMENTS:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(path)
        return found


@dataclass(frozen=True, slots=True)
class _Window:
    """Entries that lie close together: which of a group they are, and what returns them."""

    entries: IntArray
    rows: Callable[[], Rows]


@dataclass(frozen=True, slots=True)
class _Group:
    """Entries in a row; without windows none of their bytes are wanted. ``end`` is exclusive."""

    columns: Columns
    page: EntryPage
    end: Position
    windows: list[_Window] | None
    is_announcement: bool = False

    @property
    def bytes(self) -> int:
        """How much is read of it."""
        return 0 if self.windows is None else int(self.columns["length"].sum())


def _rows(count: int, windows: list[_Window]) -> tuple[tuple[int, StoredRows], ...]:
    """Return what was read of a group, in the order of the positions."""
    batches: list[pa.RecordBatch | None] = [None] * count
    schemas = np.empty(count, np.int64)
    known: list[pa.Schema] = []
    for window in windows:
        entries, at = window.entries, 0
        for found, read in window.rows():
            number = next((i for i, schema in enumerate(known) if schema.equals(found)), len(known))
            if number == len(known):
                known.append(found)
            mine = entries[at : at + len(read)]
            schemas[mine] = number
            for index, batch in zip(mine.tolist(), read, strict=True):
                batches[index] = batch
            at += len(read)
    edges = [0, *(np.flatnonzero(np.diff(schemas)) + 1).tolist(), count]
    return tuple((a, EntryBatches(batches[a:b])) for a, b in pairwise(edges))


def _groups(columns: Columns, remote: bool) -> list[int]:
    """Return where to cut entries into groups of about so many bytes, one entry at least, with both ends.

    An object is about as large as a group: where it costs a request to begin it once more, groups are up to twice as
    large, and end where an object does.
    """
    lengths = columns["length"]
    bytes_to = np.cumsum(lengths)
    others = np.flatnonzero(np.diff(columns["segment_id"])) + 1 if remote else np.empty(0, np.int64)
    edges = [0]
    while edges[-1] < len(lengths):
        begin = edges[-1]
        before = int(bytes_to[begin - 1]) if begin else 0
        most = (2 if remote else 1) * _GROUP_BYTES
        edge = max(begin + 1, int(np.searchsorted(bytes_to, before + most, "right")))
        if remote and edge < len(lengths):
            last = int(np.searchsorted(others, edge, "right")) - 1
            if last >= 0 and others[last] > begin:
                edge = int(others[last])
        edges.append(edge)
    return edges


def _windows(ids: IntArray, offsets: IntArray, lengths: IntArray, gap_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of entries that lie close together in one segment; they come by segment and offset."""
    ends = offsets + lengths
    gaps = offsets[1:] - ends[:-1]
    breaks = np.flatnonzero((ids[1:] != ids[:-1]) | (gaps < 0) | (gaps > gap_bytes)) + 1
    for first, last in pairwise([0, *breaks.tolist(), len(ids)]):
        while first < last:
            reach = int(np.searchsorted(ends[first:last], offsets[first] + 2 * _GROUP_BYTES, "right"))
            yield first, (stop := first + max(1, reach))
            first = stop
