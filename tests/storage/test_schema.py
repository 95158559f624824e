"""Schemas of topics, and fitting batches to them: what fits is taken uncopied, what doesn't is refused untouched."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError
from txn_source.storage.schema import (
    EVENT_TIME,
    PROPERTIES,
    RAW_SCHEMA,
    check_topic_schema,
    conform,
    deserialize_schema,
    serialize_schema,
)

ALLOWED = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(38, 10),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", tz="UTC"),
    pa.duration("us"),
    pa.list_(pa.string()),
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]),
    pa.map_(pa.string(), pa.struct([("a", pa.int64())])),
]
REFUSED = [
    pa.null(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float16(),
    pa.decimal256(40, 2),
    pa.time32("ms"),
    pa.time64("us"),
    pa.date64(),
    pa.month_day_nano_interval(),
    pa.binary(16),
    pa.dictionary(pa.int32(), pa.string()),
    pa.string_view(),
    pa.binary_view(),
    pa.struct([]),
    pa.list_(pa.int64(), 3),
    pa.run_end_encoded(pa.int32(), pa.int64()),
    pa.dense_union([pa.field("a", pa.int64())]),
    pa.list_(pa.uint64()),
    pa.map_(pa.uint8(), pa.string()),
    pa.map_(pa.string(), pa.time64("us")),
    pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.float16())]))]),
]


@for_each("type_", ALLOWED)
def test_type_that_spark_has_is_allowed(type_: pa.DataType) -> None:
    """Check a schema with each type, and take it through the bytes under which it is kept."""
    schema = pa.schema([pa.field("a", type_, nullable=False), ("b", pa.int64())])
    assert check_topic_schema(schema).equals(schema)
    assert deserialize_schema(serialize_schema(schema)).equals(schema)


@for_each("type_", REFUSED)
def test_type_that_spark_lacks_is_refused(type_: pa.DataType) -> None:
    """Check a schema with each other type, nested ones included: the error names column, type and what there is."""
    with pytest.raises(InvalidArgumentError) as caught:
        check_topic_schema(pa.schema([("fine", pa.int64()), ("odd", type_)]))
    assert str(caught.value).startswith(
        f"[TXNLOG_INVALID_ARGUMENT] Column 'odd' has type {type_}, which Spark has no type for. Use booleans, signed"
    )


@for_each("name", ["", "__", "__key", "__event_time", "__mine"])
def test_reserved_name_is_refused(name: str) -> None:
    """Name a column as txnlog's own, or not at all; one underscore is free."""
    with pytest.raises(
        InvalidArgumentError, match=rf"Column '{name}' has a reserved name\. Use one that does not begin"
    ):
        check_topic_schema(pa.schema([("_id", pa.int64()), (name, pa.int64())]))
    check_topic_schema(pa.schema([("_id", pa.int64()), ("a__b", pa.int64())]))


@for_each("twins", [("a", "a"), ("id", "id"), ("id", "ID"), ("prix_é", "PRIX_É")])
def test_names_that_differ_in_case_only_are_refused(twins: tuple[str, str]) -> None:
    """Name two columns alike, of one letter too, which Python holds once: Spark could not tell them apart."""
    first, second = twins
    with pytest.raises(InvalidArgumentError) as caught:
        check_topic_schema(pa.schema([(first, pa.int64()), ("other", pa.int64()), (second, pa.int64())]))
    assert str(caught.value) == (
        f"[TXNLOG_INVALID_ARGUMENT] Columns {first!r} and {second!r} have one name (Spark ignores case)."
        " Rename one of them."
    )


def test_schema_needs_a_column() -> None:
    """Check a schema without columns, and what is no schema at all."""
    with pytest.raises(InvalidArgumentError, match=r"has no columns\. Give one at least, or None for a raw topic\."):
        check_topic_schema(pa.schema([]))
    with pytest.raises(InvalidArgumentError, match=r"The schema is a dict\. Give a pyarrow\.Schema"):
        check_topic_schema({"a": "int"})  # type: ignore[arg-type]


def test_metadata_of_a_schema_is_not_kept() -> None:
    """Check a schema that pandas left notes in: the topic's has none, and the caller's keeps them."""
    schema = pa.schema([("a", pa.int64())], metadata={"pandas": "{}"})
    assert check_topic_schema(schema).metadata is None
    assert schema.metadata == {b"pandas": b"{}"}


