"""Writes ledgers as Pulsar's jcloud offloader does, with entries of any kind; bytes are put together one by one."""

from __future__ import annotations

import base64
import random
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
_ARROW = {LZ4: "lz4_raw", ZSTD: "zstd", SNAPPY: "snappy"}


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def number(at: int, value: int | None) -> bytes:
    return b"" if value is None else varint(at << 3) + varint(value)


def content(at: int, value: bytes | None) -> bytes:
    return b"" if value is None else varint(at << 3 | 2) + varint(len(value)) + value


def pairs(at: int, values: Mapping[str, str] | Sequence[tuple[str, str]]) -> bytes:
    items = values.items() if isinstance(values, Mapping) else values
    return b"".join(content(at, content(1, key.encode()) + content(2, value.encode())) for key, value in items)


def compressed(codec: int, data: bytes) -> bytes:
    """Return a payload as Pulsar's clients compress it; a ZLIB stream is flushed and never ended."""
    if codec == ZLIB:
        stream = zlib.compressobj()
        return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)
    return data if codec == NONE else bytes(pa.Codec(_ARROW[codec]).compress(data, asbytes=True))


@dataclass(frozen=True)
class Sent:
    """A message: what a producer gave, and a reader should get back."""

    value: bytes | None
    key: bytes | None = None
    key_is_base64: bool = False
    ordering_key: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time: int | None = None
    sequence: int = 0

    def _key(self) -> bytes | None:
        return base64.b64encode(self.key) if self.key is not None and self.key_is_base64 else self.key

    def in_batch(self) -> bytes:
        """Return the message with its own metadata, as it lies in a batch."""
        head = (
            pairs(1, self.properties)
            + content(2, self._key())
            + number(3, len(self.value or b""))
            + number(5, self.event_time)
            + (number(6, 1) if self.key_is_base64 else b"")
            + content(7, self.ordering_key)
            + number(8, self.sequence)
            + (number(9, 1) if self.value is None else b"")
        )
        return struct.pack(">I", len(head)) + head + (self.value or b"")


@dataclass(frozen=True)
class Frame:
    """What an entry has besides its messages."""

    producer: str = "p"
    publish_time: int = 1_700_000_000_000
    codec: int = NONE
    txn: tuple[int, int] | None = None
    schema_version: bytes | None = None
    broker: tuple[int, int] | None = None
    checksum: bool = True
    extra: bytes = b""


def framed(frame: Frame, metadata: bytes, payload: bytes) -> bytes:
    """Return an entry: broker metadata, checksum, metadata, payload."""
    body = struct.pack(">I", len(metadata)) + metadata + payload
    if frame.checksum:
        body = struct.pack(">HI", 0x0E01, crc32c(body)) + body
    if frame.broker is not None:
        broker = number(1, frame.broker[0]) + number(2, frame.broker[1])
        body = struct.pack(">HI", 0x0E02, len(broker)) + broker + body
    return body


def _metadata(
    frame: Frame,
    sequence: int,
    *,
    before: bytes = b"",
    size: int | None = None,
    middle: bytes = b"",
    after: bytes = b"",
    marker: int | None = None,
) -> bytes:
    txn = frame.txn or (None, None)
    return (
        content(1, frame.producer.encode())
        + number(2, sequence)
        + number(3, frame.publish_time)
        + before
        + (number(8, frame.codec) if frame.codec else b"")
        + number(9, size)
        + middle
        + content(16, frame.schema_version)
        + after
        + number(20, marker)
        + number(22, txn[1])
        + number(23, txn[0])
        + frame.extra
    )


def batch(messages: Sequence[Sent], frame: Frame | None = None) -> bytes:
    """Return an entry with messages in a batch."""
    frame = frame or Frame()
    payload = b"".join(message.in_batch() for message in messages)
    metadata = _metadata(frame, messages[0].sequence, size=len(payload), middle=number(11, len(messages)))
    return framed(frame, metadata, compressed(frame.codec, payload))


def single(message: Sent, frame: Frame | None = None) -> bytes:
    """Return an entry with one message that isn't in a batch."""
    frame = frame or Frame()
    payload = message.value or b""
    metadata = _single_metadata(message, frame, len(payload), b"")
    return framed(frame, metadata, compressed(frame.codec, payload))


