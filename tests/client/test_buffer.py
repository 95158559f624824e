"""Buffers: how messages become entries, of which size, and what is refused before it is taken."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.selection import examples, for_each
from txn_source.client.writing.batch_buffer import ENTRY_MAX_BYTES, ENTRY_MAX_ROWS, Buffer, as_micros
from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError, TxnLogError
from txn_source.storage.schema import EVENT_TIME, PROPERTIES, RAW_SCHEMA

NAIVE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
TYPED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("at", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        pa.field("day", pa.date32()),
    ]
)


def raw_buffer() -> Buffer:
    return Buffer(RAW_SCHEMA, 0)


def add(buffer: Buffer, value: Any, key: Any = None, properties: Any = None, event_time: Any = None) -> int:
    return buffer.add(value, key, properties, event_time)


def raw_batch(lengths: Iterable[int]) -> pa.RecordBatch:
    """Return a raw batch whose values have these lengths and end in their index."""
    values = [(b"%08d" % i).rjust(length, b".") for i, length in enumerate(lengths)]
    return pa.record_batch([pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary())], schema=RAW_SCHEMA)


def values_of(entries: Iterable[pa.RecordBatch]) -> list[Any]:
    return [value for entry in entries for value in entry.column("value").to_pylist()]


# What is stored


def test_messages_become_one_entry_in_order() -> None:
    """Add raw messages of all kinds of bytes, with and without keys, and text."""
    buffer = raw_buffer()
    for value, key in (
        (b"a", b"k"),
        ("ä", "ö"),
        (bytearray(b"c"), None),
        (memoryview(b"d"), b""),
        (None, b"k"),
        (b"", ""),
    ):
        add(buffer, value, key)
    [entry] = buffer.entries()
    assert entry.schema.equals(RAW_SCHEMA)
    assert entry.column("value").to_pylist() == [b"a", "ä".encode(), b"c", b"d", None, b""]
    assert entry.column("key").to_pylist() == [b"k", "ö".encode(), None, b"", b"k", b""]
    assert buffer.messages == 6


def test_typed_messages_become_columns() -> None:
    """Add rows with columns left out, null and nested."""
    buffer = Buffer(TYPED, 0)
    day = date(2026, 1, 31)
    add(buffer, {"id": 1, "name": "a", "tags": ["x", None], "at": {"x": 1.0, "y": 2.0}, "day": day})
    add(buffer, {"id": 2})
    add(buffer, {"name": None, "id": 3.0, "tags": [], "at": {"x": 5.0}})
    [entry] = buffer.entries()
    assert entry.schema.equals(TYPED)
    assert [list(row.values()) for row in entry.to_pylist()] == [
        [1, "a", ["x", None], {"x": 1.0, "y": 2.0}, day],
        [2, None, None, None, None],
        [3, None, [], {"x": 5.0, "y": None}, None],
    ]


def test_message_is_stored_as_it_was_when_it_was_sent() -> None:
    """Change everything that can change after sending it."""
    row, raw, properties = {"id": 1, "tags": ["a"]}, bytearray(b"a"), {"k": "v"}
    typed_buffer, buffer = Buffer(TYPED, 0), raw_buffer()
    add(typed_buffer, row)
    add(buffer, raw, raw, properties)
    row["tags"].append(object())  # type: ignore[attr-defined]
    row["id"] = "no longer a number"
    raw[:], properties["k"] = b"xyz", "w"
    [entry] = typed_buffer.entries()
    assert entry.column("tags").to_pylist() == [["a"]]
    [entry] = buffer.entries()
    assert entry.to_pylist() == [{"key": b"a", "value": b"a", "__properties": [("k", "v")]}]


def test_nested_values_may_come_in_several_forms() -> None:
    """Give one struct as a dict and as pairs, and lists as tuples: they are stored together."""
    buffer = Buffer(TYPED, 0)
    add(buffer, {"id": 1, "at": {"x": 1.0, "y": 2.0}, "tags": ["a"]})
    add(buffer, {"id": 2, "at": [("x", 3.0), ("y", 4.0)], "tags": ("b",)})
    [entry] = buffer.entries()
    assert entry.column("at").to_pylist() == [{"x": 1.0, "y": 2.0}, {"x": 3.0, "y": 4.0}]
    assert entry.column("tags").to_pylist() == [["a"], ["b"]]


OPTIONALS = st.lists(
    st.tuples(
        st.none() | st.integers(-1000, 1000), st.none() | st.dictionaries(st.text("ab"), st.text("cd"), max_size=2)
    ),
    min_size=1,
    max_size=10,
)


@given(OPTIONALS)
@settings(deadline=None)
def test_event_time_and_properties_are_stored_only_if_given(optionals: list[tuple[int | None, Any]]) -> None:
    """Add messages with and without either: a column is there if one message has it, with nulls for the others."""
    buffer = raw_buffer()
    for event_time, properties in optionals:
        add(buffer, b"v", None, properties, event_time)
    [entry] = buffer.entries()
    times, properties_given = [t for t, _ in optionals], [p for _, p in optionals]
    expected = [EVENT_TIME] * any(t is not None for t in times)
    expected += [PROPERTIES] * any(p is not None for p in properties_given)
    assert list(entry.schema) == [*RAW_SCHEMA, *expected]
    if EVENT_TIME in expected:
        micros = entry.column("__event_time").cast(pa.int64()).to_pylist()
        assert micros == [None if t is None else t * 1000 for t in times]
    if PROPERTIES in expected:
        came = entry.column("__properties").to_pylist()
        assert came == [None if p is None else list(p.items()) for p in properties_given]


@given(
    st.datetimes(
        NAIVE.replace(year=1, day=2),
        NAIVE.replace(year=9999, month=12),
        timezones=st.timezones() | st.just(UTC) | st.just(timezone(timedelta(minutes=-7))),
    )
)
@settings(deadline=None)
def test_event_time_is_exact_to_the_microsecond(event_time: datetime) -> None:
    """Convert any datetime that has a zone, and compare with Arrow's own conversion."""
    assert as_micros(event_time) == pa.scalar(event_time, EVENT_TIME.type).value


