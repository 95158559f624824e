"""What couldn't be read back: damaged buffers, text that isn't UTF-8, nulls and times where none may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError
from txn_source.storage import schema as schema_module
from txn_source.storage.schema import EVENT_TIME, KEY, PROPERTIES, check_topic_schema, conform

TEXT = pa.string()


def offsets_of(offsets: list[int], data: bytes, type_: pa.DataType) -> pa.Array:
    """Return an array over these very offsets; those in the middle aren't looked at when it is made."""
    width = np.int64 if pa.types.is_large_binary(type_) or pa.types.is_large_string(type_) else np.int32
    buffers = [None, pa.py_buffer(np.array(offsets, width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(offsets) - 1, buffers)


def list_of(values: pa.Array, type_: pa.DataType | None = None) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, type=type_)


def struct_of(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values], ["a"])


def map_of(values: pa.Array) -> pa.Array:
    keys = pa.array([f"k{i}" for i in range(len(values))])
    return pa.MapArray.from_arrays(pa.array([0, len(values)], pa.int32()), keys, values)


def view_out_of_its_buffer() -> pa.Array:
    view = np.array([100, 0x41414141, 0, 0], np.int32)  # 100 bytes of a buffer that has 3
    return pa.Array.from_buffers(pa.binary_view(), 1, [None, pa.py_buffer(view), pa.py_buffer(b"abc")])


def decimal_beyond_its_precision() -> pa.Array:
    number = pa.py_buffer((10**6).to_bytes(16, "little"))
    return pa.Array.from_buffers(pa.decimal128(3, 0), 1, [None, number])


def no_text(type_: pa.DataType = TEXT) -> pa.Array:
    return offsets_of([0, 1, 2], b"a\xff", type_)


WHOLE: dict[str, Callable[[pa.Array], pa.Array]] = {"list": list_of, "struct": struct_of, "map": map_of}
DAMAGED: dict[str, tuple[pa.Array, int]] = {
    "offset beyond the buffer": (offsets_of([0, 1, 500, 5], b"abcde", pa.binary()), 1),
    "offset beyond the buffer, large": (offsets_of([0, 1, 1 << 40, 5], b"abcde", pa.large_binary()), 1),
    "negative offset": (offsets_of([0, -7, 5], b"abcde", pa.binary()), 0),
    "falling offsets": (offsets_of([0, 3, 2, 5], b"abcde", pa.binary()), 1),
    "no text": (no_text(), 1),
    "no text, large": (no_text(pa.large_string()), 1),
    "half a surrogate pair": (offsets_of([0, 3], b"\xed\xa0\x80", pa.string()), 0),
    "overlong text": (offsets_of([0, 2], b"\xc0\x80", pa.string()), 0),
    "decimal beyond its precision": (decimal_beyond_its_precision(), 0),
    "falling offsets of a list": (
        pa.Array.from_buffers(
            pa.list_(pa.int8()),
            2,
            [None, pa.py_buffer(np.array([0, 3, 2], np.int32))],
            children=[pa.array([1, 2, 3], pa.int8())],
        ),
        1,
    ),
} | {f"no text in a {name}": (whole(no_text()), 0) for name, whole in WHOLE.items()}


@for_each(("column", "row"), DAMAGED.values())
def test_damaged_column_is_refused_with_its_row(column: pa.Array, row: int) -> None:
    """Fit a column whose buffers don't hold what its type says, behind good rows: it names the column and the row."""
    topic = pa.schema([("n", column.type)])
    with pytest.raises(SchemaMismatchError, match=rf"Column 'n' can't be read back: row {row} is damaged \("):
        conform(pa.record_batch([column], names=["n"]), topic)


@for_each(
    ("came", "wanted"),
    [
        (no_text(), pa.large_string()),
        (no_text(pa.large_string()), pa.string()),
        (no_text(pa.large_string()), pa.binary()),
        (view_out_of_its_buffer(), pa.binary()),
        (offsets_of([0, 1, 500, 5], b"abcde", pa.large_binary()), pa.binary()),
        (offsets_of([0, 1, 500, 5], b"abcde", pa.string()), pa.binary()),
    ],
)
def test_damaged_column_of_another_width_is_refused_before_it_is_converted(came: pa.Array, wanted: pa.DataType) -> None:
    """Fit damaged text and bytes where another width is wanted: converting them would read foreign memory."""
    with pytest.raises(SchemaMismatchError, match="Column 'n' can't be read back: row"):
        conform(pa.record_batch([came], names=["n"]), pa.schema([("n", wanted)]))


def test_text_where_bytes_are_wanted_may_hold_any_bytes() -> None:
    """Fit a column that calls itself text and isn't, into a binary one: its bytes are taken as they are."""
    fitted = conform(pa.record_batch([no_text()], names=["n"]), pa.schema([("n", pa.binary())]))
    assert fitted.to_pylist() == [{"n": b"a"}, {"n": b"\xff"}]


