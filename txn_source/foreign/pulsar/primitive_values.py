"""Values of Pulsar's primitive schemas: numbers of a width, big-endian, and texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.foreign.pulsar.avro_values import spread
from txn_source.foreign.pulsar.columns import numbers, texts, truths
from txn_source.foreign.pulsar.wire import ByteArray
from txn_source.model.visibility import BoolArray, IntArray
from txn_source.storage.arrays import array_of

_UTC, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_DAY_MICROS = 86_400_000_000
_MAX_MICROS = (1 << 63) - 1

TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "INT8": pa.int8(),
    "INT16": pa.int16(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "DATE": _UTC,
    "TIMESTAMP": _UTC,
    "INSTANT": _UTC,
    "TIME": pa.int64(),
    "LOCAL_DATE": pa.date32(),
    "LOCAL_TIME": pa.int64(),
    "LOCAL_DATE_TIME": _LOCAL,
}
"""The column's type for each schema. ``DATE`` is Java's, a moment; a time of day is nanoseconds since midnight."""
_DTYPES = {"BOOLEAN": "u1", "INT8": "i1", "INT16": ">i2", "INT32": ">i4", "FLOAT": ">f4", "DOUBLE": ">f8"}
_WIDTHS = {"INSTANT": 12, "LOCAL_DATE_TIME": 16}

Made = tuple[pa.Array, BoolArray]


def decode_primitive(kind: str, values: pa.Array) -> Made:
    """Return values of a primitive schema, and which of them aren't; these have a value that means nothing.

    Args:
        kind: the schema's type.
        values: the values' bytes, without nulls.
    """
    if kind == "STRING":
        return texts(values), np.zeros(len(values), np.bool_)
    width = _WIDTHS.get(kind, np.dtype(_DTYPES.get(kind, ">i8")).itemsize)
    edges = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    right = np.diff(edges) == width
    data: ByteArray = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    if not right.any():
        return pa.nulls(len(values), TYPES[kind]), ~right
    rows = data.take(edges[:-1][right][:, None] + np.arange(width), mode="clip")
    found, wrong = _MAKERS.get(kind, _plain)(kind, rows)
    bad = ~right
    bad[np.flatnonzero(right)[wrong]] = True
    return (found if right.all() else spread(found, np.flatnonzero(right), len(values))), bad


def _part(rows: npt.NDArray[np.uint8], start: int, dtype: str) -> IntArray:
    return np.ascontiguousarray(rows[:, start : start + np.dtype(dtype).itemsize]).view(dtype)[:, 0].astype(np.int64)


def _sound(rows: npt.NDArray[np.uint8]) -> BoolArray:
    return np.zeros(len(rows), np.bool_)


def _plain(kind: str, rows: npt.NDArray[np.uint8]) -> Made:
    values = np.ascontiguousarray(rows).view(_DTYPES.get(kind, ">i8"))[:, 0]
    return array_of(values.astype(values.dtype.newbyteorder("="))), _sound(rows)


def _boolean(kind: str, rows: npt.NDArray[np.uint8]) -> Made:
    return truths(rows[:, 0] != 0), _sound(rows)


def _micros(of: pa.DataType, values: IntArray, scale: int) -> Made:
    outside = (values > _MAX_MICROS // scale) | (values < -(_MAX_MICROS // scale))
    return numbers(of, np.where(outside, 0, values) * scale), outside


def _moment(kind: str, rows: npt.NDArray[np.uint8]) -> Made:
    return _micros(_UTC, _part(rows, 0, ">i8"), 1000)


def _time(kind: str, rows: npt.NDArray[np.uint8]) -> Made:
    return _micros(pa.int64(), _part(rows, 0, ">i8"), 1_000_000)


def _instant(kind: str, rows: npt.NDArray[np.uint8]) -> Made:
    seconds, nanos = _part(rows, 0, ">i8"), _part(rows, 8, ">i4")
    outside = (np.abs(seconds) >= _MAX_MICROS // 1_000_000) | (seconds == -(1 << 63))
    return numbers(_UTC, np.where(outside, 0, seconds) * 1_000_000 + nanos // 1000), outside


def _local_date(kind: str, rows: npt.NDArray[np.uint8]) -> Made:
    days = _part(rows, 0, ">i8")
    narrow = days.astype(np.int32)
    return array_of(narrow).view(pa.date32()), np.asarray(narrow != days)


def _local_date_time(kind: str, rows: npt.NDArray[np.uint8]) -> Made:
    days, nanos = _part(rows, 0, ">i8"), _part(rows, 8, ">i8")
    outside = (days > _MAX_MICROS // _DAY_MICROS - 1) | (days < 1 - _MAX_MICROS // _DAY_MICROS)
    return numbers(_LOCAL, np.where(outside, 0, days) * _DAY_MICROS + nanos // 1000), outside


_MAKERS: dict[str, Callable[[str, npt.NDArray[np.uint8]], Made]] = {
    "BOOLEAN": _boolean,
    "DATE": _moment,
    "TIMESTAMP": _moment,
    "TIME": _time,
    "INSTANT": _instant,
    "LOCAL_DATE": _local_date,
    "LOCAL_DATE_TIME": _local_date_time,
}
