"""Values that can't be shown: rows whose buffers are malformed, and rows that Python has no value for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.storage.arrays import numbers_in

_WITH_OFFSETS = {pa.binary(): np.int32, pa.string(): np.int32, pa.large_binary(): np.int64, pa.large_string(): np.int64}


def shown_values(data: pa.Array | pa.RecordBatch, damaged: dict[int, str]) -> tuple[list[Any], dict[int, str]]:
    """Return the rows as Python has them, None for those that it can't have, and the reasons for these."""
    if not damaged:
        try:
            return data.to_pylist(), {}
        except (ValueError, OverflowError, LookupError, pa.ArrowException):
            pass
    values, hidden = [], dict(damaged)
    for row in range(len(data) if isinstance(data, pa.Array) else data.num_rows):
        value = None
        if row not in damaged:
            try:
                [value] = data.slice(row, 1).to_pylist()
            except (ValueError, OverflowError, LookupError, pa.ArrowException) as error:
                hidden[row] = reason(error)
        values.append(value)
    return values, hidden


def damaged_rows(data: pa.RecordBatch) -> dict[int, str]:
    """Return the rows whose buffers are malformed, with the reason.

    Whether text is UTF-8 is no matter of its buffers: it shows when the text is made.
    """
    found: dict[int, str] = {}
    for name, column in zip(data.schema.names, data.columns, strict=True):
        try:
            check_memory(column)
        except pa.ArrowException as whole:
            before = len(found)
            for row in range(len(column)):
                try:
                    check_memory(column.slice(row, 1))
                except pa.ArrowException as error:
                    found.setdefault(row, f"column {name}: {reason(error)}")
            if len(found) == before:  # the damage is in none of them alone
                found |= {row: f"column {name}: {reason(whole)}" for row in range(len(column))}
    return found


def check_memory(column: pa.Array) -> None:
    """Raise pyarrow's error if a column, which may be a slice, points beyond its data; other rows don't matter."""
    column.validate()
    kind = column.type
    if column.null_count == len(column):
        return
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            check_memory(column.field(number))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = numbers_in(column.offsets)
        parts = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        _check_offsets(offsets, len(parts[0]))
        for part in parts:
            check_memory(part.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
    elif kind in _WITH_OFFSETS:
        _, ends, data = column.buffers()
        offsets = np.frombuffer(ends, _WITH_OFFSETS[kind])[column.offset : column.offset + len(column) + 1]
        _check_offsets(offsets, 0 if data is None else data.size)


def _check_offsets(offsets: npt.NDArray[np.signedinteger[Any]], size: int) -> None:
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise pa.ArrowInvalid(f"an offset lies beyond its data, which ends at {size}")


def reason(error: Exception) -> str:
    """Return an error as a part of a sentence."""
    return f"{type(error).__name__}: {error}".rstrip(".")