@for_each(
    ("name", "column"),
    [
        ("__properties", map_of(no_text())),
        ("__properties", pa.MapArray.from_arrays([0, 2], no_text(), pa.array(["a", "b"]))),
        ("__key", offsets_of([0, 9, 2], b"ab", pa.binary())),
        ("__key", offsets_of([0, 9, 2], b"ab", pa.string())),
    ],
)
def test_damaged_optional_column_is_refused(name: str, column: pa.Array) -> None:
    """Fit a good payload with damaged properties or keys."""
    batch = pa.record_batch([pa.nulls(len(column), pa.int64()), column], names=["n", name])
    with pytest.raises(SchemaMismatchError, match=f"Column '{name}' can't be read back: row 0"):
        conform(batch, pa.schema([("n", pa.int64())]), [KEY])


def test_damage_outside_of_a_slice_does_not_matter() -> None:
    """Fit the good rows of a column with a damaged one, which are all that is stored."""
    batch = pa.record_batch([offsets_of([0, 1, 2, 3], b"ab\xff", pa.string())], names=["n"])
    assert conform(batch.slice(0, 2), pa.schema([("n", pa.string())])).to_pylist() == [{"n": "a"}, {"n": "b"}]
    with pytest.raises(SchemaMismatchError, match="row 0"):
        conform(batch.slice(2), pa.schema([("n", pa.string())]))


REQUIRED = pa.field("a", pa.int64(), nullable=False)
WITH_NULLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "struct": (pa.struct([REQUIRED]), [{"a": 1}, None, {"a": None}]),
    "list": (pa.list_(REQUIRED), [[1, 2], None, [1, None]]),
    "large list": (pa.large_list(REQUIRED), [[1, 2], None, [1, None]]),
    "map": (pa.map_(pa.string(), REQUIRED), [[("x", 1)], None, [("x", 1), ("y", None)]]),
    "struct in a list": (pa.list_(pa.struct([REQUIRED])), [[{"a": 1}, None], None, [{"a": None}]]),
    "list in a map": (pa.map_(pa.string(), pa.list_(REQUIRED)), [[("x", [1])], None, [("x", [1, None])]]),
    "struct in a key": (
        pa.map_(pa.struct([REQUIRED]), pa.int64()),
        [[({"a": 1}, 1)], None, [({"a": None}, 1)]],
    ),
}


@pytest.mark.parametrize(("type_", "rows"), WITH_NULLS.values(), ids=WITH_NULLS)
@pytest.mark.parametrize("start", [0, 1])
def test_null_in_a_part_that_has_none_is_refused(type_: pa.DataType, rows: list[Any], start: int) -> None:
    """Fit nested values of which the last has a null where the type has none, also as a slice; the others fit."""
    column = pa.array(rows, type_).slice(start)
    topic = pa.schema([("n", type_)])
    fitted = conform(pa.record_batch([column.slice(0, 2 - start)], names=["n"]), topic)
    assert fitted.column("n").to_pylist() == rows[start:2]
    with pytest.raises(SchemaMismatchError, match=rf"expected .*, row {2 - start} has a null in '\w+', which has none"):
        conform(pa.record_batch([column], names=["n"]), topic)


def test_what_lies_under_a_null_does_not_matter() -> None:
    """Fit a null struct and a null list over parts that have nulls: nobody ever sees these."""
    parts = pa.array([1, None], pa.int64())
    mask = pa.array([False, True])
    struct = pa.StructArray.from_arrays([parts], fields=[REQUIRED], mask=mask)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), parts, type=pa.list_(REQUIRED), mask=mask)
    topic = pa.schema([("s", struct.type), ("l", lists.type)])
    assert conform(pa.record_batch([struct, lists], names=["s", "l"]), topic).to_pylist() == [
        {"s": {"a": 1}, "l": [1]},
        {"s": None, "l": None},
    ]


FAR = (1 << 63) // 1_000_000 + 1
TOO_FAR: dict[str, tuple[pa.DataType, list[Any]]] = {
    "timestamp[s]": (pa.timestamp("s"), [0, None, FAR]),
    "timestamp[s], long ago": (pa.timestamp("s", "UTC"), [0, None, -FAR]),
    "timestamp[ms]": (pa.timestamp("ms"), [0, None, FAR * 1000]),
    "duration[s]": (pa.duration("s"), [0, None, FAR]),
    "in a list": (pa.list_(pa.timestamp("s")), [[0], None, [FAR]]),
    "in a map": (pa.map_(pa.string(), pa.timestamp("s")), [[("a", 0)], None, [("b", FAR)]]),
}