@for_each("type_", ALLOWED)
def test_notes_in_fields_do_not_change_a_type(type_: pa.DataType) -> None:
    """Note an extension's name in a field, and in parts of it: what is kept is the type that was given."""
    notes = {"ARROW:extension:name": "arrow.json", "ARROW:extension:metadata": ""}
    part = pa.field("part", type_, metadata=notes)
    fields = [
        pa.field("a", type_, metadata=notes),
        pa.field("s", pa.struct([part]), metadata=notes),
        pa.field("l", pa.list_(part)),
        pa.field("g", pa.large_list(part)),
        pa.field("m", pa.map_(pa.string(), part)),
    ]
    kept = deserialize_schema(serialize_schema(check_topic_schema(pa.schema(fields))))
    plain = pa.field("part", type_)
    assert [field.type for field in kept] == [
        type_, pa.struct([plain]), pa.list_(plain), pa.large_list(plain), pa.map_(pa.string(), plain),
    ]  # fmt: skip
    assert "extension" not in kept.to_string(show_field_metadata=True)


def test_raw_topic_has_no_schema_of_its_own() -> None:
    """Keep and restore the raw schema: it is known by identity."""
    assert serialize_schema(None) is None
    assert deserialize_schema(None) is RAW_SCHEMA
    assert [(f.name, f.type) for f in RAW_SCHEMA] == [("key", pa.binary()), ("value", pa.binary())]


# Fitting a batch

TOPIC = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("data", pa.binary())])
GOOD: dict[str, pa.Array] = {
    "id": pa.array([1, 2]),
    "name": pa.array(["a", None]),
    "data": pa.array([b"x", b"y"]),
}


def addresses(column: pa.Array) -> list[int | None]:
    return [buffer.address if buffer else None for buffer in column.buffers()]


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def test_columns_are_put_in_order_without_copying() -> None:
    """Fit a batch with its columns turned round: same memory, the topic's order, and its fields' nullability."""
    batch = batch_of(**dict(reversed(GOOD.items())))
    fitted = conform(batch, TOPIC)
    assert fitted.schema.equals(TOPIC)
    assert [addresses(fitted.column(name)) for name in GOOD] == [addresses(column) for column in GOOD.values()]
    assert batch.schema.names == ["data", "name", "id"]


def test_slice_is_fitted_without_copying() -> None:
    """Fit a slice of a batch: the memory is still the whole batch's."""
    fitted = conform(batch_of(**GOOD).slice(1, 1), TOPIC)
    assert fitted.to_pylist() == [{"id": 2, "name": None, "data": b"y"}]
    assert addresses(fitted.column("data")) == addresses(GOOD["data"])


def test_optional_columns_come_last_and_only_if_given() -> None:
    """Fit a batch with event time, properties and key in front: they go to the end."""
    times = pa.array([5, None], EVENT_TIME.type)
    properties = pa.array([[("k", "v")], None], PROPERTIES.type)
    batch = batch_of(__event_time=times, __key=pa.array(["k1", None]), __properties=properties, **GOOD)
    fitted = conform(batch, TOPIC)
    assert fitted.schema.names == ["id", "name", "data", "__event_time", "__key", "__properties"]
    assert fitted.column("__key").to_pylist() == [b"k1", None]
    assert addresses(fitted.column("__event_time")) == addresses(times)


BYTES = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]


@for_each("came", BYTES)
def test_text_and_all_widths_of_bytes_become_binary(came: pa.DataType) -> None:
    """Fit text and bytes of every width where binary is wanted."""
    fitted = conform(batch_of(**GOOD | {"data": pa.array(["ä", None], pa.string()).cast(came)}), TOPIC)
    assert fitted.column("data").equals(pa.array(["ä".encode(), None], pa.binary()))


@pytest.mark.parametrize("came", BYTES[:3], ids=str)
@pytest.mark.parametrize("wanted", [pa.string(), pa.large_string()], ids=str)
def test_all_widths_of_text_become_the_topics(came: pa.DataType, wanted: pa.DataType) -> None:
    """Fit text of every width where either width is wanted."""
    topic = pa.schema([("name", wanted)])
    fitted = conform(batch_of(name=pa.array(["ä", None], pa.string()).cast(came)), topic)
    assert fitted.column("name").equals(pa.array(["ä", None], wanted))


def test_other_time_zone_is_the_same_instant() -> None:
    """Fit timestamps of another zone: the instants stay."""
    topic = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
    fitted = conform(batch_of(at=pa.array([1_000_000], pa.timestamp("us", tz="Europe/Berlin"))), topic)
    assert fitted.column("at").cast(pa.int64()).to_pylist() == [1_000_000]


@for_each("type_", ALLOWED)
def test_column_of_nulls_fits_any_type(type_: pa.DataType) -> None:
    """Fit a column that Arrow gave the type null, since it has no value."""
    fitted = conform(batch_of(a=pa.nulls(2)), pa.schema([("a", type_)]))
    assert fitted.column("a").equals(pa.nulls(2, type_))


