"""Putting entries together to batches of about 64k rows, with the metadata columns made from per-entry values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.model.position import MAX_ENTRY_ID

TARGET_ROWS = 65_536
TARGET_BYTES = 16 << 20
_LEDGER_SHIFT = 32


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """What is constant in each entry of a page, an item an entry; None where no column of it was asked for."""

    topic: str
    partition: int
    positions: npt.NDArray[np.int64]
    publish_times: npt.NDArray[np.int64]
    base_sequences: npt.NDArray[np.int64]
    producers: pa.Array | None
    txn_ids: pa.Array | None
    txn_statuses: pa.Array | None


class Assembly:
    """Takes entries page by page and yields batches of one schema; batches never span pages' metadata unmade.

    The payload of several small entries is copied once, that of a large one not at all.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._made = [f for f in schema if f.name.startswith("__") and f.name not in ("__event_time", "__properties")]
        self._stored = [f for f in schema if f not in self._made]
        self._stored_schema = pa.schema(self._stored)
        self.needs_bytes = bool(self._stored)
        self._page: EntryColumns | None = None
        self._batches: list[pa.RecordBatch] = []
        self._indexes: list[int] = []
        self._counts: list[int] = []
        self._firsts: list[int] = []
        self._rows = self._bytes = 0
        self._ready: list[pa.RecordBatch] = []
        self._ready_rows = self._ready_bytes = 0

    def start_page(self, page: EntryColumns) -> None:
        """Take the constants that entries added from now on refer to."""
        self._page = page

    def add(self, index: int, batch: pa.RecordBatch | None, rows: int) -> Iterator[pa.RecordBatch]:
        """Add the entry of that index in the page: its stored batch (None if no stored column is wanted)."""
        size = 0
        if batch is not None:
            if batch.schema != self._stored_schema:
                batch = self._project(batch)
            size = batch.nbytes
        if self._rows and (self._rows + rows > TARGET_ROWS or self._bytes + size > TARGET_BYTES):
            yield from self._emit()
        step = rows if size <= TARGET_BYTES else max(1, rows * TARGET_BYTES // size)
        step = min(step, TARGET_ROWS) or 1
        for first in range(0, rows, step):
            count = min(step, rows - first)
            if batch is not None:
                self._batches.append(batch if count == rows else batch.slice(first, count))
            self._indexes.append(index)
            self._counts.append(count)
            self._firsts.append(first)
            self._rows += count
            self._bytes += size * count // rows
            if self._rows >= TARGET_ROWS or self._bytes >= TARGET_BYTES:
                yield from self._emit()

    def end_page(self) -> Iterator[pa.RecordBatch]:
        """Make the batch of what is left of the page; a small one waits for the next page."""
        yield from self._emit(page_ends=True)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left."""
        yield from self._release()

    def _emit(self, *, page_ends: bool = False) -> Iterator[pa.RecordBatch]:
        if not self._rows:
            return
        batch = self._make()
        size = self._bytes
        self._batches, self._indexes, self._counts, self._firsts = [], [], [], []
        self._rows = self._bytes = 0
        if self._ready and (self._ready_rows + batch.num_rows > TARGET_ROWS or self._ready_bytes + size > TARGET_BYTES):
            yield from self._release()
        if page_ends and batch.num_rows < TARGET_ROWS // 2 and size < TARGET_BYTES // 2:
            self._ready.append(batch)
            self._ready_rows += batch.num_rows
            self._ready_bytes += size
            return
        yield from self._release()
        yield batch

    def _release(self) -> Iterator[pa.RecordBatch]:
        if self._ready:
            yield self._ready[0] if len(self._ready) == 1 else pa.concat_batches(self._ready)
            self._ready, self._ready_rows, self._ready_bytes = [], 0, 0

    def _project(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        columns = [
            batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows, field.type)
            for field in self._stored
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._stored_schema)

    def _make(self) -> pa.RecordBatch:
        stored: dict[str, pa.Array] = {}
        if self._batches:
            joined = self._batches[0] if len(self._batches) == 1 else pa.concat_batches(self._batches)
            stored = dict(zip(joined.schema.names, joined.columns, strict=True))
        made = _Made(self._page, self._rows, self._indexes, self._counts, self._firsts)
        columns = [stored[f.name] if f.name in stored else made.column(f.name) for f in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _Made:
    """Metadata columns of one batch, made from its entries' constants."""

    def __init__(
        self, page: EntryColumns | None, rows: int, indexes: list[int], counts: list[int], firsts: list[int]
    ) -> None:
        assert page is not None
        self._page = page
        self._rows = rows
        self._indexes = np.array(indexes, np.int64)
        self._counts = np.array(counts, np.int64)
        self._firsts = np.array(firsts, np.int64)

    def column(self, name: str) -> pa.Array:
        page = self._page
        match name:
            case "__partition":
                return pa.array(np.full(self._rows, page.partition, np.int32))
            case "__ledger_id":
                return pa.array(self._spread(page.positions[self._indexes] >> _LEDGER_SHIFT))
            case "__entry_id":
                return pa.array(self._spread(page.positions[self._indexes] & MAX_ENTRY_ID))
            case "__batch_index":
                return pa.array(self._inside().astype(np.int32))
            case "__publish_time":
                times = pa.array(self._spread(page.publish_times[self._indexes]))
                return times.view(pa.timestamp("us", tz="UTC"))
            case "__sequence_id":
                return pa.array(self._spread(page.base_sequences[self._indexes]) + self._inside())
            case "__topic":
                return pa.array([page.topic]).take(pa.array(np.zeros(self._rows, np.int64)))
            case "__producer_name":
                return self._texts(page.producers)
            case "__txn_id":
                return self._texts(page.txn_ids)
            case "__txn_status":
                return self._texts(page.txn_statuses)
        raise AssertionError(f"no such metadata column: {name}")

    def _spread(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.full(self._rows, values[0]) if len(values) == 1 else np.repeat(values, self._counts)

    def _inside(self) -> npt.NDArray[np.int64]:
        if len(self._counts) == 1:
            return np.arange(self._firsts[0], self._firsts[0] + self._rows, dtype=np.int64)
        starts = np.cumsum(self._counts) - self._counts - self._firsts
        return np.arange(self._rows, dtype=np.int64) - np.repeat(starts, self._counts)

    def _texts(self, values: pa.Array | None) -> pa.Array:
        assert values is not None
        return values.take(pa.array(np.repeat(self._indexes, self._counts)))
