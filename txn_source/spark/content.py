"""A sum over the rows of a write, by which a repetition with other rows shows.

It depends neither on the order of the rows nor on how they are divided among tasks, since Spark may do both anew when
it repeats a batch. It is cheap, and no proof: what it says is used for a warning.
"""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.compute as pc

from txn_source.model.spark_commit import CONTENT_MASK

_NULL = 0x9E3779B1
_WIDTHS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def content_of(batch: pa.RecordBatch) -> int:
    """Return the sum over a batch, below 2^63. Sums of batches are to be added, and masked."""
    total = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        weight = zlib.crc32(name.encode()) | 1
        total += weight * (_values(column) + _NULL * column.null_count)
    return total & CONTENT_MASK


def _values(column: pa.Array) -> int:
    """Return the sum of numbers and times as integers, and of the lengths of texts and bytes; 0 of anything else."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return pc.sum(pc.binary_length(column)).as_py() or 0
    if pa.types.is_boolean(kind):
        return pc.sum(column).as_py() or 0
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return pc.sum(column.view(_WIDTHS[kind.bit_width])).as_py() or 0 if kind.bit_width in _WIDTHS else 0
    return 0
