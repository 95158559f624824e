"""Putting entries together to batches of about 64k rows, with the metadata columns made from per-entry values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from txn_source.model.position import entry_of, ledger_of
from txn_source.model.visibility import IntArray
from txn_source.storage.arrays import array_of, texts_of
from txn_source.storage.schema import STORED_BESIDE

TARGET_ROWS = 65_536
TARGET_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """What is constant in each entry of a page, an item an entry; None where no column of it was asked for."""

    topic: str
    partition: int
    positions: IntArray
    publish_times: IntArray
    base_sequences: IntArray
    producers: pa.Array | None
    txn_ids: pa.Array | None
    txn_statuses: pa.Array | None


class StoredRows(Protocol):
    """What is stored of neighbouring entries, as it was read from a copy."""

    def entries(self, first: int, last: int) -> Sequence[pa.RecordBatch]:
        """Return the rows of the entries ``[first, last)`` in one or more batches of one schema."""

    def rows(self, entry: int, start: int, count: int) -> pa.RecordBatch:
        """Return some rows of one entry."""


@dataclass(frozen=True, slots=True)
class EntryBatches:
    """A batch for each entry, as segments have them."""

    batches: Sequence[pa.RecordBatch]

    def entries(self, first: int, last: int) -> Sequence[pa.RecordBatch]:
        return self.batches[first:last]

    def rows(self, entry: int, start: int, count: int) -> pa.RecordBatch:
        return self.batches[entry].slice(start, count)


class JoinedEntries:
    """One batch with the rows of all entries, as row groups have them."""

    def __init__(self, batch: pa.RecordBatch, messages: IntArray) -> None:
        self._batch = batch
        self._rows_to = np.concatenate(([0], np.cumsum(messages))).tolist()

    def entries(self, first: int, last: int) -> Sequence[pa.RecordBatch]:
        start = self._rows_to[first]
        return [self._batch.slice(start, self._rows_to[last] - start)]

    def rows(self, entry: int, start: int, count: int) -> pa.RecordBatch:
        return self._batch.slice(self._rows_to[entry] + start, count)


class Assembly:
    """Takes entries page by page and yields batches of one schema.

    The payload of several small entries is copied once, that of a large one not at all. No step works entry by entry
    in Python: an entry may hold ten messages.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        beside = {field.name for field in STORED_BESIDE}
        self._made = [f for f in schema if f.name.startswith("__") and f.name not in beside]
        self.stored = pa.schema([f for f in schema if f not in self._made])
        """The columns that come from copies; the others are made."""
        self._page: EntryColumns | None = None
        self._gathered = _Gathered()
        self._ready: list[pa.RecordBatch] = []
        self._ready_rows = self._ready_bytes = 0

    def start_page(self, page: EntryColumns) -> None:
        """Take the constants that entries added from now on refer to."""
        self._page = page

    def add(
        self, first: int, stored: StoredRows | None, rows: IntArray, sizes: IntArray, skip: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Add neighbouring entries of the page.

        Args:
            first: the index in the page of the first of them.
            stored: what is stored of them, of one schema; None if no stored column is wanted.
            rows: the messages of each, 1 or more.
            sizes: the bytes of each.
            skip: so many messages of the page's first entry are left out.
        """
        rows_to, bytes_to = (np.concatenate(([0], np.cumsum(x))) for x in (rows, sizes))
        at = 0
        if skip:
            yield from self._cut(first, stored, 0, int(rows[0]), int(sizes[0]), skip)
            at = 1
        while at < len(rows):
            free_rows, free_bytes = TARGET_ROWS - self._gathered.rows, TARGET_BYTES - self._gathered.bytes
            fit = min(
                int(np.searchsorted(rows_to, rows_to[at] + free_rows, "right")),
                int(np.searchsorted(bytes_to, bytes_to[at] + free_bytes, "right")),
            )
            if (taken := fit - 1 - at) > 0:
                part = None if stored is None else stored.entries(at, at + taken)
                self._gathered.add(first + at, part, rows[at : at + taken], int(bytes_to[at + taken] - bytes_to[at]))
                at += taken
            elif self._gathered.rows:
                yield from self._emit()
            else:
                yield from self._cut(first + at, stored, at, int(rows[at]), int(sizes[at]))
                at += 1

    def end_page(self) -> Iterator[pa.RecordBatch]:
        """Make the batch of what is left of the page; a small one waits for the next page."""
        if not self._gathered.rows:
            return
        batch, size = self._make(), self._gathered.bytes
        self._gathered = _Gathered()
        if self._ready_rows + batch.num_rows > TARGET_ROWS or self._ready_bytes + size > TARGET_BYTES:
            yield from self._release()
        self._ready.append(batch)
        self._ready_rows += batch.num_rows
        self._ready_bytes += size

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left."""
        yield from self._release()

    def _cut(
        self, index: int, stored: StoredRows | None, entry: int, rows: int, size: int, skip: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Yield an entry that is too large for one batch in several, or without its first messages."""
        step = max(1, min(TARGET_ROWS, rows * TARGET_BYTES // max(size, 1)))
        for start in range(skip, rows, step):
            count = min(step, rows - start)
            part = None if stored is None else [stored.rows(entry, start, count)]
            self._gathered.add(index, part, np.array([count]), size * count // rows, start)
            yield from self._emit()

    def _emit(self) -> Iterator[pa.RecordBatch]:
        yield from self._release()
        batch = self._make()
        self._gathered = _Gathered()
        yield batch

    def _release(self) -> Iterator[pa.RecordBatch]:
        if self._ready:
            yield self._ready[0] if len(self._ready) == 1 else pa.concat_batches(self._ready)
            self._ready, self._ready_rows, self._ready_bytes = [], 0, 0

    def _make(self) -> pa.RecordBatch:
        gathered = self._gathered
        stored: dict[str, pa.Array] = {}
        if gathered.batches:
            joined = _join([self._project(_join(batches)) for batches in gathered.by_schema()])
            stored = dict(zip(joined.schema.names, joined.columns, strict=True))
        made = _Made(self._page, gathered)
        columns = [stored[f.name] if f.name in stored else made.column(f.name) for f in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _project(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        columns = [
            batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows, field.type)
            for field in self.stored
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.stored)


class _Gathered:
    """Entries, or one entry's part, that will be one batch."""

    def __init__(self) -> None:
        self.batches: list[Sequence[pa.RecordBatch]] = []
        self.rows = self.bytes = 0
        self._indexes: list[IntArray] = []
        self._counts: list[IntArray] = []
        self.start = 0
        """The first entry's first row: not 0 where a large entry was cut."""

    def add(
        self, index: int, batches: Sequence[pa.RecordBatch] | None, rows: IntArray, size: int, start: int = 0
    ) -> None:
        if batches is not None:
            self.batches.append(batches)
        self._indexes.append(np.arange(index, index + len(rows)))
        self._counts.append(rows)
        self.rows += int(rows.sum())
        self.bytes += size
        self.start = start

    @property
    def indexes(self) -> IntArray:
        return np.concatenate(self._indexes)

    @property
    def counts(self) -> IntArray:
        return np.concatenate(self._counts)

    def by_schema(self) -> list[list[pa.RecordBatch]]:
        """Return the batches, neighbours of one schema together (each ``add`` brings just one)."""
        groups: list[list[pa.RecordBatch]] = []
        for batches in self.batches:
            if groups and groups[-1][-1].schema.equals(batches[0].schema):
                groups[-1].extend(batches)
            else:
                groups.append(list(batches))
        return groups


def _join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


_COUNTING = array_of(np.arange(TARGET_ROWS, dtype=np.int32))


class _Made:
    """Metadata columns of one batch, made from its entries' constants."""

    def __init__(self, page: EntryColumns | None, gathered: _Gathered) -> None:
        assert page is not None
        self._page = page
        self._rows = gathered.rows
        self._indexes = gathered.indexes
        self._counts = gathered.counts
        self._start = gathered.start

    def column(self, name: str) -> pa.Array:
        page = self._page
        match name:
            case "__partition":
                return array_of(np.full(self._rows, page.partition, np.int32))
            case "__ledger_id":
                return array_of(self._spread(ledger_of(page.positions[self._indexes])))
            case "__entry_id":
                return array_of(self._spread(entry_of(page.positions[self._indexes])))
            case "__batch_index":
                if len(self._counts) == 1 and self._start + self._rows <= TARGET_ROWS:
                    return _COUNTING.slice(self._start, self._rows)
                return array_of(self._inside().astype(np.int32))
            case "__publish_time":
                times = array_of(self._spread(page.publish_times[self._indexes]))
                return times.view(pa.timestamp("us", tz="UTC"))
            case "__sequence_id":
                return array_of(self._spread(page.base_sequences[self._indexes]) + self._inside())
            case "__topic":
                return texts_of([page.topic]).take(array_of(np.zeros(self._rows, np.int64)))
            case "__producer_name":
                return self._texts(page.producers)
            case "__txn_id":
                return self._texts(page.txn_ids)
            case "__txn_status":
                return self._texts(page.txn_statuses)
        raise AssertionError(f"no such metadata column: {name}")

    def _spread(self, values: IntArray) -> IntArray:
        return np.full(self._rows, values[0]) if len(values) == 1 else np.repeat(values, self._counts)

    def _inside(self) -> IntArray:
        if len(self._counts) == 1:
            return np.arange(self._start, self._start + self._rows, dtype=np.int64)
        starts = np.cumsum(self._counts) - self._counts
        return np.arange(self._rows, dtype=np.int64) - np.repeat(starts, self._counts)

    def _texts(self, values: pa.Array | None) -> pa.Array:
        assert values is not None
        return values.take(array_of(np.repeat(self._indexes, self._counts)))
