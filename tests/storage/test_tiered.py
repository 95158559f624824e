"""The format of tiered objects: what goes in comes out, whole entries to a row group, and damage is found."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from tests.selection import examples, mostly_long
from txn_source.model.copies import TieredCopy
from txn_source.model.errors import SegmentUnreadableError, StorageWriteError
from txn_source.model.kinds import ABORT_MARKER, COMMIT_MARKER, DATA
from txn_source.model.ledger import ClosedLedger
from txn_source.storage import tiered
from txn_source.storage.object_store import ObjectStore
from txn_source.storage.schema import EVENT_TIME, PROPERTIES, RAW_SCHEMA
from txn_source.storage.tiered import INDEX_SCHEMA, LedgerSummary, TieredReader, row_group_edges, write_tiered

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
POOLS: dict[pa.Field, list[Any]] = {
    pa.field("required", pa.int64(), nullable=False): [0, -1, 1 << 62],
    pa.field("small", pa.int8()): [None, -128, 127],
    pa.field("half", pa.float32()): [None, 0.5, float("inf")],
    pa.field("real", pa.float64(), nullable=False): [0.0, -1.5, 1e300],
    pa.field("flag", pa.bool_()): [None, True, False],
    pa.field("text", pa.string()): [None, "", "é" * 50],
    pa.field("long_text", pa.large_string()): [None, "x", "y" * 500],
    pa.field("data", pa.binary()): [None, b"", b"\x00\xff" * 40],
    pa.field("long_data", pa.large_binary()): [None, b"z" * 300],
    pa.field("amount", pa.decimal128(20, 2)): [None, Decimal("-1.25"), Decimal("99999999999.99")],
    pa.field("day", pa.date32()): [None, date(1, 1, 1), date(2026, 1, 31)],
    pa.field("at", pa.timestamp("us", tz="UTC")): [None, NOON],
    pa.field("at_s", pa.timestamp("s")): [None, datetime(1969, 12, 31), datetime(2026, 1, 31)],  # noqa: DTZ001
    pa.field("at_ms", pa.timestamp("ms", tz="Europe/Berlin")): [None, NOON],
    pa.field("lasts", pa.duration("us")): [None, timedelta(0), timedelta(days=-1)],
    pa.field("tags", pa.list_(pa.string())): [None, [], ["a", None], ["b"] * 5],
    pa.field("entries", pa.list_(pa.field("entry", pa.int32(), nullable=False))): [None, [], [1, 2]],
    pa.field("counts", pa.map_(pa.string(), pa.int64())): [None, [], [("a", 1), ("b", None)]],
    pa.field("place", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.list_(pa.int16()))])): [
        None,
        {"x": None, "y": None},
        {"x": 1.0, "y": [1, None]},
    ],
    EVENT_TIME: [None, NOON],
    PROPERTIES: [None, [("a", "b")]],
}
SCHEMA = pa.schema(list(POOLS))
RAW = pa.schema([*RAW_SCHEMA, EVENT_TIME, PROPERTIES])
FLAT = pa.schema([pa.field("value", pa.binary()), *(SCHEMA.field(n) for n in ("text", "flag", "at")), EVENT_TIME])
NESTED = pa.schema([SCHEMA.field("tags"), SCHEMA.field("counts"), EVENT_TIME, PROPERTIES])
LEDGER = ClosedLedger(ledger_id=7, entries=0, messages=0, bytes=0, created_at_ms=1, closed_at_ms=2)
SUMMARY = LedgerSummary("log", "persistent://public/default/orders", 3, LEDGER, {4: "producer é"})
Entry = tuple[int, int]
"""Kind and messages."""


@dataclasses.dataclass(frozen=True)
class Written:
    """An object, and what went into it."""

    root: Path
    copy: TieredCopy
    table: pa.Table
    index: pa.Table
    edges: list[int]

    @property
    def path(self) -> Path:
        return self.root / self.copy.uri

    def read(self, fields: Sequence[pa.Field]) -> list[pa.Table]:
        """Read the row groups as a process that hasn't read the object before."""
        tiered._FOOTERS = tiered._FooterCache()
        with TieredReader(self.root, self.copy) as reader:
            return [reader.read_row_group(i, fields) for i in range(reader.footer.metadata.num_row_groups)]


@pytest.fixture(autouse=True)
def _footers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())


def ledger_of(entries: Sequence[Entry]) -> ClosedLedger:
    rows = sum(messages for _, messages in entries)
    return dataclasses.replace(LEDGER, entries=len(entries), messages=rows, bytes=10 * rows)


