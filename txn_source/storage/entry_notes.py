"""What an entry says of itself, and of entries before it: text in its message's metadata, for ``txnlog rebuild``.

Positions and decisions are the database's. So that they can be made again without it, each entry carries what its
writer knew: whose it is, and the receipts of earlier ones. A note is JSON under the key ``txnlog``, with short names,
since each entry has one:

* ``v``: 1; ``p``: the id of the partition; ``w``: the producer's id, 0 for a job; ``j``: 1 if only a receipt can tell
  that the entry counts, since it is a job's or an import's; ``s``: the first sequence; ``t``: the
  number of the transaction, -1 if it had none yet, left out for plain messages; ``at``: the writer's clock, in µs;
* ``by``, in the first entry of a segment: the producer's name, epoch, and transactional id if it has one;
* ``r``, receipts: by segment (empty: this one) rows of ``RECEIPT``;
* ``e``: transactions that have ended: number, and 1 (committed) or 2 (aborted);
* ``x``: by segment the offsets of entries that were refused, or given up.

What no later entry of a file carries lies behind its last one, in a batch without rows, once the file is closed.
Readers ignore notes; an entry's checksum covers its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

KEY = b"txnlog"
NOTE_VERSION = 1
RECEIPT = ("partition_id", "offset", "length", "crc32c", "base_sequence", "messages", "position", "time_us", "txn")
"""What a receipt tells of an entry. ``time_us`` 0: it isn't known; ``txn`` -1: none."""
_LARGE_BYTES = 256 << 10
_SMALL_BYTES = 8 << 10
_ROOM_BYTES = 64 << 10
_SLACK = 256
"""More than a note's frame takes."""
_ROOM = 1024
_MAX_HEADER_BYTES = 16 << 20


def serialized(batch: pa.RecordBatch, schema: pa.Schema, note: bytes) -> pa.Buffer:
    """Return a schema message, and behind it the message of a batch with a note."""
    size = batch.nbytes
    if size < _LARGE_BYTES:
        sink = pa.BufferOutputStream()
        _write(sink, batch, schema, note)
        return sink.getvalue()
    # Into a buffer that is large enough: one that grows would copy it.
    room = pa.allocate_buffer(schema.serialize().size + pa.ipc.get_record_batch_size(batch) + 2 * len(note) + _ROOM)
    with pa.FixedSizeBufferWriter(room) as fixed:
        _write(fixed, batch, schema, note)
        return room.slice(0, fixed.tell())


class NoteEncoder:
    """Encodes batches of one schema with notes: many small ones by one stream, since to begin one is the dear part."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._header_bytes = schema.serialize().size
        self._room: _Room | None = None

    def message(self, batch: pa.RecordBatch, note: bytes) -> pa.Buffer:
        """Return the message of a batch with a note. It stays as it is, whatever is encoded later."""
        needed = pa.ipc.get_record_batch_size(batch) + len(note) + _SLACK
        if needed > _SMALL_BYTES:
            return serialized(batch, self._schema, note).slice(self._header_bytes)
        room, self._room = self._room, None  # an interrupt leaves none
        if room is None or room.left < needed:
            room = _Room(self._schema)
        message = room.message(batch, note)
        self._room = room
        return message


class _Room:
    """Memory that a stream fills with small messages, behind its schema's."""

    def __init__(self, schema: pa.Schema) -> None:
        self._buffer = pa.allocate_buffer(schema.serialize().size + _ROOM_BYTES)
        self._sink = pa.FixedSizeBufferWriter(self._buffer)
        self._stream = pa.ipc.new_stream(self._sink, schema)
        self._stream.write_batch(_empty(schema))  # the schema goes with the first one
        self._end: int = self._sink.tell()

    @property
    def left(self) -> int:
        """The bytes that are free."""
        return int(self._buffer.size) - self._end

    def message(self, batch: pa.RecordBatch, note: bytes) -> pa.Buffer:
        """Return a batch's message, for which there is room."""
        start = self._end
        self._stream.write_batch(batch, custom_metadata={KEY: note})
        self._end = self._sink.tell()
        return self._buffer.slice(start, self._end - start)


def without_rows(schema: pa.Schema, note: bytes) -> pa.Buffer:
    """Return the message of a batch that has nothing but a note."""
    return serialized(_empty(schema), schema, note).slice(schema.serialize().size)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(0, field.type) for field in schema], schema=schema)  # pa.array imports pandas


def append_note(root: Path, path: str, note: bytes) -> None:
    """Write a note behind a file that its writer has closed; OSError and ArrowException say why it can't be."""
    with open(root / path, "r+b", buffering=0) as file:
        length = int.from_bytes(file.read(8)[4:], "little") + 8
        if not 8 < length <= _MAX_HEADER_BYTES:
            raise OSError("its header is damaged")
        file.seek(0)
        message = without_rows(pa.ipc.read_schema(pa.py_buffer(file.read(length))), note)
        file.seek(0, os.SEEK_END)
        file.write(message)


def parse_note(data: bytes) -> dict[str, Any] | None:
    """Return a note; None if it is none that this release has written."""
    try:
        note = json.loads(data)
        return note if note["v"] == NOTE_VERSION and _is_sound(note) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_sound(note: dict[str, Any]) -> bool:
    """True if all fields that are there have values that can be."""
    by = note.get("by", {"name": "", "epoch": 0})
    rows = [row for of in note.get("r", {}).values() for row in of]
    ends = note.get("e", ())
    return (
        _are_numbers([note["w"], *(note[name] for name in ("s", "at") if name in note)], 0)
        and _are_numbers([note.get("p", 1)], 1)
        and _are_numbers([note.get("t", -1)], -1)
        and isinstance(by["name"], str)
        and isinstance(by.get("transactional_id", ""), str)
        and _are_numbers([by["epoch"]], 0)
        and all(len(row) == len(RECEIPT) and _are_numbers(row, -1) for row in rows)
        and all(_are_numbers(offsets, 0) for offsets in note.get("x", {}).values())
        and all(len(end) == 2 and _are_numbers(end, 0) for end in ends)
        and ("p" not in note or ("s" in note and "at" in note))
    )


def _are_numbers(values: Iterable[Any], lowest: int) -> bool:
    return all(type(value) is int and lowest <= value < 1 << 63 for value in values)


def _write(sink: pa.NativeFile, batch: pa.RecordBatch, schema: pa.Schema, note: bytes) -> None:
    pa.ipc.new_stream(sink, schema).write_batch(batch, custom_metadata={KEY: note})  # without a stream's end
