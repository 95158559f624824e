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

import os
from pathlib import Path

import pyarrow as pa

KEY = b"txnlog"
NOTE_VERSION = 1
RECEIPT = ("partition_id", "offset", "length", "crc32c", "base_sequence", "messages", "position", "time_us", "txn")
"""What a receipt tells of an entry. ``time_us`` 0: it isn't known; ``txn`` -1: none."""
_LARGE_BYTES = 256 << 10
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


def without_rows(schema: pa.Schema, note: bytes) -> pa.Buffer:
    """Return the message of a batch that has nothing but a note."""
    empty = pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)
    return serialized(empty, schema, note).slice(schema.serialize().size)


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


def _write(sink: pa.NativeFile, batch: pa.RecordBatch, schema: pa.Schema, note: bytes) -> None:
    pa.ipc.new_stream(sink, schema).write_batch(batch, custom_metadata={KEY: note})  # without a stream's end
