"""The five codecs of record batches. What comes out has any size: none of the formats has to say it beforehand."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pyarrow as pa

from txn_source.storage.untrusted import most_bytes

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""By the number in a batch's attributes."""

MAX_BATCH = (1 << 31) - 1
"""The most bytes that a batch's records can take."""

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_LENGTH = struct.Struct(">i")
_PIECE = 1 << 16


class CompressionError(Exception):
    """The bytes are no stream of their codec."""


def decompress(codec: int, data: memoryview) -> bytes | pa.Buffer:
    """Return what a batch's records are, uncompressed.

    Raises:
        CompressionError: the codec is unknown, or the bytes are none of it.
    """
    if codec >= len(NAMES):
        raise CompressionError(f"codec {codec} is unknown")
    try:
        return _DECOMPRESS[codec](data)
    except (OSError, zlib.error, pa.ArrowException, struct.error, ValueError, MemoryError) as error:
        raise CompressionError(
            f"its {NAMES[codec]} data can't be decompressed: {' '.join(str(error).split())}"
        ) from None


def _gunzip(data: memoryview) -> bytes:
    """A stream may have several members."""
    parts = []
    size = 0
    left: memoryview | bytes = data
    while len(left):
        member = zlib.decompressobj(31)
        parts.append(member.decompress(left, MAX_BATCH + 1 - size))
        size += len(parts[-1])
        if not member.eof:
            raise CompressionError("its gzip data is cut off or too large")
        left = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _stream(codec: str) -> Callable[[memoryview], pa.Buffer]:
    def decompress_stream(data: memoryview) -> pa.Buffer | bytes:
        most, at, parts = most_bytes(len(data)), 0, list[pa.Buffer]()
        piece = max(_PIECE, 8 * len(data))
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), codec) as stream:
            while at <= most:
                parts.append(stream.read_buffer(piece))
                at += len(parts[-1])
                if len(parts[-1]) < piece:
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        raise CompressionError(f"its {codec} data is too large: {len(data)} bytes have more than {most}")

    return decompress_stream


def _unsnappy(data: memoryview) -> bytes | pa.Buffer:
    """Java frames blocks of snappy as xerial's library does; other clients write one block without a frame."""
    if data[: len(_XERIAL)] != _XERIAL:
        return _snappy_block(data)
    parts = []
    at = _XERIAL_HEADER
    size = 0
    while at < len(data):
        if data[at : at + len(_XERIAL)] == _XERIAL:  # streams may follow each other
            at += _XERIAL_HEADER
            continue
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < length <= len(data) - at:
            raise CompressionError("a block of its snappy data is cut off")
        parts.append(_snappy_block(data[at : at + length]))
        size += len(parts[-1])
        if size > MAX_BATCH:
            raise CompressionError("its snappy data is too large")
        at += length
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_block(data: memoryview) -> pa.Buffer:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > MAX_BATCH or size > 64 * len(data):  # a copy of at most 64 bytes takes two bytes at least
        raise CompressionError("its snappy data says an impossible size")
    return pa.Codec("snappy").decompress(pa.py_buffer(data), size)


_DECOMPRESS: tuple[Callable[[memoryview], bytes | pa.Buffer], ...] = (
    bytes,
    _gunzip,
    _unsnappy,
    _stream("lz4"),
    _stream("zstd"),
)