# Entries


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 100, 4_000, 8_191, 8_192, 30_000, 65_536, 65_537, 140_000]), st.sampled_from([8, 300])
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=examples(8), deadline=None)
def test_entries_keep_to_their_limits_and_all_rows(shapes: list[tuple[int, int]]) -> None:
    """Add batches of many shapes: all rows in order, entries neither empty nor too large, small neighbours joined."""
    buffer = raw_buffer()
    numbers = []
    for rows, width in shapes:
        offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
        ids = np.arange(rows, dtype=np.int64) + len(numbers) * 1_000_000
        data = np.zeros((rows, width), np.uint8)
        data[:, :8] = ids.view(np.uint8).reshape(rows, 8)
        values = pa.BinaryArray.from_buffers(pa.binary(), rows, [None, offsets.buffers()[1], pa.py_buffer(data)])
        numbers.append(ids)
        buffer.add_batch(pa.record_batch([pa.nulls(rows, pa.binary()), values], schema=RAW_SCHEMA))
    entries = list(buffer.entries())
    assert all(0 < entry.num_rows <= ENTRY_MAX_ROWS for entry in entries)
    assert all(entry.nbytes <= ENTRY_MAX_BYTES + entry.num_rows for entry in entries)
    small = [entry.num_rows < 4_096 and entry.nbytes < ENTRY_MAX_BYTES // 4 for entry in entries]
    assert not any(a and b for a, b in pairwise(small))
    came = [np.frombuffer(value[:8], np.int64)[0] for value in values_of(entries)]
    assert came == np.concatenate(numbers).tolist()
    assert buffer.messages == len(came)


def test_entry_limit_holds_where_rows_differ_in_size() -> None:
    """Add one batch whose first rows are large and whose many others are tiny: no entry may be over the limit."""
    buffer = raw_buffer()
    buffer.add_batch(raw_batch([1 << 20] * 40 + [8] * 40_000))
    entries = list(buffer.entries())
    assert max(entry.nbytes for entry in entries) <= ENTRY_MAX_BYTES
    assert [value[-8:] for value in values_of(entries)] == [b"%08d" % i for i in range(40_040)]


def test_message_above_the_limit_is_an_entry_of_its_own() -> None:
    """Send one message of 20 MiB between small ones, by itself and in a batch: it can't be cut, so it gets through."""
    large = b"x" * (20 << 20)
    sent, batched = raw_buffer(), raw_buffer()
    for value in (b"a", large, b"b"):
        add(sent, value)
    batched.add_batch(pa.record_batch([pa.nulls(3, pa.binary()), pa.array([b"a", large, b"b"])], schema=RAW_SCHEMA))
    for buffer in (sent, batched):
        entries = list(buffer.entries())
        assert [entry.num_rows for entry in entries if entry.nbytes > ENTRY_MAX_BYTES] == [1]
        assert values_of(entries) == [b"a", large, b"b"]


def test_batches_of_large_rows_are_joined_up_to_the_limit() -> None:
    """Add twenty batches of a megabyte each: the entries stay below the limit of bytes, and near it."""
    buffer = raw_buffer()
    for _ in range(20):
        buffer.add_batch(raw_batch([1 << 20]))
    assert [entry.num_rows for entry in buffer.entries()] == [15, 5]


def test_large_batch_is_not_copied() -> None:
    """Add a batch of the limit's rows, and one of more: the entries lie in the caller's memory."""
    for rows in (ENTRY_MAX_ROWS, ENTRY_MAX_ROWS * 2 + 5):
        batch = raw_batch([8] * rows)
        buffer = raw_buffer()
        buffer.add_batch(batch)
        entries = list(buffer.entries())
        assert [entry.num_rows for entry in entries] == [ENTRY_MAX_ROWS] * (rows // ENTRY_MAX_ROWS) + [5] * (rows % 2)
        wanted = batch.column("value").buffers()[2].address
        assert {entry.column("value").buffers()[2].address for entry in entries} == {wanted}


def test_messages_and_batches_keep_their_order() -> None:
    """Send messages before, between and behind batches."""
    buffer = raw_buffer()
    add(buffer, b"first")
    buffer.add_batch(raw_batch([8, 8]))
    add(buffer, b"third")
    buffer.add_batch(raw_batch([8]))
    add(buffer, b"last")
    assert values_of(buffer.entries()) == [b"first", b"00000000", b"00000001", b"third", b"00000000", b"last"]


def test_batches_with_different_columns_are_not_joined() -> None:
    """Send small batches with and without event time: each keeps its own columns."""
    buffer = raw_buffer()
    add(buffer, b"a")
    buffer.add_batch(raw_batch([8]).append_column(EVENT_TIME, pa.array([7], EVENT_TIME.type)))
    add(buffer, b"b")
    assert [entry.schema.names for entry in buffer.entries()] == [
        ["key", "value"],
        ["key", "value", "__event_time"],
        ["key", "value"],
    ]


def test_batch_without_rows_makes_no_entry() -> None:
    """Add an empty batch, by itself and between messages."""
    buffer = raw_buffer()
    buffer.add_batch(raw_batch([]))
    assert list(buffer.entries()) == []
    add(buffer, b"a")
    buffer.add_batch(raw_batch([]))
    assert [entry.num_rows for entry in buffer.entries()] == [1]


def test_written_messages_are_let_go_and_still_counted() -> None:
    """Clear a buffer after its entries were taken."""
    buffer = raw_buffer()
    add(buffer, b"a")
    assert len(list(buffer.entries())) == len(list(buffer.entries())) == 1
    buffer.clear()
    assert list(buffer.entries()) == []
    assert buffer.messages == 1


def test_size_of_a_message_counts_all_its_parts() -> None:
    """Compare the sizes of messages with and without a large key, value and properties: they decide about writing."""
    buffer, much = raw_buffer(), "x" * 1000
    plain = add(buffer, b"")
    assert 0 < plain < 100
    assert add(buffer, much) == add(buffer, b"", much) == add(buffer, b"", None, {much: ""}) == plain + 1000
    assert add(buffer, b"", None, {"": much}) == plain + 1000
    assert add(Buffer(TYPED, 0), {"id": 1, "name": much}) >= 1000


# What is refused

NO_TEXT, NO_TIME = (
    "doesn't fit: expected bytes or str, came",
    "is not an event time. Use a datetime with a time zone, or",
)
NO_PROPERTIES = "are not properties. Use a dict of str to str."
BAD_RAW: dict[str, tuple[dict[str, Any], str]] = {
    "number": ({"value": 5}, f"SCHEMA_MISMATCH] The value {NO_TEXT} int. Encode it first, or give the topic a schema."),
    "dict": ({"value": {}}, f"SCHEMA_MISMATCH] The value {NO_TEXT} dict."),
    "key": ({"key": 5}, f"SCHEMA_MISMATCH] The key {NO_TEXT} int. Encode it first."),
    "half a character": ({"value": "\ud800"}, "SCHEMA_MISMATCH] The value doesn't fit: 'utf-8' codec can't encode"),
    "naive event time": ({"event_time": NAIVE}, f"INVALID_ARGUMENT] {NAIVE!r} {NO_TIME}"),
    "event time in text": ({"event_time": "now"}, f"INVALID_ARGUMENT] 'now' {NO_TIME}"),
    "event time as a truth": ({"event_time": True}, f"INVALID_ARGUMENT] True {NO_TIME}"),
    "event time beyond all time": (
        {"event_time": 1 << 53},
        "INVALID_ARGUMENT] The event time 9007199254740992 is outside",
    ),
    "event time finer than a microsecond": (
        {"event_time": pd.Timestamp(1, tz="UTC")},
        "INVALID_ARGUMENT] The event time Timestamp('1970-01-01 00:00:00.000000001+0000', tz='UTC') is finer than",
    ),
    "event time before all years": (
        {"event_time": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))},
        "INVALID_ARGUMENT] The event time datetime.datetime(1, 1, 1, 0, 0, tzinfo=",
    ),
    "pairs": ({"properties": [("a", "b")]}, f"INVALID_ARGUMENT] [('a', 'b')] {NO_PROPERTIES}"),
    "property of a number": ({"properties": {"a": 1}}, f"INVALID_ARGUMENT] {{'a': 1}} {NO_PROPERTIES}"),
    "property named by a number": ({"properties": {1: "a"}}, f"INVALID_ARGUMENT] {{1: 'a'}} {NO_PROPERTIES}"),
    "property of half a character": (
        {"properties": {"a": "\ud800"}},
        f"INVALID_ARGUMENT] {{'a': '\\ud800'}} {NO_PROPERTIES}",
    ),
    "name of half a character": (
        {"properties": {"\ud800": "a"}},
        f"INVALID_ARGUMENT] {{'\\ud800': 'a'}} {NO_PROPERTIES}",
    ),
}


