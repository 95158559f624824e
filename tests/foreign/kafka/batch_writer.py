"""Writes record batches (magic 2) as Kafka's producers and brokers do."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import crc32c
import pyarrow as pa

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ABORT, COMMIT = 0, 1
_SNAPPY_BLOCK = 32 << 10


@dataclass(frozen=True)
class Record:
    """A record; ``delta`` is that of its offset from the batch's first one."""

    key: bytes | None
    value: bytes | None
    timestamp: int = 1_750_000_000_000
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    delta: int | None = None


@dataclass(frozen=True)
class Batch:
    """What a batch's header says, but for what follows from its records."""

    base_offset: int
    records: Sequence[Record] = field(default_factory=tuple)
    codec: str = "none"
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: int | None = None
    append_time: int | None = None
    leader_epoch: int = 0
    delete_horizon: int | None = None
    last_offset: int | None = None


def varint(number: int) -> bytes:
    """Return a number as zigzag and seven bits to a byte."""
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    """Return bytes behind their length, which is -1 for null."""
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, delta: int, base_timestamp: int) -> bytes:
    """Return a record as it lies in its batch."""
    body = b"".join(
        (
            b"\0",
            varint(record.timestamp - base_timestamp),
            varint(delta),
            sized(record.key),
            sized(record.value),
            varint(len(record.headers)),
            *(sized(name) + sized(value) for name, value in record.headers),
        )
    )
    return varint(len(body)) + body


def compress(codec: str, data: bytes) -> bytes:
    """Return data as Kafka's Java producer compresses it."""
    if codec == "none":
        return data
    if codec == "gzip":
        return gzip.compress(data, mtime=0)
    if codec == "snappy":
        blocks = [
            pa.compress(data[at : at + _SNAPPY_BLOCK], "snappy", True) for at in range(0, len(data), _SNAPPY_BLOCK)
        ]
        framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
        return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + framed
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:  # frames that don't say their content's size
        stream.write(data)
    return sink.getvalue().to_pybytes()


def encode_batch(batch: Batch) -> bytes:
    """Return a batch, its checksum included."""
    records = batch.records
    if batch.control is not None and not records:
        key = struct.pack(">hh", 0, batch.control)
        records = (Record(key, struct.pack(">hi", 0, 0), batch.append_time or 1_750_000_000_000),)
    deltas = [index if record.delta is None else record.delta for index, record in enumerate(records)]
    base_timestamp = records[0].timestamp if records else -1
    if batch.delete_horizon is not None:
        base_timestamp = batch.delete_horizon
    encoded = [encode_record(record, delta, base_timestamp) for record, delta in zip(records, deltas, strict=True)]
    newest = max((record.timestamp for record in records), default=-1)
    return assemble(batch, compress(batch.codec, b"".join(encoded)), deltas, base_timestamp, newest)


def assemble(batch: Batch, payload: bytes, deltas: Sequence[int], base_timestamp: int, newest: int) -> bytes:
    """Return a batch from its encoded records."""
    attributes = CODECS.index(batch.codec)
    attributes |= 0x08 * (batch.append_time is not None and batch.control is None)
    attributes |= 0x10 * (batch.transactional or batch.control is not None) | 0x20 * (batch.control is not None)
    attributes |= 0x40 * (batch.delete_horizon is not None)
    last_delta = max(deltas, default=0) if batch.last_offset is None else batch.last_offset - batch.base_offset
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        last_delta,
        base_timestamp,
        newest if batch.append_time is None else batch.append_time,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(deltas),
    )
    checked += payload
    head = struct.pack(">qiibI", batch.base_offset, len(checked) + 9, batch.leader_epoch, 2, crc32c.crc32c(checked))
    return head + checked
