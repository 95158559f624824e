"""Checks of bytes that another program wrote: a correct checksum doesn't make them well-formed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.storage.arrays import numbers_in

_WITH_OFFSETS = {pa.binary(): np.int32, pa.string(): np.int32, pa.large_binary(): np.int64, pa.large_string(): np.int64}
_FEW = 256
"""Up to this many rows (inclusive) Arrow's full check, UTF-8 included, is faster than ``check_memory``."""
_RECORD_BATCH = 3
_PREFIX = 8
_FREE_BYTES = 64 << 20
_RATIO = 1032


def most_bytes(compressed: int) -> int:
    """Return the largest accepted size of decompressed data, inclusive.

    1,032 is the largest ratio of gzip. Better codecs reach more with repetitive data, so 64 MiB are always accepted.
    Arrays end at 2 GiB.
    """
    return min(_FREE_BYTES + _RATIO * compressed, (1 << 31) - 1)


def check_rows(rows: pa.RecordBatch) -> None:
    """Raise pyarrow's error if a column points beyond its data: its values would be foreign memory.

    Text that is not UTF-8 is accepted.
    """
    if rows.num_rows <= _FEW:
        try:
            rows.validate(full=True)
        except pa.ArrowException:
            pass
        else:
            return
    for column in rows.columns:
        check_memory(column)


def check_memory(column: pa.Array) -> None:
    """Raise pyarrow's error if a column points beyond its data. Of a slice, only its own rows are checked."""
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
        width = np.dtype(_WITH_OFFSETS[kind]).itemsize  # the buffer may end with padding
        offsets = np.frombuffer(ends, _WITH_OFFSETS[kind], len(column) + 1, column.offset * width)
        _check_offsets(offsets, 0 if data is None else data.size)


def _check_offsets(offsets: npt.NDArray[np.signedinteger[Any]], size: int) -> None:
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise pa.ArrowInvalid(f"an offset lies beyond its data, which ends at {size}")


def first_odd(data: pa.Buffer, starts: Sequence[int]) -> int | None:
    """Return the index of the first Arrow message that is no record batch, or a compressed one; None if there is none.

    Our writers never compress entries, and a compressed body could decompress to any size. All messages are parsed at
    once, as there may be thousands of small ones.
    """
    whole = np.frombuffer(data, np.uint8)
    at = np.asarray(starts, np.int64)
    with np.errstate(over="ignore"):
        marker = _number(whole, at, 4)
        message = at + _PREFIX + _number(whole, at + _PREFIX, 4)
        kind = _field(whole, message, 1)
        sort = np.where(kind > 0, _number(whole, message + kind, 1), 0)
        header = _field(whole, message, 2)
        batch = message + header + _number(whole, message + header, 4)
        plain = (marker == 0xFFFFFFFF) & (sort == _RECORD_BATCH) & (header > 0) & (_field(whole, batch, 3) == 0)
    return None if plain.all() else int(np.argmin(plain))


def _field(whole: npt.NDArray[np.uint8], table: npt.NDArray[np.int64], number: int) -> npt.NDArray[np.int64]:
    """Return a field's offset from the start of each flatbuffer table; 0 where the table lacks the field."""
    known = table - _number(whole, table, 4).astype(np.uint32).view(np.int32)
    place = 4 + 2 * number
    there = _number(whole, known, 2) >= place + 2
    return np.where(there, _number(whole, known + place, 2), 0)


def _number(whole: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """Return unsigned little-endian numbers of ``width`` bytes; a position outside reads the nearest byte."""
    found = np.zeros(len(at), np.int64)
    for byte in range(width):
        found |= whole.take(at + byte, mode="clip").astype(np.int64) << (8 * byte)
    return found
