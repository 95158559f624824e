from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.selection import for_each
from txn_source.cli.output import to_json
from txn_source.cli.payload import parse_message, rows_of
from txn_source.model.errors import SchemaMismatchError

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), True, True),
    (pa.int64(), -(1 << 62), -(1 << 62)),
    (pa.float64(), 0.1, 0.1),
    (
        pa.decimal128(38, 18),
        "12345678901234567890.123456789012345678",
        Decimal("12345678901234567890.123456789012345678"),
    ),
    (pa.string(), "zürich \u0000", "zürich \u0000"),
    (pa.binary(), "text", b"text"),
    (pa.large_binary(), {"base64": "/w=="}, b"\xff"),
    (pa.date32(), "2026-01-31", date(2026, 1, 31)),
    (pa.timestamp("us", tz="UTC"), "2026-01-31T12:00:00+00:00", NOON),
    (pa.timestamp("us"), "2026-01-31T12:00:00", NOON.replace(tzinfo=None)),
    (pa.duration("us"), 1.5, timedelta(seconds=1.5)),
    (pa.list_(pa.date32()), ["2026-01-31", None], [date(2026, 1, 31), None]),
    (pa.map_(pa.int32(), pa.binary()), {"1": "a"}, [(1, b"a")]),
    (pa.struct([("a", pa.list_(pa.int8())), ("b", pa.string())]), {"a": [1], "b": None}, {"a": [1], "b": None}),
]


@for_each(("kind", "shown", "value"), VALUES)
def test_value_goes_through_json_and_back(kind: pa.DataType, shown: Any, value: Any) -> None:
    """What consume prints, produce takes: make an array of the parsed value, then print that again."""
    schema = pa.schema([("c", kind)])
    array = pa.array([parse_message(json.dumps({"c": shown}).encode(), schema)["c"]], kind)
    assert array.to_pylist() == [value]
    assert to_json(rows_of(pa.record_batch([array], schema=schema))) == [{"c": shown}]


@for_each(
    ("kind", "text", "expected"),
    [
        (pa.timestamp("us", tz="UTC"), '"2026-01-31T12:00:00"', NOON),
        (pa.timestamp("us", tz="UTC"), '"2026-01-31 14:00:00+02:00"', NOON),
        (pa.timestamp("us", tz="UTC"), str(int(NOON.timestamp() * 1e6)), NOON),
        (pa.decimal128(20, 19), "0.1234567890123456789", Decimal("0.1234567890123456789")),
        (pa.float64(), "3", 3.0),
        (pa.map_(pa.string(), pa.int8()), '[["a", 1]]', [("a", 1)]),
    ],
)
def test_other_spellings_are_taken_exactly(kind: pa.DataType, text: str, expected: Any) -> None:
    """A value may be written in more than one way, without losing a digit: parse and make an array."""
    parsed = parse_message(f'{{"c": {text}}}'.encode(), pa.schema([("c", kind)]))["c"]
    assert pa.array([parsed], kind).to_pylist() == [expected]


@for_each(
    ("kind", "text"),
    [
        (pa.int64(), "1.5"),
        (pa.int64(), "true"),
        (pa.int64(), '"1"'),
        (pa.bool_(), "1"),
        (pa.string(), "1"),
        (pa.float64(), '"1"'),
        (pa.decimal128(5, 2), '"x"'),
        (pa.date32(), '"2026-02-30"'),
        (pa.timestamp("us"), '"noon"'),
        (pa.binary(), '{"base64": "?"}'),
        (pa.binary(), '{"hex": "00"}'),
        (pa.list_(pa.int64()), '"ab"'),
        (pa.list_(pa.int64()), "[1.5]"),
        (pa.map_(pa.int32(), pa.int32()), '{"a": 1}'),
        (pa.struct([("a", pa.int64())]), '{"b": 1}'),
    ],
)
def test_value_of_another_type_is_refused(kind: pa.DataType, text: str) -> None:
    """Nothing is bent to fit: parse each and find the column and its type in the error."""
    with pytest.raises(SchemaMismatchError) as caught:
        parse_message(f'{{"c": {text}}}'.encode(), pa.schema([("c", kind)]))
    assert f"Column 'c' doesn't fit: expected {kind}, came " in str(caught.value)


def test_nanoseconds_are_kept() -> None:
    """Python's datetime ends at microseconds: print nine digits and parse them again."""
    schema = pa.schema([("c", pa.timestamp("ns"))])
    batch = pa.record_batch([pa.array([1_234_567_890_123_456_789, None], schema.field(0).type)], schema=schema)
    rows = rows_of(batch)
    assert rows == [{"c": "2009-02-13 23:31:30.123456789"}, {"c": None}]
    assert parse_message(json.dumps(rows[0]).encode(), schema) == {"c": 1_234_567_890_123_456_789}
