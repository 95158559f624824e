"""Assembly: entries of any size, page by page, become batches of about 64k rows with the right metadata columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.selection import examples
from txn_source.client.reading.batch_assembly import (
    TARGET_BYTES,
    TARGET_ROWS,
    Assembly,
    EntryBatches,
    EntryColumns,
    JoinedEntries,
)
from txn_source.client.reading.columns import METADATA_COLUMNS, select_columns
from txn_source.model.position import Position
from txn_source.storage.schema import EVENT_TIME, KEY, PROPERTIES

PAYLOAD = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.binary())])
ALL = [*PAYLOAD.names, *METADATA_COLUMNS]


@dataclass(frozen=True)
class Entry:
    """One stored entry as a test describes it."""

    position: Position
    rows: int
    producer: str = "p"
    base_sequence: int = 0
    publish_time: int = 0
    txn: tuple[str, str] | None = None
    event_times: bool = False
    properties: bool = False
    keys: bool = False

    def batch(self) -> pa.RecordBatch:
        """Return what is stored: ids that tell entry and row, and the optional columns that the producer gave."""
        ids = pa.array(np.arange(self.rows, dtype=np.int64) - self.position.key)
        batch = pa.record_batch([ids, pa.array([b"v"] * self.rows, pa.binary())], schema=PAYLOAD)
        if self.event_times:
            batch = batch.append_column(EVENT_TIME, pa.array(range(self.rows), EVENT_TIME.type))
        if self.properties:
            batch = batch.append_column(
                PROPERTIES, pa.array([[("row", str(i))] for i in range(self.rows)], PROPERTIES.type)
            )
        if self.keys:
            batch = batch.append_column(KEY, pa.array([b"%d" % i for i in range(self.rows)]))
        return batch

    def expected(self, partition: int) -> list[dict[str, Any]]:
        """Return the rows that a reader of all columns gets, one by one."""
        return [
            {
                "id": i - self.position.key,
                "value": b"v",
                "__partition": partition,
                "__ledger_id": self.position.ledger_id,
                "__entry_id": self.position.entry_id,
                "__batch_index": i,
                "__publish_time": self.publish_time,
                "__event_time": i if self.event_times else None,
                "__topic": f"topic-{partition}",
                "__producer_name": self.producer,
                "__sequence_id": self.base_sequence + i,
                "__txn_id": self.txn and self.txn[0],
                "__txn_status": self.txn and self.txn[1],
                "__properties": [("row", str(i))] if self.properties else None,
                "__key": b"%d" % i if self.keys else None,
            }
            for i in range(self.rows)
        ]


def page_of(entries: Sequence[Entry], partition: int = 0) -> EntryColumns:
    return EntryColumns(
        topic=f"topic-{partition}",
        partition=partition,
        positions=np.array([e.position.key for e in entries], np.int64),
        publish_times=np.array([e.publish_time for e in entries], np.int64),
        base_sequences=np.array([e.base_sequence for e in entries], np.int64),
        producers=pa.array([e.producer for e in entries], pa.string()),
        txn_ids=pa.array([e.txn and e.txn[0] for e in entries], pa.string()),
        txn_statuses=pa.array([e.txn and e.txn[1] for e in entries], pa.string()),
    )


def add(assembly: Assembly, first: int, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Add neighbouring entries of one schema, with their rows and bytes, hot and joined ones in turn."""
    rows = np.array([b.num_rows for b in batches], np.int64)
    if not len(assembly.stored):
        return list(assembly.add(first, None, rows, np.zeros_like(rows)))
    stored = EntryBatches(batches) if first % 2 == 0 else JoinedEntries(pa.concat_batches(batches), rows)
    return list(assembly.add(first, stored, rows, np.array([b.nbytes for b in batches], np.int64)))


