"""Columns of messages that Pulsar wrote, and Arrow's arrays of parts of one run of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from txn_source.foreign.pulsar.wire import ByteArray
from txn_source.model.errors import SchemaMismatchError, shown
from txn_source.model.visibility import BoolArray, IntArray

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("__ledger_id", pa.int64()),
        pa.field("__entry_id", pa.int64()),
        pa.field("__batch_index", pa.int32()),
        pa.field("__publish_time", _TIME),
        pa.field("__event_time", _TIME),
        pa.field("__properties", pa.map_(pa.string(), pa.string())),
        pa.field("__ordering_key", pa.binary()),
        pa.field("__producer_name", pa.string()),
        pa.field("__sequence_id", pa.int64()),
        pa.field("__txn_id", pa.string()),
        pa.field("__txn_status", pa.string()),
        pa.field("__schema_version", pa.binary()),
        pa.field("__key_is_base64", pa.bool_()),
        pa.field("__batch_size", pa.int32()),
        pa.field("__first_chunk", pa.string()),
        pa.field("__broker_publish_time", _TIME),
        pa.field("__index", pa.int64()),
        pa.field("__replicated_from", pa.string()),
        pa.field("__encrypted", pa.bool_()),
        pa.field("__deliver_at", _TIME),
    ]
)
"""All columns that can be asked for.

``key``, ``value``: null where a message has none. A key that was bytes for its producer, which Pulsar keeps as base64,
is those bytes; ``__key_is_base64`` says so.
``__ledger_id``, ``__entry_id``, ``__batch_index``: Pulsar's message id. The index is -1, and ``__batch_size`` 0, for a
message that isn't in a batch. That of a chunked message is its last chunk's; ``__first_chunk`` is the position of its
first one (``ledger:entry``), else null.
``__event_time``: null where a producer gave none, or 0, which Pulsar's clients can't tell apart.
``__txn_status``: ``open``, ``committed`` or ``aborted``; null outside of a transaction, as ``__txn_id`` is.
``__schema_version``: as Pulsar has it, 8 bytes with a number.
``__broker_publish_time``, ``__index``: of the broker's own entry metadata, null where it wrote none.
``__replicated_from``: the cluster that a replicator brought the message from, else null.
``__encrypted``: true where ``value`` is a whole entry's payload as its producer encrypted it.
``__deliver_at``: when a producer wanted the message to be delivered; null: at once. It is shown where it lies.
"""

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SEXTETS = np.full(256, 255, np.uint8)
_SEXTETS[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(64)
_PAD = ord("=")


def columns_schema(names: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> pa.Schema:
    """Return the fields of columns in the order asked for; some may have types of their own.

    Raises:
        SchemaMismatchError: there is no column of a name.
    """
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown:
        raise SchemaMismatchError(
            f"Messages of Pulsar's have no column {shown(unknown[0])}.", f"Use {', '.join(SCHEMA.names)}."
        )
    return pa.schema([pa.field(name, (types or {}).get(name, SCHEMA.field(name).type)) for name in names])


def bits(flags: BoolArray) -> pa.Buffer | None:
    """Return which items of an array are valid; None if all are."""
    return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))


def numbers(kind: pa.DataType, values: IntArray, valid: BoolArray | None = None) -> pa.Array:
    """Return an array of numbers, or of what is stored as such."""
    values = np.ascontiguousarray(values, np.int32 if kind == pa.int32() else np.int64)
    return pa.Array.from_buffers(kind, len(values), [None if valid is None else bits(valid), pa.py_buffer(values)])


def truths(values: BoolArray) -> pa.Array:
    """Return an array of truths."""
    packed = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, packed])


def taken(array: pa.Array, which: IntArray) -> pa.Array:
    """Return items of an array by their indexes."""
    return array.take(numbers(pa.int64(), which))


def slices(data: ByteArray, starts: IntArray, ends: IntArray, valid: BoolArray) -> pa.Array:
    """Return bytes of the data as binary; ``starts`` and ``ends`` of what is valid never go back."""
    rows = None if valid.all() else np.flatnonzero(valid)
    if rows is not None:
        starts, ends = starts[rows], ends[rows]
    count = len(starts)
    if not count:
        return pa.nulls(len(valid), pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    if rows is None:
        return taken(every, np.arange(0, 2 * count, 2, dtype=np.int64))
    which = np.zeros(len(valid), np.int64)
    which[rows] = np.arange(0, 2 * count, 2)
    return every.take(numbers(pa.int64(), which, valid))


def texts(array: pa.Array) -> pa.Array:
    """Return binary as text; what isn't UTF-8 has U+FFFD in place of it, as in Java."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        replaced = [None if item is None else item.decode(errors="replace").encode() for item in array.to_pylist()]
        valid = np.array([item is not None for item in replaced], np.bool_)
        ends = np.cumsum([len(item or b"") for item in replaced])
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        packed = pa.py_buffer(b"".join(item or b"" for item in replaced))
        return pa.Array.from_buffers(pa.string(), len(replaced), [bits(valid), pa.py_buffer(offsets), packed])


