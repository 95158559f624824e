"""Payloads of entries: decompressed, put behind each other, and batches taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txn_source.foreign.pulsar import compression
from txn_source.foreign.pulsar.batches import BatchedMessages, BatchError, find_messages
from txn_source.foreign.pulsar.compression import CodecError, decompressed
from txn_source.foreign.pulsar.entries import COMPRESSION, UNCOMPRESSED_SIZE, Entries
from txn_source.foreign.pulsar.wire import ByteArray
from txn_source.model.errors import LogVersionError
from txn_source.model.position import Position
from txn_source.model.visibility import BoolArray, IntArray

_MOST_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Chunked:
    """What comes before the last chunk of a message: the chunks, joined, and the first one's position."""

    data: bytes
    first: Position


@dataclass(frozen=True, slots=True)
class Group:
    """Some of a run of entries, by their indexes in it; which have their messages in a batch, and which are encrypted.

    An encrypted batch doesn't count as one: its messages can't be told apart.
    """

    found: Entries
    which: IntArray
    in_batch: BoolArray
    encrypted: BoolArray


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads in one run of bytes, an item an entry: ``bodies`` to ``ends``, with ``heads`` where metadata begins.

    ``heads`` count for entries without a batch only. ``batched`` has the messages of those with one, None if there are
    none.
    """

    data: ByteArray
    heads: IntArray
    bodies: IntArray
    ends: IntArray
    batched: BatchedMessages | None


def no_payloads(entries: int) -> Payloads:
    """Return what stands for payloads that nobody asks for."""
    none = np.zeros(entries, np.int64)
    return Payloads(np.zeros(0, np.uint8), none, none, none, None)


def load(group: Group, chunked: Mapping[int, Chunked], *, metadata: bool, values: bool) -> Payloads:
    """Return the payloads of entries. What isn't compressed lies in the entries' bytes already, and isn't copied.

    Args:
        group: the entries.
        chunked: by the index of a last chunk's entry, what comes before it.
        metadata: true if metadata of messages is needed, which batches have in their payload.
        values: true if values are needed.

    Raises:
        SegmentUnreadableError: an entry is damaged.
        LogVersionError: it is compressed in a way that we don't know.
    """
    found, which = group.found, group.which
    compressed = found.metadata.number(COMPRESSION)[which] != compression.NONE
    if chunked or (compressed & ~group.encrypted).any():
        data, heads, bodies, ends = _joined(group, chunked, metadata=metadata, values=values)
    else:
        data, heads, bodies, ends = found.raw.data, found.heads[which], found.bodies[which], found.raw.ends[which]
    batches = np.flatnonzero(group.in_batch)
    if not len(batches):
        return Payloads(data, heads, bodies, ends, None)
    try:
        batched = find_messages(data, bodies[batches], ends[batches], found.messages[which[batches]])
    except BatchError as error:
        raise found.unreadable(int(which[batches[error.batch]]), error.what) from None
    return Payloads(data, heads, bodies, ends, batched)


def _joined(
    group: Group, chunked: Mapping[int, Chunked], *, metadata: bool, values: bool
) -> tuple[ByteArray, IntArray, IntArray, IntArray]:
    """Put payloads behind each other, decompressed; before those without a batch their metadata, if it is needed."""
    found, which = group.found, group.which
    view = found.raw.data.data
    heads, bodies, ends = (x[which].tolist() for x in (found.heads, found.bodies, found.raw.ends))
    codecs = np.where(group.encrypted, compression.NONE, found.metadata.number(COMPRESSION)[which]).tolist()
    sizes = (found.metadata.number(UNCOMPRESSED_SIZE)[which] & 0xFFFFFFFF).tolist()
    parts: list[bytes | memoryview | pa.Buffer] = []
    placed: list[tuple[int, int, int]] = []
    at = 0
    for number, (entry, batched) in enumerate(zip(which.tolist(), group.in_batch.tolist(), strict=True)):
        head = at
        if metadata and not batched:
            parts.append(view[heads[number] : bodies[number]])
            at += bodies[number] - heads[number]
        body = at
        if batched or values:
            payload: bytes | memoryview | pa.Buffer = view[bodies[number] : ends[number]]
            if entry in chunked:
                payload = memoryview(chunked[entry].data + bytes(payload))
            if codecs[number] != compression.NONE:
                payload = _decompressed(found, entry, codecs[number], memoryview(payload), sizes[number])
            parts.append(payload)
            at += memoryview(payload).nbytes
        placed.append((head, body, at))
        if at > _MOST_BYTES:
            raise found.unreadable(entry, f"with it come {at} bytes at once, uncompressed, of 2 GiB at most")
    table = np.array(placed, np.int64).reshape(-1, 3)
    return np.frombuffer(b"".join(parts), np.uint8), table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def _decompressed(
    found: Entries, entry: int, codec: int, data: memoryview, size: int
) -> bytes | memoryview | pa.Buffer:
    try:
        return decompressed(codec, data, size)
    except CodecError as error:
        if not compression.NONE <= codec <= compression.SNAPPY:
            raise LogVersionError(
                f"Entry {Position.from_key(int(found.keys[entry]))} in {found.uri} can't be read: {error}.",
                "Read a range that leaves the entry out, or columns of the entry only.",
            ) from None
        raise found.unreadable(entry, str(error)) from None