def assemble(columns: Sequence[str], pages: Sequence[Sequence[Entry]], together: int = 100) -> list[pa.RecordBatch]:
    """Assemble entries, each page one of a partition of its own; so many neighbours at most are added together."""
    assembly = Assembly(select_columns(PAYLOAD, columns))
    batches: list[pa.RecordBatch] = []
    for partition, entries in enumerate(pages):
        assembly.start_page(page_of(entries, partition))
        stored = [entry.batch() for entry in entries]
        first = 0
        for last in range(1, len(stored) + 1):
            if last == len(stored) or last - first == together or stored[last].schema != stored[first].schema:
                batches += add(assembly, first, stored[first:last])
                first = last
        batches += assembly.end_page()
    return batches + list(assembly.finish())


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the rows, times as their number of microseconds."""
    rows = []
    for batch in batches:
        plain = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
        rows += pa.RecordBatch.from_arrays(plain, names=batch.schema.names).to_pylist()
    return rows


POSITIONS = st.builds(Position, st.integers(0, 5) | st.just((1 << 31) - 1), st.integers(0, 9) | st.just((1 << 32) - 1))
ENTRIES = st.builds(
    Entry,
    position=POSITIONS,
    rows=st.integers(1, 4),
    producer=st.sampled_from(["p", "q", "ü"]),
    base_sequence=st.integers(0, 1 << 40),
    publish_time=st.integers(0, 1 << 50),
    txn=st.none() | st.sampled_from([("(0,0)", "open"), ("(0,7)", "aborted")]),
    event_times=st.booleans(),
    properties=st.booleans(),
    keys=st.booleans(),
)
PAGES = st.lists(st.lists(ENTRIES, min_size=1, max_size=4), max_size=4)
COLUMNS = st.lists(st.sampled_from(ALL), min_size=1, max_size=len(ALL), unique=True)


@given(columns=COLUMNS | st.permutations(ALL), pages=PAGES, together=st.integers(1, 4))
@settings(max_examples=examples(30), deadline=None)
def test_rows_are_those_of_the_entries(columns: list[str], pages: list[list[Entry]], together: int) -> None:
    """Assemble any columns, in any order, of any small entries: the rows are the expected ones, one by one."""
    batches = assemble(columns, pages, together)
    expected = [row for partition, page in enumerate(pages) for entry in page for row in entry.expected(partition)]
    assert rows_of(batches) == [{name: row[name] for name in columns} for row in expected]
    assert all(batch.schema.equals(select_columns(PAYLOAD, columns)) for batch in batches)
    assert len(batches) == bool(expected)  # so little makes one batch, over pages too


SIZES = st.sampled_from([1, 2, 100, 20_000, 32_767, 32_768, 65_535, 65_536, 65_537, 140_000])


@given(st.lists(st.lists(SIZES, min_size=1, max_size=4), min_size=1, max_size=4), st.booleans(), st.integers(1, 4))
@settings(max_examples=examples(15), deadline=None)
def test_batches_keep_to_their_limit_and_all_rows(pages: list[list[int]], stored: bool, together: int) -> None:
    """Assemble entries around the limit, with and without their bytes: order, index in the entry, and batch sizes."""
    numbers = iter(range(100))
    entries = [[Entry(Position(3, next(numbers)), rows) for rows in page] for page in pages]
    assembly = Assembly(select_columns(PAYLOAD, ["id"] * stored + ["__partition", "__entry_id", "__batch_index"]))
    assert bool(len(assembly.stored)) == stored
    batches: list[pa.RecordBatch] = []
    for partition, page in enumerate(entries):
        assembly.start_page(page_of(page, partition))
        ids = [pa.array(np.arange(entry.rows, dtype=np.int64) + entry.position.key) for entry in page]
        whole = [pa.record_batch([column], names=["id"]) for column in ids]
        for first in range(0, len(page), together):
            batches += add(assembly, first, whole[first : first + together])
        batches += assembly.end_page()
    batches += assembly.finish()

    def column(name: str) -> list[int]:
        return np.concatenate([batch.column(name).to_numpy() for batch in batches]).tolist()

    flat = [(partition, entry) for partition, page in enumerate(entries) for entry in page]
    assert column("__partition") == [partition for partition, entry in flat for _ in range(entry.rows)]
    assert column("__entry_id") == [entry.position.entry_id for _, entry in flat for _ in range(entry.rows)]
    assert column("__batch_index") == [i for _, entry in flat for i in range(entry.rows)]
    if stored:
        assert column("id") == [entry.position.key + i for _, entry in flat for i in range(entry.rows)]
    sizes = [batch.num_rows for batch in batches]
    assert all(0 < size <= TARGET_ROWS for size in sizes)
    assert len(sizes) <= 1 + 4 * sum(sizes) / TARGET_ROWS  # and so not many small ones


def wide(index: int, rows: int, width: int) -> tuple[Entry, pa.RecordBatch]:
    values = pa.array([b"%08d" % i + b"." * (width - 8) for i in range(rows)], pa.binary())
    ids = pa.array(np.arange(rows, dtype=np.int64))
    return Entry(Position(0, index), rows), pa.record_batch([ids, values], schema=PAYLOAD)


def assemble_wide(*shapes: tuple[int, int]) -> list[pa.RecordBatch]:
    pairs = [wide(i, rows, width) for i, (rows, width) in enumerate(shapes)]
    assembly = Assembly(select_columns(PAYLOAD, ["value", "__entry_id", "__batch_index"]))
    assembly.start_page(page_of([entry for entry, _ in pairs]))
    return [*add(assembly, 0, [batch for _, batch in pairs]), *assembly.end_page(), *assembly.finish()]


def test_batches_keep_to_their_limit_of_bytes() -> None:
    """Assemble twelve entries of 5 MiB: three fit into a batch of 16 MiB."""
    batches = assemble_wide(*[(5, 1 << 20)] * 12)
    assert [batch.num_rows for batch in batches] == [15] * 4
    assert all(batch.column("value").nbytes <= TARGET_BYTES for batch in batches)


def test_message_above_the_limit_is_a_batch_of_its_own() -> None:
    """Assemble a message of 40 MiB between small ones: it can't be cut, so it comes alone."""
    batches = assemble_wide((2, 10), (1, 40 << 20), (2, 10))
    assert [batch.num_rows for batch in batches] == [2, 1, 2]