def maps(rows: IntArray, count: int, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return maps of texts; of a key that a row has more than once the last value counts.

    Args:
        rows: the row of each pair, ascending.
        count: the number of rows.
        keys: the key of each pair.
        values: its value.
    """
    if len(rows) > 1 and (rows[1:] == rows[:-1]).any():
        coded = keys.dictionary_encode()
        codes = np.frombuffer(coded.indices.buffers()[1], np.int32, len(keys), coded.indices.offset * 4)
        pairs = rows * len(coded.dictionary) + codes
        _, last = np.unique(pairs[::-1], return_index=True)
        if len(last) < len(rows):
            kept = np.sort(len(rows) - 1 - last)
            rows, keys, values = rows[kept], taken(keys, kept), taken(values, kept)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count)))).astype(np.int32)
    pairs_array = pa.StructArray.from_arrays(
        [keys, values], fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
    )
    kind = pa.map_(pa.string(), pa.string())
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets)], children=[pairs_array])


def from_base64(texts_: pa.Array, which: BoolArray) -> tuple[pa.Array, int | None]:
    """Return an array of which some items, valid ones, are decoded from base64; and the first that isn't base64."""
    rows = np.flatnonzero(which)
    coded = taken(texts_, rows)
    edges = np.frombuffer(coded.buffers()[1], np.int32, len(rows) + 1, coded.offset * 4).astype(np.int64)
    data = np.frombuffer(coded.buffers()[2] or b"", np.uint8)[edges[0] : edges[-1]]
    edges = edges - edges[0]
    if (edges % 4).any():
        return texts_, int(rows[np.argmax(np.diff(edges) % 4 != 0)])
    groups = data.reshape(-1, 4)
    sextets = _SEXTETS[groups]
    padded = groups == _PAD
    last = np.zeros(len(groups), np.bool_)
    last[(edges[1:] // 4 - 1)[np.diff(edges) > 0]] = True
    allowed = last & ~padded[:, 0] & ~padded[:, 1] & (padded[:, 3] | ~padded[:, 2])
    wrong = ((sextets == 255) & ~padded).any(1) | (padded.any(1) & ~allowed)
    if wrong.any():
        return texts_, int(rows[np.searchsorted(edges // 4, np.argmax(wrong), "right") - 1])
    words = np.where(padded, 0, sextets).astype(np.int64) @ np.array([1 << 18, 1 << 12, 1 << 6, 1])
    octets = np.stack((words >> 16, words >> 8, words), 1).astype(np.uint8)
    sizes = 3 - padded.sum(1)
    kept = np.arange(3) < sizes[:, None]
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))[edges // 4]
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(octets[kept])]
    decoded = pa.Array.from_buffers(pa.binary(), len(rows), buffers)
    if len(rows) == len(texts_):
        return decoded, None
    place = np.arange(len(texts_), dtype=np.int64)
    place[rows] = len(texts_) + np.arange(len(rows))
    return taken(pa.concat_arrays([texts_, decoded]), place), None