@for_each(("message", "text"), BAD_RAW.values())
def test_raw_message_that_does_not_fit_is_not_taken(message: dict[str, Any], text: str) -> None:
    """Add a bad message between good ones: it is refused at once, and the good ones are stored as if it hadn't been."""
    buffer = raw_buffer()
    add(buffer, b"before", None, {"a": "b"}, 5)
    with pytest.raises(TxnLogError, match=re.escape(f"[TXNLOG_{text}")):
        add(buffer, **{"value": b"v"} | message)
    add(buffer, b"after")
    [entry] = buffer.entries()
    assert entry.column("value").to_pylist() == [b"before", b"after"]
    assert entry.column("__properties").to_pylist() == [[("a", "b")], None]
    assert buffer.messages == 2


COLUMNS = "columns id, name, tags, at, day."
BAD_ROWS: dict[str, tuple[Any, str]] = {
    "nothing": (None, f"The message is a NoneType, and the topic has typed columns. Send a dict with the {COLUMNS}"),
    "not a dict": (b"x", f"The message is a bytes, and the topic has typed columns. Send a dict with the {COLUMNS}"),
    "unknown column": (
        {"id": 1, "nam": "a"},
        "The message has a column 'nam', which the topic doesn't have. The topic's columns are id, name, tags, at,",
    ),
    "missing column": (
        {"name": "a"},
        "Column 'id' doesn't fit: expected int64 and no null, came none. Give it a value.",
    ),
    "null where none may be": ({"id": None}, "Column 'id' doesn't fit: expected int64 and no null, came none."),
    "text for a number": (
        {"id": "1"},
        "Column 'id' doesn't fit: expected int64, came str '1'. Convert it before you send it.",
    ),
    "number too large": ({"id": 1 << 63}, "Column 'id' doesn't fit: expected int64, came int 9223372036854775808."),
    "number for text": ({"id": 1, "name": 5}, "Column 'name' doesn't fit: expected string, came int 5."),
    "wrong item": ({"id": 1, "tags": ["a", 1]}, "Column 'tags' doesn't fit: expected list<item: string>, came list ["),
    "wrong member": ({"id": 1, "at": {"x": "far"}}, "Column 'at' doesn't fit: expected struct<x: double, y: double>,"),
    "moment for a day": (
        {"id": 1, "day": datetime(2026, 1, 1, 12, tzinfo=UTC)},
        "Column 'day' doesn't fit: expected date32[day], came datetime datetime.datetime(2026, 1, 1, 12,",
    ),
}


@for_each(("row", "text"), BAD_ROWS.values())
def test_row_that_does_not_fit_is_not_taken(row: Any, text: str) -> None:
    """Add a bad row between good ones: it is refused at once, and the good ones are stored as if it hadn't been."""
    buffer = Buffer(TYPED, 0)
    add(buffer, {"id": 1})
    with pytest.raises(SchemaMismatchError, match=re.escape(f"[TXNLOG_SCHEMA_MISMATCH] {text}")):
        add(buffer, row)
    add(buffer, {"id": 2})
    [entry] = buffer.entries()
    assert entry.column("id").to_pylist() == [1, 2]
    assert buffer.messages == 2


def test_long_value_is_cut_in_the_error() -> None:
    """Refuse a value of a megabyte: the message stays readable."""
    with pytest.raises(SchemaMismatchError) as caught:
        add(Buffer(TYPED, 0), {"id": "x" * 1_000_000})
    with pytest.raises(InvalidArgumentError) as caught_too:
        add(raw_buffer(), b"", None, {"a": ["x" * 1_000_000]})
    assert max(len(str(caught.value)), len(str(caught_too.value))) < 300