def test_entry_above_the_limit_of_bytes_is_cut() -> None:
    """Assemble one entry of 40 MiB in 40 rows, as another writer might store it: rows and their indexes go on."""
    batches = assemble_wide((40, 1 << 20))
    assert all(batch.nbytes <= TARGET_BYTES for batch in batches)
    assert [i for batch in batches for i in batch.column("__batch_index").to_pylist()] == list(range(40))
    assert [v[:8] for b in batches for v in b.column("value").to_pylist()] == [b"%08d" % i for i in range(40)]


def test_small_pages_are_put_together_up_to_the_limit() -> None:
    """Assemble pages of 25,000 rows: two of them fit into a batch."""
    batches = assemble(["__partition"], [[Entry(Position(0, 0), 25_000)]] * 5)
    assert [batch.num_rows for batch in batches] == [50_000, 50_000, 25_000]


def test_rows_are_handed_out_as_soon_as_a_batch_is_full() -> None:
    """Add entry after entry of 20,000 rows: the batch comes when the fourth won't fit, not at the end of the page."""
    entries = [Entry(Position(0, i), 20_000) for i in range(5)]
    assembly = Assembly(select_columns(PAYLOAD, ["__entry_id"]))
    assembly.start_page(page_of(entries))
    came = [[b.num_rows for b in add(assembly, i, [entry.batch()])] for i, entry in enumerate(entries)]
    assert came == [[], [], [], [60_000], []]
    assert [b.num_rows for b in [*assembly.end_page(), *assembly.finish()]] == [40_000]


@pytest.mark.parametrize("rows", [TARGET_ROWS, TARGET_ROWS * 2])
def test_large_entry_is_not_copied(rows: int) -> None:
    """Assemble an entry of the limit's size and of twice that: the payload lies where it was read."""
    entry = Entry(Position(0, 0), rows)
    stored = entry.batch()
    assembly = Assembly(select_columns(PAYLOAD, ["__batch_index", "value", "id"]))
    assembly.start_page(page_of([entry]))
    batches = [*add(assembly, 0, [stored]), *assembly.end_page(), *assembly.finish()]
    assert len(batches) == rows // TARGET_ROWS
    for name in PAYLOAD.names:
        assert {b.column(name).buffers()[-1].address for b in batches} == {stored.column(name).buffers()[-1].address}


def test_stored_columns_are_matched_by_name() -> None:
    """Add entries whose columns are turned round, more or fewer than wanted: what isn't there is null."""
    entry = Entry(Position(0, 0), 2)
    assembly = Assembly(select_columns(PAYLOAD, ["value", "__event_time"]))
    assembly.start_page(page_of([entry] * 3))
    stored = entry.batch()
    timed = stored.append_column(EVENT_TIME, pa.array([5, None], EVENT_TIME.type))
    for index, batch in enumerate([stored, timed, timed.select(["__event_time", "value", "id"])]):
        assert add(assembly, index, [batch]) == []
    [batch] = [*assembly.end_page(), *assembly.finish()]
    assert batch.column("value").to_pylist() == [b"v"] * 6
    assert batch.column("__event_time").cast(pa.int64()).to_pylist() == [None, None, 5, None, 5, None]