@for_each(("type_", "rows"), TOO_FAR.values())
def test_time_too_far_away_for_microseconds_is_refused(type_: pa.DataType, rows: list[Any]) -> None:
    """Fit times that Parquet, or Spark, couldn't count: a ledger with one could never be offloaded."""
    topic = pa.schema([("n", type_)])
    column = pa.array(rows, type_)
    assert conform(pa.record_batch([column.slice(0, 2)], names=["n"]), topic).num_rows == 2
    with pytest.raises(SchemaMismatchError, match="row 2 is too far away to be counted in microseconds"):
        conform(pa.record_batch([column], names=["n"]), topic)


@for_each("micros", [-62_135_596_800_000_001, 253_402_300_800_000_000, 1 << 62, -(1 << 63)])
def test_event_time_that_python_can_not_show_is_refused(micros: int) -> None:
    """Fit event times a microsecond outside of the years 1 to 9999, and farther; the last ones inside are taken."""
    topic = pa.schema([("n", pa.int64())])
    for value, fits in ((micros, False), (-62_135_596_800_000_000, True), (253_402_300_799_999_999, True)):
        times = pa.array([None, 0, value], EVENT_TIME.type)
        batch = pa.record_batch([pa.nulls(3, pa.int64()), times], names=["n", "__event_time"])
        if fits:
            conform(batch, topic).column("__event_time").to_pylist()
        else:
            with pytest.raises(SchemaMismatchError, match="row 2 is outside of the years 1 to 9999"):
                conform(batch, topic)


def test_message_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit, and fit rows at it and above it, in one column and over several."""
    monkeypatch.setattr(schema_module, "MESSAGE_MAX_BYTES", 1000)
    topic = pa.schema([("a", pa.binary()), ("b", pa.binary())])

    def batch(*sizes: tuple[int, int]) -> pa.RecordBatch:
        return pa.record_batch([[b"x" * size[i] for size in sizes] for i in range(2)], names=["a", "b"])

    assert conform(batch(*[(400, 400)] * 20), topic).num_rows == 20
    for size in ((2000, 0), (600, 600)):
        with pytest.raises(SchemaMismatchError, match=r"The message has \d+ bytes, and one may have 1000\. Keep"):
            conform(batch((1, 1), (1, 1), size, (1, 1)), topic)


@pytest.mark.parametrize("zone", ["Nowhere/Land", "utc+1", "+25:00", "+07", "../UTC", "Europe", "a\0b", "Z"])
@pytest.mark.parametrize("nested", [False, True])
def test_zone_that_nobody_knows_is_refused(zone: str, nested: bool) -> None:
    """Give a column, or a part of one, a zone in which no time can be shown."""
    moment = pa.timestamp("us", tz=zone)
    type_ = pa.map_(pa.string(), pa.struct([("at", moment)])) if nested else moment
    with pytest.raises(InvalidArgumentError, match=rf"Column 'n' has the time zone {re.escape(repr(zone))}, which nob"):
        check_topic_schema(pa.schema([("n", type_)]))


@for_each("zone", ["UTC", "Europe/Berlin", "Etc/GMT+5", "+07:30", "-00:30", "EST5EDT"])
def test_zone_that_is_known_is_taken(zone: str) -> None:
    """Give a column a zone of the tz database, or an offset: its times can be shown."""
    moment = pa.timestamp("us", tz=zone)
    check_topic_schema(pa.schema([("n", moment)]))
    assert pa.scalar(0, moment).as_py().timestamp() == 0


def test_parts_of_one_name_are_refused() -> None:
    """Give a struct, at any depth, two fields that Spark, or Python, couldn't tell apart."""
    for first, second in (("a", "a"), ("a", "A")):
        type_ = pa.list_(pa.struct([(first, pa.int64()), (second, pa.int64())]))
        with pytest.raises(InvalidArgumentError, match=f"Column 'n' has parts '{first}' and '{second}' of one name"):
            check_topic_schema(pa.schema([("n", type_)]))


@pytest.mark.parametrize("wrong", [[("a", None)], [("a", "b"), ("c", "d"), ("a", "e")]], ids=["no text", "twice"])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_properties_that_are_no_dict_are_refused(wrong: Any, start: int) -> None:
    """Fit properties of which one has no text, or a name comes twice, behind good ones of the same names."""
    column = pa.array([[("a", "b"), ("c", "d")], None, [("a", "b")], [], wrong], PROPERTIES.type).slice(start)
    batch = pa.record_batch([pa.nulls(5 - start, pa.int64()), column], ["n", "__properties"])
    topic = pa.schema([("n", pa.int64())])
    assert conform(batch.slice(0, 4 - start), topic).num_rows == 4 - start
    with pytest.raises(SchemaMismatchError, match=rf"row {4 - start} has a name twice, or one of no text\. Give each"):
        conform(batch, topic)
