"""Kafka's variable-length integers, many at once: zigzag, seven bits to a byte, the lowest first (as protobuf's)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

INT_BYTES, LONG_BYTES = 5, 10
"""The most bytes that a 32-bit and a 64-bit integer take."""


def read_varints(data: Bytes, at: Ints, most: int) -> tuple[Ints, Ints]:
    """Return the integers that begin at each place, and where each ends, exclusive.

    What lies past the end of the data reads as its last byte: a caller holds the ends against its own bounds. One that
    takes more than ``most`` bytes ends ``most + 1`` behind the data, so no bound has room for it.
    """
    first = data.take(at, mode="clip")
    raw = first.astype(np.int64)
    ends = at + 1
    more = first > 127
    shift = 7
    while more.any():
        if shift == 7 * most:
            ends = np.where(more, len(data) + most + 1, ends)
            break
        following = data.take(ends, mode="clip").astype(np.int64)
        raw += ((following - 1) << shift) * more  # the 1 is the bit that said "more"
        ends += more
        more &= following > 127
        shift += 7
    return zigzag(raw), ends


def bytes_at(data: Bytes, size: int) -> npt.NDArray[np.void]:
    """Return so many bytes from each place on, as an array of them all that copies nothing: who takes some does."""
    return np.ndarray((max(len(data) - size + 1, 0),), f"V{size}", data, strides=(1,))


def zigzag(raw: Ints) -> Ints:
    """Return signed integers from unsigned ones, whose lowest bit is the sign."""
    return ((raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1)


def read_varint(data: memoryview | bytes, at: int, end: int) -> tuple[int, int]:
    """Return the integer at a place and where it ends; the end is past ``end`` if it doesn't fit below that."""
    raw = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, end + 1
