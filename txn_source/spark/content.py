"""A hash of the rows of a write: it distinguishes a repetition of the same rows from a write of others.

It depends neither on the order of the rows nor on how they are divided among tasks, since Spark may do both anew when
it repeats a batch: it is the sum of one number for each row, to which each value adds by its column's name, its place
in a list, and the checksum of its bytes. Two writes that differ have the same hash by a chance of about 1 in 2^32; it
is no protection from somebody who looks for two.
"""

from __future__ import annotations

import zlib
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from txn_source.model.spark_commit import CONTENT_MASK

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]
_NUMBERS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def content_of(batch: pa.RecordBatch) -> int:
    """Return the hash of a batch, below 2^63. The hash of several batches is the sum of theirs, masked."""
    names = [zlib.crc32(name.encode()) for name in batch.schema.names]
    return int(_joined(names, batch.columns, batch.num_rows).sum()) & CONTENT_MASK


def _joined(names: list[int], columns: list[pa.Array], rows: int) -> Hashes:
    """Return a hash for each row of some columns, or for each struct of its fields."""
    found = np.zeros(rows, np.uint64)
    for name, column in zip(names, columns, strict=True):
        found = found + _mixed(_of(column) + _mixed(np.array([name], np.uint64)))
    return _mixed(found)


def _of(column: pa.Array) -> Hashes:
    """Return a hash for each value."""
    kind, rows = column.type, len(column)
    if not rows:
        return np.zeros(0, np.uint64)
    if isinstance(column, pa.ExtensionArray):
        return _of(column.storage)
    if pa.types.is_dictionary(kind):
        return _of(column.dictionary_decode())
    if pa.types.is_null(kind):
        return np.zeros(rows, np.uint64)
    if pa.types.is_struct(kind):
        names = [zlib.crc32(kind.field(n).name.encode()) for n in range(kind.num_fields)]
        found = _joined(names, column.flatten(), rows)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        found = _of_lists(column)
    elif pa.types.is_fixed_size_list(kind):
        return _of(column.cast(pa.list_(kind.value_field)))
    elif pa.types.is_boolean(kind):
        found = _mixed(column.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets = np.frombuffer(column.buffers()[1], np.int32, rows + 1, 4 * column.offset)
        found = _of_bytes(offsets.tolist(), column.buffers()[2])
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        found = _of(column.cast(pa.binary()))
    elif kind.bit_width in _NUMBERS:  # numbers and times
        start = column.offset * kind.bit_width // 8
        found = _mixed(np.frombuffer(column.buffers()[1], _NUMBERS[kind.bit_width], rows, start))
    else:  # decimals, and bytes of a fixed length
        width = kind.bit_width // 8
        found = _of_bytes([(row + column.offset) * width for row in range(rows + 1)], column.buffers()[1])
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return found


def _of_lists(column: pa.Array) -> Hashes:
    """Return a hash for each list, of its items and their places; of a map, of its entries in their order."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    if pa.types.is_map(column.type):
        return _sums(offsets, _joined([0, 1], [column.keys, column.items], len(column.keys)))
    return _sums(offsets, _of(column.values))


def _of_bytes(offsets: list[int], data: pa.Buffer | None) -> Hashes:
    """Return a hash for each run of bytes from one offset to the next."""
    view = memoryview(b"" if data is None else data)
    found = [crc32c(view[a:b]) for a, b in pairwise(offsets)]
    return _mixed(np.array(found, np.uint64) + (np.diff(offsets).astype(np.uint64) << np.uint64(32)))


def _sums(offsets: Offsets, items: Hashes) -> Hashes:
    """Return a hash for each run of items from one offset to the next, of the items and their places in it."""
    counts = np.diff(offsets)
    found = np.zeros(len(counts), np.uint64)
    full = counts > 0
    if full.any():
        first, last = int(offsets[0]), int(offsets[-1])
        places = np.arange(first, last) - np.repeat(offsets[:-1], counts)
        weighed = items[first:last] * (_mixed(places.astype(np.uint64)) | np.uint64(1))
        found[full] = np.add.reduceat(weighed, (offsets[:-1] - first)[full])
    return _mixed(found + counts.astype(np.uint64))


def _mixed(values: Hashes) -> Hashes:
    """Return numbers in which each bit depends on all of those that are given (the end of SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = np.asarray(values, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))
