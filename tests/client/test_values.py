"""Values of typed messages: taken exactly, or refused; a row means what the same row in a batch means."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.selection import for_each
from txn_source.client.writing import batch_buffer as buffer_module
from txn_source.client.writing.batch_buffer import Buffer
from txn_source.model.errors import SchemaMismatchError, TxnLogError
from txn_source.storage import schema as schema_module
from txn_source.storage.schema import RAW_SCHEMA

NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
LATER = NOON + timedelta(microseconds=1)
NAIVE = NOON.replace(tzinfo=None)
FAR = (1 << 63) // 1_000_000 + 1


def stored(value: Any, type_: pa.DataType) -> pa.Array:
    buffer = Buffer(pa.schema([("c", type_)]), 0)
    buffer.add({"c": value}, None, None, None)
    [entry] = buffer.entries()
    return entry.column("c")


class Hostile:
    """Raises whatever is done with it."""

    def __getattribute__(self, name: str) -> Any:
        raise ZeroDivisionError(name)

    def __repr__(self) -> str:
        raise ZeroDivisionError


BENT: list[tuple[Any, pa.DataType]] = [
    (LATER.replace(tzinfo=None), pa.timestamp("s")),
    (LATER.replace(tzinfo=None), pa.timestamp("ms")),
    (NAIVE, pa.timestamp("us", tz="UTC")),
    (NOON, pa.timestamp("us")),
    (pd.Timestamp(1), pa.timestamp("us")),
    (pd.NaT, pa.timestamp("us")),
    (FAR, pa.timestamp("s")),
    (-FAR * 1000, pa.timestamp("ms")),
    (NAIVE.replace(year=1), pa.timestamp("ns")),
    (timedelta(microseconds=1), pa.duration("s")),
    (timedelta(microseconds=1), pa.duration("ms")),
    (FAR, pa.duration("s")),
    (timedelta.max, pa.duration("us")),
    (NAIVE, pa.date32()),
    (NOON, pa.date32()),
    (1e300, pa.float32()),
    (np.float64(-1e300), pa.float32()),
    ((1 << 24) + 1, pa.float32()),
    ((1 << 53) + 1, pa.float64()),
    (True, pa.float64()),
    (True, pa.int64()),
    (1, pa.bool_()),
    (1.5, pa.int64()),
    (math.nan, pa.int64()),
    (128, pa.int8()),
    (-32769, pa.int16()),
    (1 << 63, pa.int64()),
    (Decimal("1.234"), pa.decimal128(5, 2)),
    (Decimal("NaN"), pa.decimal128(5, 2)),
    (True, pa.decimal128(5, 2)),
    (1000, pa.decimal128(5, 2)),
    (b"bytes", pa.string()),
    ("\ud800", pa.string()),
    ("\ud800", pa.binary()),
    (Hostile(), pa.string()),
    (Hostile(), pa.int64()),
    (Hostile(), pa.list_(pa.int64())),
    ("abc", pa.list_(pa.string())),
]
PARTS = {
    "list": (lambda v: [v], pa.list_),
    "struct": (lambda v: {"a": v}, lambda t: pa.struct([("a", t)])),
    "map": (lambda v: {"k": v}, lambda t: pa.map_(pa.string(), t)),
    "key": (lambda v: [(v, 1)], lambda t: pa.map_(t, pa.int64())),
}


@for_each(("value", "type_"), BENT)
def test_value_that_would_change_is_refused(value: Any, type_: pa.DataType) -> None:
    """Send a value that Arrow would cut, round away, overflow or take for another, alone and at every place inside."""
    with pytest.raises(SchemaMismatchError, match="Column 'c' doesn't fit: expected"):
        stored(value, type_)
    for whole, of in PARTS.values():
        with pytest.raises(SchemaMismatchError, match="Column 'c' doesn't fit: expected"):
            stored(whole(value), of(type_))


TAKEN: list[tuple[Any, pa.DataType, Any]] = [
    (NAIVE, pa.timestamp("s"), NAIVE),
    (NOON, pa.timestamp("s", tz="Europe/Berlin"), NOON),
    (pd.Timestamp(1000), pa.timestamp("us"), datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    (np.datetime64("2026-01-31T12:00:00", "us"), pa.timestamp("us"), NAIVE),
    (5, pa.timestamp("s", tz="UTC"), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
    (timedelta(seconds=5), pa.duration("s"), timedelta(seconds=5)),
    (5, pa.duration("ms"), timedelta(milliseconds=5)),
    (date(2026, 1, 31), pa.date32(), date(2026, 1, 31)),
    (1, pa.date32(), date(1970, 1, 2)),
    (0.1, pa.float32(), float(np.float32(0.1))),
    (math.inf, pa.float32(), math.inf),
    (1 << 24, pa.float32(), float(1 << 24)),
    (3.0, pa.int64(), 3),
    (np.int64(-128), pa.int8(), -128),
    (Decimal("1.20"), pa.decimal128(5, 2), Decimal("1.20")),
    (7, pa.decimal128(5, 2), Decimal(7)),
    (bytearray(b"x"), pa.binary(), b"x"),
    ("ä", pa.binary(), "ä".encode()),
    ("ä", pa.large_string(), "ä"),
    (np.bool_(True), pa.bool_(), True),
    ([None, [1, None], []], pa.list_(pa.list_(pa.int32())), [None, [1, None], []]),
    ({"k": None}, pa.map_(pa.string(), pa.int64()), [("k", None)]),
]


@for_each(("value", "type_", "expected"), TAKEN)
def test_value_that_fits_is_stored_as_it_is(value: Any, type_: pa.DataType, expected: Any) -> None:
    """Send values of other Python types that are the very same value, alone and at every place inside."""
    assert stored(value, type_).to_pylist() == [expected]
    for name, (whole, of) in PARTS.items():
        if name != "key" or getattr(value, "__hash__", None) is not None:
            [came] = stored(whole(value), of(type_)).to_pylist()
            assert came in ([expected], {"a": expected}, [("k", expected)], [(expected, 1)])


REQUIRED = pa.field("a", pa.int64(), nullable=False)


@for_each(
    ("value", "type_"),
    [
        ({"a": None}, pa.struct([REQUIRED])),
        ({}, pa.struct([REQUIRED])),
        ([1, None], pa.list_(REQUIRED)),
        ({"k": None}, pa.map_(pa.string(), REQUIRED)),
        ([{"a": 1}, {"a": None}], pa.list_(pa.struct([REQUIRED]))),
        ({None: 1}, pa.map_(pa.string(), pa.int64())),
        ([("a", 1), ("a", 2)], pa.struct([("a", pa.int64())])),
    ],
)
def test_null_or_doubled_part_is_refused(value: Any, type_: pa.DataType) -> None:
    """Send a null where a part has none, and a part twice; a null of the whole fits."""
    with pytest.raises(SchemaMismatchError, match="Column 'c' doesn't fit: expected"):
        stored(value, type_)
    assert stored(None, type_).to_pylist() == [None]


def test_value_that_changes_after_sending_is_stored_as_it_was() -> None:
    """Change bytes that can change, sent into a typed column beside plain ones and nulls."""
    buffer, raw = Buffer(pa.schema([("c", pa.binary())]), 0), bytearray(b"a")
    for value in (raw, b"b", None):
        buffer.add({"c": value}, None, None, None)
    raw[:] = b"changed"
    [entry] = buffer.entries()
    assert entry.column("c").to_pylist() == [b"a", b"b", None]


@pytest.mark.parametrize("message", [(Hostile(), None, None, None), (b"", Hostile(), None, None)], ids=["value", "key"])
def test_value_that_raises_is_refused_in_our_words(message: tuple[Any, ...]) -> None:
    """Send what raises an exception of its own when it is looked at, to a raw topic."""
    with pytest.raises(TxnLogError):
        Buffer(RAW_SCHEMA, 0).add(*message)


def test_message_above_the_limit_is_refused_and_hurts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit, and send messages above it, by value, key, properties and columns, between good ones."""
    monkeypatch.setattr(schema_module, "MESSAGE_MAX_BYTES", 10_000)
    large = "x" * 10_001
    buffer, typed = Buffer(RAW_SCHEMA, 0), Buffer(pa.schema([("a", pa.string()), ("b", pa.list_(pa.string()))]), 0)
    buffer.add(b"before", None, None, None)
    typed.add({"a": "before"}, None, None, None)
    for message in ((large, None, None), (b"", large, None), (b"", None, {large: ""}), (b"", None, {"a": "ä" * 6000})):
        with pytest.raises(SchemaMismatchError, match=r"The message has \d+ bytes, and one may have 10000\. Keep"):
            buffer.add(*message, None)
    for row in ({"a": large}, {"a": "ä" * 6000}, {"b": [large]}, {"b": ["x"] * 5000}):
        with pytest.raises(SchemaMismatchError, match=r"The message has \d+ bytes, and one may have 10000\. Keep"):
            typed.add(row, None, None, None)
    buffer.add("x" * 9_000, None, None, None)
    assert [len(e) for e in buffer.entries()] == [2]
    assert [e.column("a").to_pylist() for e in typed.entries()] == [["before"]]


def test_large_messages_are_never_gathered_into_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, and send many messages before they are written: no column gets near what Arrow can hold."""
    monkeypatch.setattr(buffer_module, "ENTRY_MAX_BYTES", 20_000)
    monkeypatch.setattr(buffer_module, "ENTRY_MAX_ROWS", 50)
    built: list[int] = []
    make = Buffer._batch

    def watched(self: Buffer, cells: list[Any]) -> pa.RecordBatch:
        batch = make(self, cells)
        built.append(batch.nbytes)
        return batch

    monkeypatch.setattr(Buffer, "_batch", watched)
    buffer = Buffer(RAW_SCHEMA, 0)
    sizes = [5_000, 10, 4_000, 15_000, 19_000, *[100] * 200]
    for size in sizes:
        buffer.add(b"x" * size, None, None, None)
    assert [len(v) for e in buffer.entries() for v in e.column("value").to_pylist()] == sizes
    assert max(built) <= 30_000
    assert buffer.messages == len(sizes)
