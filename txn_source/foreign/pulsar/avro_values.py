"""Avro's binary encoding for many values at once: one step decodes the next part of all of them.

An encoded value has no lengths of its own parts, so each part is found behind the one before; but all values of a
batch have the same parts in the same order, and a part of all of them is a few operations of numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.foreign.pulsar.avro_types import AvroType
from txn_source.foreign.pulsar.columns import numbers, slices, taken, truths
from txn_source.foreign.pulsar.wire import ByteArray, varints
from txn_source.model.visibility import BoolArray, IntArray
from txn_source.storage.arrays import array_of

_MICROS = {"timestamp-millis": 1000, "local-timestamp-millis": 1000}
_MAX_MICROS = (1 << 63) - 1


def decode_avro(of: AvroType, data: ByteArray, starts: IntArray, ends: IntArray) -> tuple[pa.Array, BoolArray]:
    """Return values of a type, and which of them can't be decoded; these have a value that means nothing.

    Args:
        of: the type that they were written with.
        data: bytes; the values lie inside, at places that never go back.
        starts: where each begins.
        ends: where it ends, exclusive; nothing may be left there.
    """
    decoder = _Decoder(data if len(data) else np.zeros(1, np.uint8), starts, ends)
    array, at = decoder.take(of, np.arange(len(starts)), starts)
    return array, decoder.bad | (at != ends)


class _Decoder:
    """Decodes values; ``rows`` are the numbers of those that a step is about, ``at`` where it begins in each."""

    def __init__(self, data: ByteArray, starts: IntArray, ends: IntArray) -> None:
        self._data = data
        self._ends = ends
        self._items_left = ends - starts  # nested arrays could have any number of items without bytes
        self.bad: BoolArray = np.zeros(len(ends), np.bool_)

    def take(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        """Return a part of some values, and where it ends in each."""
        if of.kind == "null":
            return pa.nulls(len(rows)), at
        return getattr(self, f"_{of.kind}")(of, rows, at)  # type: ignore[no-any-return]

    def _fail(self, rows: IntArray, where: BoolArray) -> None:
        self.bad[rows[where]] = True

    def _integers(self, rows: IntArray, at: IntArray) -> tuple[IntArray, IntArray]:
        """Return zigzag integers; 0, and no way on, where there is none."""
        coded, after, sound = varints(self._data, at)
        bare = coded.view(np.uint64)
        values = (bare >> np.uint64(1)).view(np.int64) ^ -(coded & 1)
        sound &= after <= self._ends[rows]
        if not sound.all():
            self._fail(rows, ~sound)
            values, after = np.where(sound, values, 0), np.where(sound, after, at)
        return values, after

    def _fixed_width(self, rows: IntArray, at: IntArray, width: int) -> tuple[npt.NDArray[np.uint8], IntArray]:
        """Return so many bytes of each."""
        after = at + width
        short = after > self._ends[rows]
        if short.any():
            self._fail(rows, short)
            after = np.where(short, at, after)
        return self._data.take(at[:, None] + np.arange(width), mode="clip"), after

    def _boolean(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        values, after = self._fixed_width(rows, at, 1)
        self._fail(rows, values[:, 0] > 1)
        return truths(values[:, 0] == 1), after

    def _int(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        values, after = self._integers(rows, at)
        narrow = values.astype(np.int32)
        self._fail(rows, narrow != values)
        return array_of(narrow).view(of.arrow), after

    def _long(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        values, after = self._integers(rows, at)
        if (scale := _MICROS.get(of.logical or "", 1)) > 1:
            self._fail(rows, (values > _MAX_MICROS // scale) | (values < -(_MAX_MICROS // scale)))
            values = values * scale
        return array_of(values).view(of.arrow), after

    def _float(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        values, after = self._fixed_width(rows, at, 4)
        return array_of(values.view("<f4")[:, 0]), after

    def _double(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        values, after = self._fixed_width(rows, at, 8)
        return array_of(values.view("<f8")[:, 0]), after

    def _pieces(self, rows: IntArray, begin: IntArray, sizes: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        """Return bytes of sizes; where there are too few, none, and no way on."""
        outside = (sizes < 0) | (sizes > self._ends[rows] - begin)
        if outside.any():
            self._fail(rows, outside)
            begin, sizes, at = np.where(outside, at, begin), np.where(outside, 0, sizes), at
        after = begin + sizes
        return slices(self._data, begin, after, np.ones(len(rows), np.bool_)), after

    def _bytes(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        sizes, begin = self._integers(rows, at)
        found, after = self._pieces(rows, begin, sizes, at)
        return (self._decimals(of, rows, found) if of.logical else found), after

    def _fixed(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        found, after = self._pieces(rows, at, np.full(len(rows), of.size, np.int64), at)
        return (self._decimals(of, rows, found) if of.logical else found), after

    def _decimals(self, of: AvroType, rows: IntArray, found: pa.Array) -> pa.Array:
        """Return decimals from their unscaled values, in two's complement."""
        values = [int.from_bytes(item, "big", signed=True) for item in found.to_pylist()]
        limit = 10**of.arrow.precision
        wrong = np.array([abs(value) >= limit for value in values], np.bool_)
        self._fail(rows, wrong)
        kept = (0 if bad else value for value, bad in zip(values, wrong.tolist(), strict=True))
        data = b"".join(value.to_bytes(16, "little", signed=True) for value in kept)
        return pa.Array.from_buffers(of.arrow, len(values), [None, pa.py_buffer(data)])

    def _string(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        sizes, begin = self._integers(rows, at)
        found, after = self._pieces(rows, begin, sizes, at)
        return self._texts(rows, found), after

    def _texts(self, rows: IntArray, found: pa.Array) -> pa.Array:
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([_is_no_text(item) for item in found.to_pylist()], np.bool_)
            self._fail(rows, wrong)
            kept = np.zeros(len(rows), np.int64)
            kept[~wrong] = np.flatnonzero(~wrong)
            return found.take(numbers(pa.int64(), kept, ~wrong)).cast(pa.string())

    def _enum(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        values, after = self._integers(rows, at)
        unknown = (values < 0) | (values >= len(of.symbols))
        self._fail(rows, unknown)
        words = [symbol.encode() for symbol in (*of.symbols, "")]
        offsets = np.concatenate(([0], np.cumsum([len(word) for word in words]))).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(words))]
        return taken(
            pa.Array.from_buffers(pa.string(), len(words), buffers), np.where(unknown, len(of.symbols), values)
        ), after

    def _optional(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        assert of.items is not None
        branch, after = self._integers(rows, at)
        self._fail(rows, (branch != 0) & (branch != 1))
        there = np.flatnonzero((branch != of.null_at) & ~self.bad[rows])
        found, ended = self.take(of.items, rows[there], after[there])
        if len(there) == len(rows):
            return found, ended
        after = after.copy()
        after[there] = ended
        return spread(found, there, len(rows)), after

    def _record(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        arrays = []
        for field in of.fields:
            array, at = self.take(field.of, rows, at)
            arrays.append(array)
        if not arrays:
            return pa.StructArray.from_buffers(of.arrow, len(rows), [None]), at
        return pa.StructArray.from_arrays(arrays, fields=list(of.arrow)), at

    def _array(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        assert of.items is not None
        owners, [items], after = self._items([of.items], rows, at)
        edges = _edges(owners, len(rows))
        return pa.Array.from_buffers(of.arrow, len(rows), [None, edges], children=[items]), after

    def _map(self, of: AvroType, rows: IntArray, at: IntArray) -> tuple[pa.Array, IntArray]:
        assert of.items is not None
        owners, parts, after = self._items([AvroType("string", pa.string()), of.items], rows, at)
        entry = of.arrow.key_field, of.arrow.item_field
        keys = parts[0]
        if keys.null_count:
            keys = keys.fill_null("")
        pairs = pa.StructArray.from_arrays([keys, parts[1]], fields=list(entry))
        edges = _edges(owners, len(rows))
        return pa.Array.from_buffers(of.arrow, len(rows), [None, edges], children=[pairs]), after

    def _items(self, of: list[AvroType], rows: IntArray, at: IntArray) -> tuple[IntArray, list[pa.Array], IntArray]:
        """Return items of arrays or maps, whose parts have types, in their order: whose they are, and the parts.

        They come in blocks, each with its count; a block of 0 is the last one.
        """
        at = at.copy()
        owners: list[IntArray] = []
        found: list[list[pa.Array]] = [[] for _ in of]
        open_ = np.arange(len(rows))
        while len(open_):
            counts, after = self._integers(rows[open_], at[open_])
            if (sized := counts < 0).any():
                _, behind = self._integers(rows[open_[sized]], after[sized])
                after[sized], counts = behind, np.abs(counts)
            at[open_] = after
            self._fail(rows[open_], (counts < 0) | (counts > self._ends[rows[open_]] - after))
            np.subtract.at(self._items_left, rows[open_], np.where(self.bad[rows[open_]], 0, counts))
            self._fail(rows[open_], self._items_left[rows[open_]] < 0)
            going = (counts > 0) & ~self.bad[rows[open_]]
            open_, left = open_[going], counts[going]
            now = open_
            while len(now):
                owners.append(now)
                for part, type_ in zip(found, of, strict=True):
                    array, at[now] = self.take(type_, rows[now], at[now])
                    part.append(array)
                left = left - 1
                more = (left > 0) & ~self.bad[rows[now]]
                now, left = now[more], left[more]
            open_ = open_[~self.bad[rows[open_]]]
        if not owners:
            return np.zeros(0, np.int64), [pa.nulls(0, type_.arrow) for type_ in of], at
        whose = np.concatenate(owners)
        joined = [pa.concat_arrays(part) for part in found]
        order = np.argsort(whose, kind="stable")
        return whose[order], [taken(array, order) for array in joined], at


def spread(found: pa.Array, rows: IntArray, count: int) -> pa.Array:
    """Return an array of so many items that has the found ones at their rows, and null elsewhere."""
    which, valid = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    which[rows], valid[rows] = np.arange(len(rows)), True
    return found.take(numbers(pa.int64(), which, valid)) if len(rows) else pa.nulls(count, found.type)


def _edges(owners: IntArray, count: int) -> pa.Buffer:
    edges: npt.NDArray[Any] = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=count))))
    return pa.py_buffer(edges.astype(np.int32))


def _is_no_text(data: bytes | None) -> bool:
    try:
        (data or b"").decode()
    except UnicodeDecodeError:
        return True
    return False