def write(root: Path, schema: pa.Schema, entries: Sequence[Entry], seed: int = 0) -> Written:
    """Write an object of those entries with values of the pools."""
    source = random.Random(seed)
    pools = {field.name: pool for field, pool in POOLS.items()}
    rows = sum(messages for _, messages in entries)
    columns = [
        pa.array([source.choice(pools[f.name]) if f.name in pools else b"v%d" % i for i in range(rows)], f.type)
        for f in schema
    ]
    table = pa.table(columns, schema=schema)
    index = pa.table(
        [
            range(len(entries)),
            [kind for kind, _ in entries],
            [messages for _, messages in entries],
            [10 * messages for _, messages in entries],
            [-1] * len(entries),
            [4] * len(entries),
            list(range(len(entries))),
            [1000 + i for i in range(len(entries))],
        ],
        names=INDEX_SCHEMA.names,
    ).cast(INDEX_SCHEMA)
    data = index.filter(pa.array(index["kind"].to_numpy() == DATA))
    messages = data["messages"].to_numpy()
    edges = row_group_edges(messages, data["bytes"].to_numpy())
    starts = np.concatenate(([0], np.cumsum(messages)))[edges].tolist()
    groups = (table.slice(a, b - a) for a, b in pairwise(starts))
    summary = dataclasses.replace(SUMMARY, ledger=ledger_of(entries))
    copy = write_tiered(ObjectStore(root), "t/x.parquet", schema, groups, index, summary, 1)
    return Written(root, copy, table, index, edges)


# Row groups

SIZES = st.lists(st.tuples(st.integers(1, 300_000), st.integers(1, 100 << 20)), max_size=50)


@settings(max_examples=examples(40))
@given(SIZES)
def test_row_groups_have_whole_entries_within_the_limits(sizes: list[tuple[int, int]]) -> None:
    """Cut any entries: every edge is the last one that fits both limits, and an entry alone always gets through."""
    rows, bytes_ = (np.array([size[i] for size in sizes], np.int64) for i in (0, 1))
    edges = row_group_edges(rows, bytes_)
    assert edges[0] == 0
    assert edges[-1] == len(sizes)
    assert edges == sorted(set(edges))

    def fits(first: int, last: int) -> bool:
        return bool(
            rows[first:last].sum() <= tiered.ROW_GROUP_ROWS and bytes_[first:last].sum() <= tiered.ROW_GROUP_BYTES
        )

    for first, last in pairwise(edges):
        assert last == first + 1 or fits(first, last)
        assert last == len(sizes) or not fits(first, last + 1)


# Round trip

KINDS = st.one_of(
    st.tuples(st.just(DATA), st.integers(1, 9)), st.tuples(st.sampled_from([COMMIT_MARKER, ABORT_MARKER]), st.just(0))
)


@given(entries=st.lists(KINDS, max_size=15), seed=st.integers(0, 1000), group_rows=st.integers(1, 20), data=st.data())
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_object_gives_back_what_was_written(
    tmp_path: Path, entries: list[Entry], seed: int, group_rows: int, data: st.DataObject
) -> None:
    """Write entries and markers with values of every type: rows, types, index and summary come back, any columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiered, "ROW_GROUP_ROWS", group_rows)
        written = write(tmp_path, SCHEMA, entries, seed)
    footer = tiered.read_footer(tmp_path, written.copy)

    rows = written.table.num_rows
    given_times, given_properties = (written.table[f.name].null_count < rows for f in (EVENT_TIME, PROPERTIES))
    assert footer.summary == dataclasses.replace(
        SUMMARY, ledger=ledger_of(entries), has_event_times=given_times,
        has_properties=given_properties,
    )  # fmt: skip
    kept = written.index.filter(pa.array(written.index["kind"].to_numpy() == DATA))
    for name, column in footer.entries.items():
        assert column.tolist() == kept[name].to_pylist(), name
    assert footer.row_group_entries.tolist() == written.edges
    assert footer.rows == rows

    fields = data.draw(st.lists(st.sampled_from(list(SCHEMA)), min_size=1, unique_by=lambda field: field.name))
    tables = written.read(fields)
    ends = np.concatenate(([0], np.cumsum(kept["messages"].to_numpy())))[written.edges]
    assert [table.num_rows for table in tables] == np.diff(ends).tolist()
    for table in tables:
        assert table.schema.equals(pa.schema(fields))
    if tables:
        assert pa.concat_tables(tables).equals(written.table.select([field.name for field in fields]))


def test_footer_says_what_the_ledger_is(tmp_path: Path) -> None:
    """Look at the object with pyarrow alone: texts in the footer name the ledger and list all entries with markers."""
    written = write(tmp_path, SCHEMA, [(DATA, 2), (COMMIT_MARKER, 0), (DATA, 1)])
    file = pq.ParquetFile(written.path)
    texts = file.metadata.metadata
    said = json.loads(texts[b"txnlog.ledger"])
    assert (said["log_id"], said["topic"], said["partition"], said["ledger_id"]) == ("log", SUMMARY.topic, 3, 7)
    assert (said["entries"], said["messages"], said["bytes"], said["producers"]) == (3, 3, 30, {"4": "producer é"})
    with pa.ipc.open_stream(base64.b64decode(texts[b"txnlog.entries"])) as stream:
        assert stream.read_all().equals(written.index)
    assert file.read().select(["text", "data"]).equals(written.table.select(["text", "data"]))


def test_object_of_a_newer_format_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read an object that a later release wrote."""
    written = write(tmp_path, RAW, [(DATA, 1)])
    monkeypatch.setattr(tiered, "_FORMAT", 0)
    with pytest.raises(SegmentUnreadableError, match="it was written by a newer release of txnlog; upgrade txn-source"):
        written.read([])


