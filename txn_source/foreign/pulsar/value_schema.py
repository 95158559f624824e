"""What keys and values are by a topic's schema, and how they become columns with types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txn_source.foreign.pulsar.avro_resolution import resolved
from txn_source.foreign.pulsar.avro_types import AvroType
from txn_source.foreign.pulsar.avro_values import decode_avro, spread
from txn_source.foreign.pulsar.columns import slices, taken
from txn_source.foreign.pulsar.json_values import decode_json
from txn_source.foreign.pulsar.primitive_values import TYPES, decode_primitive
from txn_source.foreign.pulsar.wire import ByteArray, big_endian
from txn_source.model.errors import SchemaMismatchError
from txn_source.model.visibility import BoolArray, IntArray

ANY_VERSION = -1
"""Of a schema that is given without its version: it is that of all messages. In messages: none is said."""
AVRO, JSON, BYTES, KEY_VALUE = "AVRO", "JSON", "BYTES", "KEY_VALUE"


@dataclass(frozen=True, slots=True)
class PartSchema:
    """The schema of a key or a value: its kind as Pulsar names it, and for Avro and JSON the type of each version."""

    kind: str
    versions: tuple[tuple[int, AvroType], ...] = ()

    @property
    def newest(self) -> AvroType:
        return max(self.versions, key=lambda version: version[0])[1]

    @property
    def arrow(self) -> pa.DataType:
        """The column's type."""
        if self.kind == AVRO:
            return self.newest.arrow
        return self.newest.json if self.kind == JSON else TYPES.get(self.kind, pa.binary())

    def decode(self, values: pa.Array, versions: IntArray) -> tuple[pa.Array, BoolArray]:
        """Return values with their type, null where they are, and which of them can't be decoded.

        Args:
            values: bytes.
            versions: of each, the version of the schema that it was written with; below 0 if it doesn't say.

        Raises:
            SchemaMismatchError: one was written with a version that isn't known, or can't be read as the newest.
        """
        if self.kind not in (AVRO, JSON) and self.kind not in TYPES:
            return values, np.zeros(len(values), np.bool_)
        there = np.flatnonzero(np.array(_valid(values)))
        if len(there) == len(values):
            return self._decode(values, versions)
        found, bad = self._decode(taken(values, there), versions[there])
        all_bad = np.zeros(len(values), np.bool_)
        all_bad[there] = bad
        return spread(found, there, len(values)), all_bad

    def _decode(self, values: pa.Array, versions: IntArray) -> tuple[pa.Array, BoolArray]:
        if not len(values):
            return pa.nulls(0, self.arrow), np.zeros(0, np.bool_)
        if self.kind == JSON:
            return decode_json(self.newest, values)
        if self.kind != AVRO:
            return decode_primitive(self.kind, values)
        data, starts, ends = parts_of(values)
        known = dict(self.versions)
        written, newest = np.unique(versions).tolist(), self.newest
        if len(written) == 1:
            found, bad = decode_avro(self._writer(known, written[0]), data, starts, ends)
            return resolved(found, self._writer(known, written[0]), newest), bad
        parts, order = [], []
        bad = np.zeros(len(values), np.bool_)
        for version in written:
            rows, writer = np.flatnonzero(versions == version), self._writer(known, version)
            found, bad[rows] = decode_avro(writer, data, starts[rows], ends[rows])
            parts.append(resolved(found, writer, newest))
            order.append(rows)
        return taken(pa.concat_arrays(parts), np.argsort(np.concatenate(order), kind="stable")), bad

    def _writer(self, known: dict[int, AvroType], version: int) -> AvroType:
        """Return the type of a version; what says none was written with the newest one."""
        if version < 0 or ANY_VERSION in known:
            return self.newest
        if version not in known:
            raise SchemaMismatchError(
                f"Messages were written with version {version} of the schema, and only {', '.join(map(str, known))}"
                " is given.",
                "Give all versions in the option 'schema' (`pulsar-admin schemas get --all-version`).",
            )
        return known[version]


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """The schema of a topic. ``key`` is None but for pairs; ``inline`` pairs lie in the payload, as ``value``.

    ``bad_as_null``: what can't be decoded is null; else a read ends there.
    """

    value: PartSchema
    key: PartSchema | None = None
    inline: bool = False
    bad_as_null: bool = False

    def types(self) -> dict[str, pa.DataType]:
        """Return the types of the columns ``key`` and ``value``."""
        if self.key is None:
            return {"value": self.value.arrow}
        if self.inline:
            return {"value": pa.struct([("key", self.key.arrow), ("value", self.value.arrow)])}
        return {"key": self.key.arrow, "value": self.value.arrow}

    def typed_key(self) -> PartSchema | None:
        """Return what the messages' own keys are; None: bytes."""
        return None if self.inline else self.key

    def decode_value(self, values: pa.Array, versions: IntArray) -> tuple[pa.Array, BoolArray]:
        """Return values; see ``PartSchema.decode``."""
        if not self.inline or self.key is None:
            return self.value.decode(values, versions)
        there = np.flatnonzero(np.array(_valid(values)))
        bare = taken(values, there)
        keys, rest, bad = _pairs(bare)
        key, bad_key = self.key.decode(keys, versions[there])
        value, bad_value = self.value.decode(rest, versions[there])
        pairs = pa.StructArray.from_arrays([key, value], fields=list(self.types()["value"]))
        all_bad = np.zeros(len(values), np.bool_)
        all_bad[there] = bad | bad_key | bad_value
        return (pairs if len(there) == len(values) else spread(pairs, there, len(values))), all_bad


Decode = Callable[[pa.Array, IntArray], tuple[pa.Array, BoolArray]]


def parts_of(values: pa.Array) -> tuple[ByteArray, IntArray, IntArray]:
    """Return the bytes of binary values, and where each begins and ends in them."""
    if not len(values):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    edges = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    return np.frombuffer(values.buffers()[2] or b"", np.uint8), edges[:-1], edges[1:]


def _pairs(values: pa.Array) -> tuple[pa.Array, pa.Array, BoolArray]:
    """Take pairs apart: each part has its length before it, -1 for null; say which values aren't pairs."""
    data, starts, ends = parts_of(values)
    at, bad = starts, np.zeros(len(values), np.bool_)
    found = []
    for _ in range(2):
        sizes = big_endian(data, at, 4).astype(np.int32).astype(np.int64) if len(data) else np.zeros(len(at), np.int64)
        begin = at + 4
        wrong = (begin > ends) | (sizes < -1) | (sizes > ends - begin)
        bad |= wrong
        begin, sizes = np.where(wrong, ends, begin), np.where(wrong, -1, sizes)
        at = begin + np.maximum(sizes, 0)
        found.append(slices(data, begin, at, sizes >= 0))
    return found[0], found[1], bad | (at != ends)


def _valid(values: pa.Array) -> BoolArray:
    bits = values.buffers()[0]
    if not values.null_count or bits is None:
        return np.ones(len(values), np.bool_)
    flags = np.frombuffer(bits, np.uint8)
    return np.unpackbits(flags, count=values.offset + len(values), bitorder="little")[values.offset :].astype(np.bool_)
