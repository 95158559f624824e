"""Reading slices: entries from the metadata, bytes from segments, filtered, joined and given their metadata columns.

``scan`` and Spark's tasks run this same code. What a slice yields depends on the slice, the isolation level and the
pinned number of decisions alone, so a retried task reads the same rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.client.assembly import Assembly, EntryColumns
from txn_source.metadata.stub import EntryPage, MetadataStub
from txn_source.metadata.transactions import id_of
from txn_source.model.errors import DataLossError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.packing import Slice
from txn_source.model.position import PositionRange
from txn_source.model.transaction import TransactionState
from txn_source.model.visibility import NO_TXN, visible
from txn_source.storage.segment import SegmentReader

_WINDOW_BYTES = 8 << 20
_GAP_BYTES = 64 << 10
"""Entries further apart than this in a file are read one by one; nearer ones, with what lies between, at once."""
_MAX_OPEN_SEGMENTS = 16
_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Reads slices as record batches of ``schema`` (payload and metadata columns) with about 64k rows each."""

    stub: MetadataStub
    root: Path
    schema: pa.Schema
    isolation_level: IsolationLevel
    decisions: int

    def read(self, slices: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
        """Yield what a reader of the level sees of the slices, in order."""
        assembly = Assembly(self.schema)
        with ExitStack() as stack:
            segments = _Segments(self.root, stack)
            for piece in slices:
                decided = self._decided(piece)
                for page in self.stub.list_entries(piece.partition_id, piece.range):
                    yield from self._read_page(piece, page, decided, segments, assembly)
                self._check_still_there(piece)
        yield from assembly.finish()

    def _check_still_there(self, piece: Slice) -> None:
        """Raise DATA_LOSS if what was planned has been deleted since: its entries are missing without a trace."""
        start = piece.range.start
        if not self.stub.list_ledgers(piece.partition_id, PositionRange(start, start)).num_rows:
            raise DataLossError(
                f"Partition {piece.partition} of topic {piece.topic!r} has lost {piece.range}, which was to be read:"
                " the topic was deleted after the read was planned.",
                "Plan the read again with a new load() or scan().",
            )

    def _decided(self, piece: Slice) -> _Decided:
        status = "__txn_status" in self.schema.names
        committed_only = self.isolation_level is IsolationLevel.READ_COMMITTED
        if not committed_only and not status:
            return _Decided(_NONE, _NONE)
        table = self.stub.list_decisions(
            piece.partition_id, piece.range, aborted_only=not status, decisions=self.decisions
        )
        txns, states = table["txn"].to_numpy(), table["state"].to_numpy()
        return _Decided(txns[states != _COMMITTED], txns[states == _COMMITTED])

    def _read_page(
        self, piece: Slice, page: EntryPage, decided: _Decided, segments: _Segments, assembly: Assembly
    ) -> Iterator[pa.RecordBatch]:
        columns = {name: page.entries[name].to_numpy() for name in page.entries.column_names}
        markers = np.zeros(page.entries.num_rows, dtype=np.bool_)  # the service leaves markers out
        seen = visible(columns["position"], columns["txn"], markers, piece.range, self.isolation_level, decided.aborted)
        if not seen.all():
            columns = {name: column[seen] for name, column in columns.items()}
        entries = EntryColumns(
            topic=piece.topic,
            partition=piece.partition,
            positions=columns["position"],
            publish_times=columns["publish_time_us"],
            base_sequences=columns["base_sequence"],
            producers=self._producers(columns["producer_id"], page.producers),
            txn_ids=self._txn_ids(columns["txn"]),
            txn_statuses=self._statuses(columns["txn"], decided),
        )
        assembly.start_page(entries)
        if assembly.needs_bytes:
            yield from self._read_bytes(columns, page.segments, segments, assembly)
        else:
            yield from assembly.add(0, None, columns["messages"], np.zeros_like(columns["messages"]))
        yield from assembly.end_page()

    def _read_bytes(
        self,
        columns: dict[str, npt.NDArray[np.int64]],
        paths: dict[int, str],
        segments: _Segments,
        assembly: Assembly,
    ) -> Iterator[pa.RecordBatch]:
        ids, offsets, lengths = columns["segment_id"], columns["offset"], columns["length"]
        lows, highs, checksums = offsets.tolist(), (offsets + lengths).tolist(), columns["crc32c"].tolist()
        positions = columns["position"].tolist()
        for first, last in _windows(ids, offsets, lengths):
            segment = segments.open(paths[int(ids[first])])
            batches = segment.read(lows[first:last], highs[first:last], checksums[first:last], positions[first:last])
            yield from assembly.add(first, batches, columns["messages"][first:last], lengths[first:last])

    def _producers(self, ids: npt.NDArray[np.int64], names: dict[int, str]) -> pa.Array | None:
        if "__producer_name" not in self.schema.names:
            return None
        known = np.array(sorted(names), np.int64)
        return pa.array([names[int(i)] for i in known], pa.string()).take(pa.array(np.searchsorted(known, ids)))

    def _txn_ids(self, txns: npt.NDArray[np.int64]) -> pa.Array | None:
        if "__txn_id" not in self.schema.names:
            return None
        return pa.array([None if txn == NO_TXN else str(id_of(txn)) for txn in txns.tolist()], pa.string())

    def _statuses(self, txns: npt.NDArray[np.int64], decided: _Decided) -> pa.Array | None:
        if "__txn_status" not in self.schema.names:
            return None
        codes = np.where(np.isin(txns, decided.aborted), 2, np.where(np.isin(txns, decided.committed), 1, 0))
        names = pa.array(
            [s.value for s in (TransactionState.OPEN, TransactionState.COMMITTED, TransactionState.ABORTED)]
        )
        return names.take(pa.array(codes, mask=txns == NO_TXN))


_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Decided:
    aborted: npt.NDArray[np.int64]
    committed: npt.NDArray[np.int64]


class _Segments:
    """The segments that one read has open: the most recently used few."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self._root = root
        self._open: OrderedDict[str, SegmentReader] = OrderedDict()
        stack.callback(self._close)

    def open(self, path: str) -> SegmentReader:
        """Return the reader of a segment, opening it if need be."""
        found = self._open.get(path)
        if found is None:
            found = self._open[path] = SegmentReader(self._root, path)
            if len(self._open) > _MAX_OPEN_SEGMENTS:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(path)
        return found

    def _close(self) -> None:
        for segment in self._open.values():
            segment.close()


def _windows(
    ids: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of entries that lie close together, ascending, in one segment, a few megabytes at most."""
    if not len(ids):
        return
    gaps = offsets[1:] - (offsets[:-1] + lengths[:-1])
    breaks = np.flatnonzero((ids[1:] != ids[:-1]) | (gaps < 0) | (gaps > _GAP_BYTES)) + 1
    edges = [0, *breaks.tolist(), len(ids)]
    for first, last in pairwise(edges):
        while first < last:
            reach = np.searchsorted(offsets[first:last] + lengths[first:last], offsets[first] + _WINDOW_BYTES, "right")
            stop = first + max(1, int(reach))
            yield first, stop
            first = stop