class ForgetfulStore(ObjectStore):
    """Loses the end of what is written to it, and says nothing."""

    def open(self, uri: str) -> pa.NativeFile:
        path = self._root / uri
        path.write_bytes(path.read_bytes()[:-50])
        return super().open(uri)


def test_object_that_is_not_as_written_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write to a store that loses bytes: reading the footer back finds it out."""
    monkeypatch.setitem(globals(), "ObjectStore", ForgetfulStore)
    with pytest.raises(
        StorageWriteError, match=r"t/x\.parquet is not what was written: .*\. Nothing was registered\. "
    ):
        write(tmp_path, RAW, [(DATA, 3)])


# Damage


def outcome(written: Written, data: bytes, fields: Sequence[pa.Field]) -> str:
    """Read an object with other bytes: ``found`` out, ``harmless``, or ``wrong``."""
    written.path.write_bytes(data)
    try:
        tables = written.read(fields)
    except SegmentUnreadableError:
        return "found"
    right = pa.concat_tables(tables).equals(written.table.select([field.name for field in fields]))
    return "harmless" if right else "wrong"


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def test_flipped_bit_of_flat_columns_never_changes_rows(tmp_path: Path) -> None:
    """Flip a bit of each byte before the footer in turn: it is found, or the rows are right."""
    written = write(tmp_path, pa.schema([*FLAT, PROPERTIES]), [(DATA, 8), (DATA, 8)])
    data = written.path.read_bytes()
    pages = written.copy.size - written.copy.footer_bytes
    outcomes = [outcome(written, flipped(data, at, 1 << at % 8), list(FLAT)) for at in range(pages)]
    assert "wrong" not in outcomes
    assert "found" in outcomes


@pytest.mark.parametrize(
    ("name", "masks"), mostly_long([("tags", range(2, 16, 2)), ("real", [0x12])], ("tags", range(2, 16, 2)))
)
def test_damaged_page_header_never_changes_rows(tmp_path: Path, name: str, masks: Sequence[int]) -> None:
    """Damage each byte at the start of a column in turn, where its page's header is."""
    fields = [SCHEMA.field(name)]
    written = write(tmp_path, pa.schema([*fields, EVENT_TIME, PROPERTIES]), [(DATA, 12)])
    start = pq.read_metadata(written.path).row_group(0).column(0).data_page_offset
    data = written.path.read_bytes()
    header = range(start, start + 40)
    outcomes = [outcome(written, flipped(data, at, mask), fields) for at in header for mask in masks]
    assert "wrong" not in outcomes


@given(at=st.integers(0, 1 << 20), mask=st.integers(1, 255))
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_flipped_byte_in_the_footer_is_found(tmp_path: Path, at: int, mask: int) -> None:
    """Damage a byte of the footer: its checksum tells, before anything of it is believed."""
    written = write(tmp_path, NESTED, [(DATA, 3)])
    data, size = written.path.read_bytes(), written.copy.footer_bytes
    assert outcome(written, flipped(data, len(data) - size + at % size, mask), list(NESTED)) == "found"


@given(size=st.integers(0, 1 << 20))
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_truncated_object_is_found(tmp_path: Path, size: int) -> None:
    """Cut the object anywhere."""
    written = write(tmp_path, NESTED, [(DATA, 3)])
    data = written.path.read_bytes()
    assert outcome(written, data[: size % len(data)], list(NESTED)) == "found"
