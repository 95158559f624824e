"""What an entry says of itself, and of entries before it, for ``txnlog rebuild``.

Positions and decisions are the database's. So that they can be made again without it, each entry carries what its
writer knew: whose it is, and the receipts of earlier ones. Its note lies between the metadata and the body of its
Arrow message, as padding of the metadata, which Arrow's readers skip; its length and CRC-32C end it. The entry's
checksum covers it too.

Most notes are packed, since each entry has one: numbers, in the order of ``_HEAD``, ``_RECEIPT`` and ``_END``. What
doesn't fit there is JSON with short names, which a note is parsed to in any case:

* ``v``: 1; ``p``: the id of the partition; ``w``: the producer's id, 0 for a job, left out where the path tells;
  ``j``: 1 if only a receipt can tell that the entry counts, since it is a job's or an import's; ``s``: the first
  sequence; ``t``: the number of the transaction, -1 if it had none yet, left out for plain messages; ``at``: the
  writer's clock, in µs;
* ``by``, in the first entry of a segment: the producer's name, epoch, and transactional id if it has one;
* ``r``, receipts: by segment (empty: this one) rows of ``RECEIPT``;
* ``e``: transactions that have ended: number, and 1 (committed) or 2 (aborted);
* ``x``: by segment the offsets of entries that were refused, or given up.

What no later entry of a file carries lies behind its last one, in a batch without rows, once the file is closed.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from txn_source.model.entry import NewEntry

KEY = b"txnlog"
"""Under which older releases had a note, as JSON in the message's own key-value metadata."""
NOTE_VERSION = 1
RECEIPT = ("partition_id", "offset", "length", "crc32c", "base_sequence", "messages", "position", "time_us", "txn")
"""What a receipt tells of an entry. ``time_us`` 0: it isn't known; ``txn`` -1: none."""
NO_TXN = -1
Data = memoryview | bytes
Answered = tuple[NewEntry, int, int, int]
"""An entry, and what the service answered: ``Position.key``, publish time, transaction (-1: none)."""
_PACKED, _IN_TXN, _OF_JOB = 0x20, 1, 2
_HEAD = struct.Struct("<BBHIqq")
"""The form and what is so, how many endings and receipts come, partition, sequence, clock. Of an entry in a
transaction its number is next."""
_RECEIPT = struct.Struct("<IIIIIiIq")
"""Of an entry of the same file: offset, length, CRC-32C, sequences and µs before this one, messages, transaction + 1,
position."""
_END = struct.Struct("<qB")
_NUMBER = struct.Struct("<q")
_PAIR = struct.Struct("<II")
"""A message's mark, and the length of its metadata; a note's length, and its CRC-32C."""
_ALIGNED = 8
_SMALL_BYTES = 64 << 10
_MAX_HEADER_BYTES = 16 << 20
_MARK = b"\xff\xff\xff\xff"
_NO_COLUMNS = pa.schema([])


def packed(
    partition_id: int,
    sequence: int,
    txn: int | None,
    at_us: int,
    answered: Sequence[Answered] = (),
    ends: Sequence[Sequence[int]] = (),
    *,
    of_job: bool = False,
) -> bytes:
    """Return the note of an entry that is going to be written, with receipts of earlier ones of its partition and file.

    Raises:
        struct.error: a number doesn't fit; the note is to be JSON.
    """
    form = _PACKED | (_OF_JOB if of_job else 0) | (0 if txn is None else _IN_TXN)
    parts = [_HEAD.pack(form, len(ends), len(answered), partition_id, sequence, at_us)]
    if txn is not None:
        parts.append(_NUMBER.pack(txn))
    for entry, position, time_us, of in answered:
        back, waited = sequence - entry.base_sequence, at_us - time_us
        row = entry.offset, entry.length, entry.crc32c, back, entry.messages, waited, of + 1, position
        parts.append(_RECEIPT.pack(*row))
    for number, state in ends:
        parts.append(_END.pack(number, state))
    return b"".join(parts)


