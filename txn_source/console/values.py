"""Values of messages as JSON: shortened, since a message may have 256 MiB, and so that a browser shows them exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

SHORT = 2_000
"""So many characters, or bytes, of a value are shown in lists."""
WHOLE = 4 << 20
"""And of a message that is looked at alone."""
_EXACT = 1 << 53


def columns_of(batch: pa.RecordBatch, most: int) -> tuple[dict[str, list[Any]], list[bool]]:
    """Return a batch's values as JSON by column, and which rows were shortened."""
    shortened = [False] * batch.num_rows
    found = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = []
        for row, value in enumerate(_taken(column, most + 1)):
            shown, was_cut = shown_value(value, most)
            shortened[row] = shortened[row] or was_cut
            values.append(shown)
        found[name] = values
    return found, shortened


def shown_value(value: Any, most: int) -> tuple[Any, bool]:
    """Return a value as JSON, and whether it was shortened to ``most`` characters or bytes."""
    if isinstance(value, bytes):
        cut = value[:most]
        return _bytes(cut, whole=len(cut) == len(value)), len(value) > most
    if isinstance(value, str):
        return value[:most], len(value) > most
    shown = plain(value)
    if isinstance(shown, dict | list):
        text = str(shown)
        if len(text) > most:
            return text[:most], True
    return shown, False


def plain(value: Any) -> Any:
    """Return a value in JSON's types. Whole numbers that a browser can't hold are texts, bytes that are no UTF-8
    ``{"hex": ...}``, times ISO 8601, durations seconds, and numbers that JSON doesn't have texts."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) <= _EXACT else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return _bytes(value, whole=True)
        case date():  # datetimes too
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return str(value)


def _bytes(value: bytes, *, whole: bool) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        if not whole and len(value) - error.start < 4 and error.reason == "unexpected end of data":
            return value[: error.start].decode()  # cut in the middle of a character
        return {"hex": value.hex()}


def _taken(column: pa.Array, most: int) -> list[Any]:
    """Return a column's values; of long texts and bytes no more than their beginnings are made objects of Python."""
    kind = column.type
    if types.is_binary(kind) or types.is_large_binary(kind):
        column = pc.binary_slice(column, 0, most)
    elif types.is_string(kind) or types.is_large_string(kind):
        column = pc.utf8_slice_codeunits(column, 0, most)
    elif types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.string())  # Python's datetime ends at microseconds
    elif types.is_map(kind) and types.is_string(kind.key_type):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):  # such as a time after the year 9999
        return [_one(item) for item in column]


def _one(item: pa.Scalar) -> Any:
    try:
        return item.as_py()
    except (ValueError, OverflowError):
        return str(item.cast(pa.string())) if not types.is_nested(item.type) else str(item)