def chunks(message: Sent, count: int, frame: Frame | None = None, name: bytes | None = None) -> list[bytes]:
    """Return the entries of a message that is sent in chunks."""
    frame = frame or Frame()
    whole = compressed(frame.codec, message.value or b"")
    name = name or f"{frame.producer}-{message.sequence}".encode()
    step = -(-len(whole) // count)
    entries = []
    for at in range(count):
        tail = content(26, name) + number(27, count) + number(28, len(whole)) + number(29, at)
        metadata = _single_metadata(message, frame, len(message.value or b""), tail)
        entries.append(framed(frame, metadata, whole[at * step : (at + 1) * step]))
    return entries


def _single_metadata(message: Sent, frame: Frame, size: int, tail: bytes) -> bytes:
    return _metadata(
        replace(frame, extra=(number(25, 1) if message.value is None else b"") + tail + frame.extra),
        message.sequence,
        before=pairs(4, message.properties) + content(6, message._key()),
        size=size,
        middle=number(12, message.event_time),
        after=(number(17, 1) if message.key_is_base64 else b"") + content(18, message.ordering_key),
    )


def marker(txn: tuple[int, int], *, commit: bool) -> bytes:
    """Return the entry that ends a transaction."""
    frame = Frame("pulsar.txn.marker", txn=txn)
    return framed(frame, _metadata(frame, (1 << 64) - 1, marker=21 if commit else 22), b"")


def ledger_metadata(managed_ledger: str, entries: Sequence[bytes]) -> bytes:
    """Return BookKeeper's metadata of a closed ledger; without a name it is as old brokers wrote it."""
    named = ((b"application", b"pulsar"), (b"pulsar/managed-ledger", managed_ledger.encode()))
    custom = named if managed_ledger else ()
    segment = content(1, b"127.0.0.1:3181") + number(2, 0)
    return (
        number(1, 1)
        + number(2, 1)
        + number(3, sum(map(len, entries)))
        + number(4, len(entries) - 1)
        + number(5, 3)
        + content(6, segment)
        + number(7, 3)
        + number(9, 1)
        + number(10, 1_700_000_000_000)
        + b"".join(content(11, content(1, key) + content(2, value)) for key, value in custom)
    )


def objects(managed_ledger: str, entries: Sequence[bytes], block_bytes: int = 64 << 20) -> tuple[bytes, bytes]:
    """Return the data object and the index object of a ledger."""
    data = bytearray()
    blocks = []
    at = 0
    while at < len(entries):
        left = 128 + sum(12 + len(entry) for entry in entries[at:])
        size = min(block_bytes, left)
        blocks.append((at, len(blocks) + 1, len(data)))
        block = bytearray(struct.pack(">Iqqq", 0xFBDBABCB, 128, size, at).ljust(128, b"\0"))
        while at < len(entries) and len(block) + 12 + len(entries[at]) <= size:
            block += struct.pack(">iq", len(entries[at]), at) + entries[at]
            at += 1
        assert blocks[-1][0] < at, "an entry is larger than a block"
        block += (b"\xfe\xdc\xde\xad" * (size // 4 + 1))[: size - len(block)]
        data += block
    metadata = ledger_metadata(managed_ledger, entries)
    table = b"".join(struct.pack(">qiq", *block) for block in blocks)
    length = 32 + len(metadata) + len(table)
    head = struct.pack(">IiqqiI", 0xDE47DE47, length, len(data), 128, len(blocks), len(metadata))
    return bytes(data), head + metadata + table


def write_ledger(
    folder: Path,
    ledger_id: int,
    entries: Sequence[bytes],
    managed_ledger: str = "public/default/persistent/orders",
    block_bytes: int = 64 << 20,
    name: uuid.UUID | None = None,
) -> Path:
    """Write a ledger's objects to a folder; return the data object's path."""
    data, index = objects(managed_ledger, entries, block_bytes)
    path = folder / f"{name or uuid.UUID(int=random.getrandbits(128), version=4)}-ledger-{ledger_id}"
    path.write_bytes(data)
    path.with_name(f"{path.name}-index").write_bytes(index)
    return path


def sequence_file(records: Iterable[tuple[int, bytes]], kind: str = "block", per_block: int = 10) -> bytes:
    """Return a Hadoop SequenceFile of a ledger: ``block``, ``record`` or ``none`` compression."""

    def text(value: bytes) -> bytes:
        return bytes([len(value)]) + value

    def vlong(value: int) -> bytes:
        if value <= 127:
            return bytes([value])
        data = value.to_bytes((value.bit_length() + 7) // 8, "big")
        return struct.pack("b", -112 - len(data)) + data

    sync = bytes(range(100, 116))
    head = b"SEQ\x06" + text(b"org.apache.hadoop.io.LongWritable") + text(b"org.apache.hadoop.io.BytesWritable")
    head += bytes([kind != "none", kind == "block"])
    head += text(b"org.apache.hadoop.io.compress.DefaultCodec") if kind != "none" else b""
    out = bytearray(head + struct.pack(">i", 0) + sync)
    rows = [(struct.pack(">q", key), struct.pack(">i", len(value)) + value) for key, value in records]
    for at in range(0, len(rows), per_block):
        part = rows[at : at + per_block]
        if kind != "block":
            if at:
                out += struct.pack(">i", -1) + sync
            for key, value in part:
                stored = zlib.compress(value) if kind == "record" else value
                out += struct.pack(">ii", len(key) + len(stored), len(key)) + key + stored
            continue
        out += struct.pack(">i", -1) + sync + vlong(len(part))
        for buffer in (
            b"\x08" * len(part),
            b"".join(key for key, _ in part),
            b"".join(vlong(len(value)) for _, value in part),
            b"".join(value for _, value in part),
        ):
            packed = zlib.compress(buffer)
            out += vlong(len(packed)) + packed
    return bytes(out)


def map_index(*, closed: bool) -> bytes:
    """Return the index beside a MapFile's data: its header, and a block of records once it is closed."""
    long = b"org.apache.hadoop.io.LongWritable"
    sync = bytes(range(50, 66))
    codec = b"org.apache.hadoop.io.compress.DefaultCodec"
    head = b"SEQ\x06" + (bytes([len(long)]) + long) * 2 + b"\x01\x01" + bytes([len(codec)]) + codec
    return head + struct.pack(">i", 0) + sync + (struct.pack(">i", -1) + sync + b"\x00" if closed else b"")