def with_note(batch: pa.RecordBatch, note: bytes) -> list[Data]:
    """Return the message of a batch with a note, in parts."""
    message = memoryview(batch.serialize())
    mark, length = _PAIR.unpack_from(message)
    body = 8 + length
    note += bytes(-len(note) % _ALIGNED) + _PAIR.pack(len(note), crc32c(note))
    parts: list[Data] = [_PAIR.pack(mark, length + len(note)), message[8:body], note, message[body:]]
    return [b"".join(parts)] if len(message) < _SMALL_BYTES else [b"".join(parts[:3]), parts[3]]


def note_in(data: Data, start: int, end: int) -> bytes | None:
    """Return the note that ends a message's metadata, of which the bytes are ``[start, end)``; None: there is none."""
    if end - start <= _PAIR.size:
        return None
    length, checksum = _PAIR.unpack_from(data, end - _PAIR.size)
    begin = end - _PAIR.size - length - -length % _ALIGNED
    if not length or begin < start:
        return None
    note = bytes(data[begin : begin + length])
    return note if crc32c(note) == checksum else None


def without_rows(schema: pa.Schema, note: bytes) -> list[Data]:
    """Return the message of a batch that has nothing but a note, in parts."""
    columns = [pa.nulls(0, field.type) for field in schema]  # pa.array imports pandas
    return with_note(pa.record_batch(columns, schema=schema), note)


def append_note(root: Path, path: str, note: bytes) -> None:
    """Write a note behind a file that its writer has closed; OSError and ArrowException say why it can't be."""
    with open(root / path, "r+b", buffering=0) as file:
        start = file.read(8)
        length = int.from_bytes(start[4:], "little") + 8
        message: list[Data] = []
        schema = _NO_COLUMNS
        if start[:4] != _MARK:  # each entry has a schema of its own
            message.append(memoryview(schema.serialize()))
        elif 8 < length <= _MAX_HEADER_BYTES:
            file.seek(0)
            schema = pa.ipc.read_schema(pa.py_buffer(file.read(length)))
        else:
            raise OSError("its header is damaged")
        message += without_rows(schema, note)
        file.seek(0, os.SEEK_END)
        for part in message:
            file.write(part)


def parse_note(data: bytes) -> dict[str, Any] | None:
    """Return a note; None if it is none that this release has written."""
    try:
        note = json.loads(data) if data[:1] == b"{" else _unpacked(data)
        return note if note["v"] == NOTE_VERSION and _is_sound(note) else None
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        return None


def _unpacked(data: bytes) -> dict[str, Any]:
    form, n_ends, n_receipts, partition_id, sequence, at_us = _HEAD.unpack_from(data)
    note: dict[str, Any] = {"v": NOTE_VERSION, "p": partition_id, "s": sequence, "at": at_us}
    at = _HEAD.size
    if form & _OF_JOB:
        note["j"] = 1
    if form & _IN_TXN:
        [note["t"]] = _NUMBER.unpack_from(data, at)
        at += _NUMBER.size
    ends = at + n_receipts * _RECEIPT.size
    if form & ~(_OF_JOB | _IN_TXN) != _PACKED or len(data) != ends + n_ends * _END.size:
        raise ValueError("no note")
    if n_receipts:
        rows = [
            [partition_id, offset, length, crc, sequence - back, messages, position, at_us - waited, of - 1]
            for offset, length, crc, back, messages, waited, of, position in _RECEIPT.iter_unpack(data[at:ends])
        ]
        note["r"] = {"": rows}
    if n_ends:
        note["e"] = [list(end) for end in _END.iter_unpack(data[ends:])]
    return note


def _is_sound(note: dict[str, Any]) -> bool:
    """True if all fields that are there have values that can be."""
    by = note.get("by", {"name": "", "epoch": 0})
    rows = [row for of in note.get("r", {}).values() for row in of]
    ends = note.get("e", ())
    return (
        _are_numbers([note[name] for name in ("w", "s", "at") if name in note], 0)
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
