"""Arrow's arrays from numpy's and from texts, and back, by way of their buffers.

``pa.array`` and ``to_numpy`` import pandas where it is installed, which takes about a second. What plans, reads and
writes files does without them: Spark starts several Python processes for each query, and each of them would pay for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_TYPES = {np.dtype(name): getattr(pa, name)() for name in ("int8", "int16", "int32", "int64", "float32", "float64")}
_DTYPES = {arrow: dtype for dtype, arrow in _TYPES.items()}


def numbers_in(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return a column of numbers without nulls. Where it is one chunk it isn't copied, and can't be written to.

    Raises:
        ValueError: there are nulls, or no numbers.
    """
    dtype = _DTYPES.get(column.type)
    if dtype is None or column.null_count:
        raise ValueError(f"a column of {column.type} with {column.null_count} nulls is none of numbers alone")
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize)
        for chunk in chunks
        if len(chunk)
    ]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def numbers_or(column: pa.Array, default: float) -> npt.NDArray[Any]:
    """Return a column of numbers as a copy, with a number of its own for nulls."""
    bare = pa.Array.from_buffers(column.type, len(column), [None, column.buffers()[1]], offset=column.offset)
    return np.where(truths_in(column.is_valid()), numbers_in(bare), default).astype(_DTYPES[column.type])


def truths_in(column: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return a column of truths without nulls, as a copy.

    Raises:
        ValueError: there are nulls, or no truths.
    """
    if column.type != pa.bool_() or column.null_count:
        raise ValueError(f"a column of {column.type} with {column.null_count} nulls is none of truths alone")
    bits = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    first = column.offset
    return np.unpackbits(bits, count=first + len(column), bitorder="little")[first:].astype(np.bool_)


def array_of(values: npt.NDArray[Any]) -> pa.Array:
    """Return an array of numbers, which shares their memory, or of truths."""
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])
    return pa.Array.from_buffers(_TYPES[values.dtype], len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def binary_of(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Return an array of bytes, of which some may be null."""
    known: Sequence[Any] = values
    valid = None
    if nulls := values.count(None):
        if nulls == len(values):
            return pa.nulls(nulls, pa.binary())
        known = [value or b"" for value in values]
        valid = _bits(np.array([value is not None for value in values], np.bool_))
    offsets = np.fromiter(accumulate(map(len, known), initial=0), np.int32, len(known) + 1)
    return pa.Array.from_buffers(pa.binary(), len(known), [valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(known))])


def texts_of(values: Sequence[str | None]) -> pa.StringArray:
    """Return an array of texts, of which some may be null."""
    return binary_of([None if value is None else value.encode() for value in values]).view(pa.string())


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