def test_raw_batch_may_leave_out_the_key() -> None:
    """Fit a batch with values only: the keys are null; the value can't be left out."""
    assert conform(batch_of(value=pa.array(["v"])), RAW_SCHEMA).to_pylist() == [{"key": None, "value": b"v"}]
    with pytest.raises(SchemaMismatchError, match="no column 'value'"):
        conform(batch_of(key=pa.array(["k"])), RAW_SCHEMA)


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "missing column": (
        {"name": GOOD["name"], "id": GOOD["id"]},
        "The batch has no column 'data'; expected binary, came name string, id int64. Add the column",
    ),
    "no columns": ({}, "The batch has no column 'id'; expected int64, came none. Add the column"),
    "unknown column": (
        GOOD | {"extra": GOOD["id"]},
        "The batch has a column 'extra', which the topic doesn't have. The topic's columns are id int64, name string,",
    ),
    "name in another case": (
        {"ID": GOOD["id"], "name": GOOD["name"], "data": GOOD["data"]},
        "The batch has a column 'ID', which the topic doesn't have. The topic's columns are id int64,",
    ),
    "nulls where none may be": (
        GOOD | {"id": pa.array([1, None])},
        "Column 'id' doesn't fit: expected no nulls, came 1. Fill them in, or drop these rows.",
    ),
    "only nulls where none may be": (
        GOOD | {"id": pa.nulls(2)},
        "Column 'id' doesn't fit: expected no nulls, came 2. Fill them in, or drop these rows.",
    ),
    "narrower number": (
        GOOD | {"id": pa.array([1, 2], pa.int32())},
        "Column 'id' doesn't fit: expected int64, came int32. Cast it to the topic's type before you send it.",
    ),
    "text for a number": (
        GOOD | {"id": pa.array(["1", "2"])},
        "Column 'id' doesn't fit: expected int64, came string. Cast it",
    ),
    "bytes for text": (
        GOOD | {"name": pa.array([b"a", b"\xff"])},
        "Column 'name' doesn't fit: expected string, came binary. Cast it",
    ),
    "dictionary for text": (
        GOOD | {"name": pa.array(["a", "b"]).dictionary_encode()},
        "Column 'name' doesn't fit: expected string, came dictionary<values=string, indices=int32, ordered=0>. Cast",
    ),
    "bytes of fixed width": (
        GOOD | {"data": pa.array([b"ab", b"cd"], pa.binary(2))},
        "Column 'data' doesn't fit: expected binary, came fixed_size_binary[2]. Cast it",
    ),
    "event time in other units": (
        GOOD | {"__event_time": pa.array([1, 2], pa.timestamp("ms", tz="UTC"))},
        "Column '__event_time' doesn't fit: expected timestamp[us, tz=UTC], came timestamp[ms, tz=UTC]. Cast it",
    ),
    "event time without zone": (
        GOOD | {"__event_time": pa.array([1, 2], pa.timestamp("us"))},
        "Column '__event_time' doesn't fit: expected timestamp[us, tz=UTC], came timestamp[us]. Cast it",
    ),
    "properties that are not text": (
        GOOD | {"__properties": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))},
        "Column '__properties' doesn't fit: expected map<string, string>, came map<string, int64>. Cast it",
    ),
}


@for_each(("columns", "message"), UNFIT.values())
def test_batch_that_does_not_fit_is_refused(columns: dict[str, Any], message: str) -> None:
    """Fit batches with one thing wrong: the error says field, expected and came, and the batch stays as it was."""
    batch = batch_of(**columns)
    before = batch.schema, batch.to_pydict()
    with pytest.raises(SchemaMismatchError, match=rf"^\[TXNLOG_SCHEMA_MISMATCH\] {re.escape(message)}"):
        conform(batch, TOPIC)
    assert (batch.schema, batch.to_pydict()) == before


@for_each("name", ["id", "data", "__event_time", "extra"])
def test_column_that_is_there_twice_is_refused(name: str) -> None:
    """Fit a batch with two columns of one name: none of them is picked."""
    names = [*GOOD, name, name] if name not in GOOD else [*GOOD, name]
    arrays = [GOOD.get(n, pa.array([1, 2], EVENT_TIME.type)) for n in names]
    fact = "has a column 'extra', which" if name == "extra" else rf"has column '{name}' more than once\. Drop one"
    with pytest.raises(SchemaMismatchError, match=rf"^\[TXNLOG_SCHEMA_MISMATCH\] The batch {fact}"):
        conform(pa.record_batch(arrays, names=names), TOPIC)


def test_empty_column_fits_where_no_nulls_may_be() -> None:
    """Fit a batch without rows: there is no null in it."""
    empty = batch_of(id=pa.array([], pa.int64()), name=pa.nulls(0), data=pa.nulls(0))
    assert conform(empty, TOPIC).num_rows == 0
