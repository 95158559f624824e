"""Payloads of entries, decompressed: Pulsar's five codecs."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa

from txn_source.storage.untrusted import most_bytes

NONE, LZ4, ZLIB, ZSTD, SNAPPY = range(5)
_NAMES = {LZ4: "lz4_raw", ZSTD: "zstd", SNAPPY: "snappy"}


class CodecError(Exception):
    """A payload that can't be decompressed; its text says why."""


def decompressed(codec: int, data: memoryview, size: int) -> pa.Buffer | memoryview | bytes:
    """Return a payload of ``size`` bytes as they were before compression.

    Raises:
        CodecError: the codec is unknown, or the payload isn't what it made of so many bytes.
    """
    if codec == NONE:
        return data
    if not 0 <= size <= most_bytes(len(data)):
        raise CodecError(f"it says that its {len(data)} bytes have {size}, uncompressed")
    if codec == ZLIB:
        return _inflated(data, size)
    if codec not in _NAMES:
        raise CodecError(f"it has compression {codec}, which nobody knows")
    if not size:
        return b""
    decompress = _decompress(_NAMES[codec])
    if codec == SNAPPY and _snappy_size(data) != size:
        raise CodecError(f"it doesn't have {size} bytes, uncompressed")
    if codec == LZ4 and size > len(data) * 255:
        raise CodecError(f"{len(data)} bytes of LZ4 can't have {size}")
    try:
        found = decompress(data, size)
    except (OSError, pa.ArrowException, MemoryError) as error:
        raise CodecError(f"it can't be decompressed ({str(error).strip()[:100]})") from None
    if codec == LZ4 and not _is_full(data, size):
        raise CodecError(f"it has fewer than {size} bytes, uncompressed")
    return found


def _is_full(data: memoryview, size: int) -> bool:
    """True if a block of LZ4, which can be decompressed to ``size`` bytes, has no fewer: Arrow doesn't tell.

    One that is full doesn't fit into a byte less.
    """
    try:
        _decompress("lz4_raw")(data, size - 1)
    except (OSError, pa.ArrowException):
        return True
    return False


@lru_cache(8)
def _decompress(name: str) -> Callable[[memoryview, int], pa.Buffer]:
    return pa.Codec(name).decompress  # type: ignore[no-any-return]


def _inflated(data: memoryview, size: int) -> bytes:
    """Return what a stream of zlib has; Pulsar ends it with a flush, so it has neither an end nor a checksum."""
    try:
        found = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise CodecError(f"it can't be decompressed ({error})") from None
    if len(found) != size:
        raise CodecError(f"it has {'more' if len(found) > size else 'fewer'} than {size} bytes, uncompressed")
    return found


def _snappy_size(data: memoryview) -> int:
    """Return the length that a block of Snappy begins with; -1 if it has none."""
    value = 0
    for at, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return value
    return -1
