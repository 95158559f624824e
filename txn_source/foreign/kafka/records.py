"""Decodes the records of many batches to columns: numpy over all of them, no step for a record or a field of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.foreign.kafka.batch_headers import BatchHeaders
from txn_source.foreign.kafka.record_walk import HEAD, DamagedRecords, Walk, walk
from txn_source.foreign.kafka.varints import INT_BYTES, LONG_BYTES, Bytes, Flags, Ints, bytes_at, read_varints
from txn_source.model.errors import MessageUnreadableError
from txn_source.storage.arrays import array_of, texts_of

HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]), nullable=True)
)
COLUMNS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "__producer_id": pa.int64(),
    "__producer_epoch": pa.int16(),
    "__sequence": pa.int32(),
    "__leader_epoch": pa.int32(),
    "__txn_status": pa.string(),
    "__timestamp_ms": pa.int64(),
}
"""What can be asked for. ``topic`` and ``partition`` are constants that whoever reads a partition adds."""

STATUSES = ("committed", "aborted", "open")

_SAME_LENGTH_MAX = 4096
_MAX_SEQUENCE = (1 << 31) - 1
_MICROSECONDS = 1000
_TIME_MAX = ((1 << 63) - 1) // _MICROSECONDS


def decode(
    data: Bytes,
    headers: BatchHeaders,
    begins: Ints,
    ends: Ints,
    columns: Sequence[str],
    of: tuple[int, int],
    statuses: Ints | None = None,
) -> pa.RecordBatch:
    """Return the records of batches whose offsets lie in a range, with the columns asked for, in their order.

    Args:
        data: uncompressed records of all of them, less than 2 GiB, batch behind batch.
        headers: the batches' headers.
        begins: where the records of each begin in the data, inclusive.
        ends: where they end, exclusive.
        columns: names out of ``COLUMNS``.
        of: offsets, the first inclusive, the second exclusive.
        statuses: for ``__txn_status`` of each batch an index of ``STATUSES``, or -1 for null.

    Raises:
        DamagedRecords: the records of a batch don't fill it exactly, or are no records.
        MessageUnreadableError: a time is beyond what a column of times can hold.
    """
    reader = _Fields(data, headers, walk(data, begins, ends, headers["count"]), statuses)
    cut = bool(((headers["base_offset"] < of[0]) | (headers.last_offsets >= of[1])).any())
    reader.read(set(columns), cut)
    if cut:
        reader.keep((reader.offsets >= of[0]) & (reader.offsets < of[1]))
    arrays = [_MAKERS[name](reader) for name in columns]
    schema = pa.schema([(name, COLUMNS[name]) for name in columns])
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.nulls(len(reader.deltas), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Fields:
    """Where the fields of records lie, and the numbers among them; one element to a record."""

    def __init__(self, data: Bytes, headers: BatchHeaders, records: Walk, statuses: Ints | None) -> None:
        self.data = data
        self.headers = headers
        self._records = records
        self._ends = records.ends
        self._statuses = statuses
        self._counts = headers["count"]
        """How many records of each batch there are."""
        self.offsets: Ints
        self.times: Ints
        self.deltas: Ints
        self.key: tuple[Ints, Ints]
        self.value: tuple[Ints, Ints]
        self.header_counts: Ints
        self.header_begins: Ints

    def read(self, wanted: set[str], cut: bool) -> None:
        """Read from left to right as far as anything is wanted, and hold each end against the record's own."""
        key_lengths, key_begins = self._numbers()
        if cut or wanted & {"offset", "__sequence"}:
            last = self.of_batch("last_offset_delta")
            self._require((self.deltas >= 0) & (self.deltas <= last), "a record's offset lies outside of it")
            self.offsets = self.of_batch("base_offset") + self.deltas
        self.key, at = self._bytes(key_lengths, key_begins, "key")
        self.value, at = self._bytes(*read_varints(self.data, at, INT_BYTES), "value")
        if (at + 1 == self._ends).all() and not self.data.take(at).any():
            self.header_counts, self.header_begins = np.zeros(len(at), np.int64), self._ends
            return
        self.header_counts, self.header_begins = read_varints(self.data, at, INT_BYTES)
        bare = self.header_counts == 0
        sound = np.where(
            bare, self.header_begins == self._ends, self.header_begins + 2 * self.header_counts <= self._ends
        )
        self._require(sound & (self.header_counts >= 0), "a record's headers don't fit into it")

    def _numbers(self) -> tuple[Ints, Ints]:
        """Read both deltas; return the lengths of keys, and where keys begin. They mostly lie in the records' heads."""
        records = self._records
        own = np.arange(0, len(records.heads), HEAD)
        lengths, at = self._numbers_in(records.heads, records.bodies)
        if (at <= own + HEAD).all():
            return lengths, records.begins + (at - own)
        return self._numbers_in(self.data, records.begins + (records.bodies - own))

    def _numbers_in(self, data: Bytes, bodies: Ints) -> tuple[Ints, Ints]:
        self.times, at = read_varints(data, bodies + 1, LONG_BYTES)
        self.deltas, at = read_varints(data, at, INT_BYTES)
        return read_varints(data, at, INT_BYTES)

    def _bytes(self, lengths: Ints, begins: Ints, what: str) -> tuple[tuple[Ints, Ints], Ints]:
        """Return lengths, -1 for null, and places of bytes, and where they end."""
        ends = begins + np.maximum(lengths, 0)
        self._require((lengths >= -1) & (ends < self._ends), f"a record's {what} doesn't fit into it")
        return (lengths, begins), ends

    def _require(self, sound: Flags, why: str) -> None:
        if not sound.all():
            raise DamagedRecords(self._batch_of(int(np.argmin(sound))), why)

    def _batch_of(self, record: int) -> int:
        return int(np.searchsorted(np.cumsum(self._counts), record, side="right"))

    def keep(self, which: Flags) -> None:
        """Go on with some of the records only."""
        batch = np.repeat(np.arange(len(self._counts)), self._counts)[which]
        self._counts = np.bincount(batch, minlength=len(self._counts))
        self.offsets, self.times, self.deltas = (of[which] for of in (self.offsets, self.times, self.deltas))
        self.key = self.key[0][which], self.key[1][which]
        self.value = self.value[0][which], self.value[1][which]
        self.header_counts, self.header_begins = self.header_counts[which], self.header_begins[which]
        self._ends = self._ends[which]

    def of_batch(self, name: str) -> Ints:
        """Return a field of the batch's header for each record."""
        return self.repeated(self.headers[name])

    def repeated(self, of_batches: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what each batch has for each record."""
        return np.repeat(of_batches, self._counts)

    def milliseconds(self) -> Ints:
        """A record's own time, or its batch's."""
        own = self.of_batch("base_timestamp") + self.times
        append_time = self.headers.has_append_time
        return np.where(self.repeated(append_time), self.of_batch("max_timestamp"), own) if append_time.any() else own

    def timestamps(self) -> pa.Array:
        """The same in microseconds."""
        millis = self.milliseconds()
        if len(millis) and (millis.max() > _TIME_MAX or millis.min() < -_TIME_MAX):
            wrong = np.flatnonzero((millis > _TIME_MAX) | (millis < -_TIME_MAX))
            offset = self.of_batch("base_offset")[wrong[0]] + self.deltas[wrong[0]]
            raise MessageUnreadableError(
                f"The time of the record at offset {offset} is {millis[wrong[0]]} ms: no column of times holds that.",
                "Leave the column timestamp out, or that offset.",
            )
        return array_of(millis * _MICROSECONDS).cast(COLUMNS["timestamp"])

    def sequences(self) -> pa.Array:
        """Sequence numbers begin again at 0 behind the largest; -1 where the producer gives none."""
        base = self.of_batch("base_sequence")
        return array_of(np.where(base < 0, -1, (base + self.deltas) & _MAX_SEQUENCE).astype(np.int32))

    def statuses(self) -> pa.Array:
        """How each record's transaction ended; null where it has none."""
        known = np.full(len(self.headers), -1) if self._statuses is None else self._statuses
        texts = texts_of([*STATUSES, None])
        return texts.take(array_of(self.repeated(np.where(known < 0, len(STATUSES), known).astype(np.int64))))

    def record_headers(self) -> pa.Array:
        """Lists of names and values, null where a record has none, as Spark's own source has it."""
        total = int(self.header_counts.sum())
        if total == 0:
            at = self.header_begins
            names: pa.Array = pa.nulls(0, pa.string())
            values: pa.Array = pa.nulls(0, pa.binary())
        else:
            at, names, values = self._all_headers(total)
        self._require(at == self._ends, "a record's headers don't fill it")
        offsets = np.zeros(len(at) + 1, np.int32)
        if total:
            np.cumsum(self.header_counts, out=offsets[1:])
        elements = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
        bitmap = None if total and (self.header_counts > 0).all() else _bitmap(self.header_counts > 0)
        return pa.Array.from_buffers(HEADERS, len(at), [bitmap, pa.py_buffer(offsets)], children=[elements])

    def _all_headers(self, total: int) -> tuple[Ints, pa.Array, pa.Array]:
        """Read the first headers of all records, then the second ones, and so on."""
        firsts = np.cumsum(self.header_counts) - self.header_counts
        name_at, name_sizes, value_at, value_sizes = (np.zeros(total, np.int64) for _ in range(4))
        places = self.header_begins.copy()
        nth = 0
        left = np.flatnonzero(self.header_counts > 0)
        while len(left):
            slot = firsts[left] + nth
            sizes, begins = read_varints(self.data, places[left], INT_BYTES)
            self._require_of(left, (sizes >= 0) & (begins + sizes < self._ends[left]))
            name_at[slot], name_sizes[slot] = begins, sizes
            sizes, begins = read_varints(self.data, begins + sizes, INT_BYTES)
            ends = begins + np.maximum(sizes, 0)
            self._require_of(left, (sizes >= -1) & (ends <= self._ends[left]))
            value_at[slot], value_sizes[slot] = begins, sizes
            places[left] = ends
            nth += 1
            left = left[self.header_counts[left] > nth]
        names = _binary(self.data, name_sizes, name_at)
        return places, _text(names), _binary(self.data, value_sizes, value_at)

    def _require_of(self, which: Ints, sound: Flags) -> None:
        if not sound.all():
            raise DamagedRecords(self._batch_of(int(which[np.argmin(sound)])), "a record's headers don't fit into it")


def _binary(data: Bytes, lengths: Ints, begins: Ints) -> pa.Array:
    """Return bytes that lie in the data in ascending order; a length of -1 is null.

    Those of one length are taken at once. Else the offsets of one Arrow array over all of the data alternate between
    what is wanted and what lies between; taking every second element copies the wanted ones together, without a step
    for each in Python.
    """
    count = len(lengths)
    if not count:
        return pa.nulls(0, pa.binary())
    size = int(lengths[0])
    if 0 < size <= _SAME_LENGTH_MAX and (lengths == size).all():
        taken = bytes_at(data, size)[begins]
        offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
        return pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(taken.view(np.uint8))]
        )
    between = np.empty(2 * count, np.int32)
    between[0::2] = begins
    np.add(begins, np.maximum(lengths, 0), out=between[1::2], casting="unsafe")
    everything = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(between), pa.py_buffer(data)])
    taken = everything.take(array_of(np.arange(0, 2 * count, 2)))
    null = lengths < 0
    if not null.any():
        return taken
    return pa.Array.from_buffers(pa.binary(), count, [_bitmap(~null), *taken.buffers()[1:]])


def _text(names: pa.Array) -> pa.Array:
    """Return names as texts; what isn't UTF-8 is replaced, as Java does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return texts_of([name.decode(errors="replace") for name in names.to_pylist()])


def _bitmap(flags: Flags) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _repeated(name: str, dtype: Any) -> Callable[[_Fields], pa.Array]:
    return lambda fields: array_of(fields.repeated(fields.headers[name].astype(dtype)))


_MAKERS: dict[str, Callable[[_Fields], pa.Array]] = {
    "key": lambda fields: _binary(fields.data, *fields.key),
    "value": lambda fields: _binary(fields.data, *fields.value),
    "offset": lambda fields: array_of(fields.offsets),
    "timestamp": _Fields.timestamps,
    "timestampType": lambda fields: array_of(fields.repeated(fields.headers.has_append_time.astype(np.int32))),
    "headers": _Fields.record_headers,
    "__producer_id": _repeated("producer_id", np.int64),
    "__producer_epoch": _repeated("producer_epoch", np.int16),
    "__sequence": _Fields.sequences,
    "__leader_epoch": _repeated("leader_epoch", np.int32),
    "__txn_status": _Fields.statuses,
    "__timestamp_ms": lambda fields: array_of(fields.milliseconds()),
}
