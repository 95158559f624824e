"""Keys to partitions: Murmur3 (x86, 32 bit, seed 0) of the key's bytes, sign bit cleared, modulo the partitions.

It is what Pulsar's ``Murmur3_32Hash`` does, so a key lands in the partition of the same index there. The algorithm is
Austin Appleby's MurmurHash3_x86_32 (SMHasher, public domain): 4-byte blocks mixed into a state of 32 bits.
"""

from __future__ import annotations

import mmh3
import numpy as np
import numpy.typing as npt

_INT32_MAX = 0x7FFFFFFF
_CHUNK_KEYS = 8_192
"""Hashed at once: what lies between two steps stays in the processor's cache."""
_LONG_KEY_BYTES = 128
"""A key that is longer is hashed faster by itself."""
_BLOCK = np.dtype("<u4")
_KEPT_OF_TAIL = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_FINAL_STEPS = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))
_Hashes = npt.NDArray[np.uint32]


def partition_of(key: bytes, partitions: int) -> int:
    """Return the index in ``[0, partitions)`` of the partition that a key belongs to."""
    return (mmh3.hash(key, 0, False) & _INT32_MAX) % partitions


def partitions_of(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.signedinteger], partitions: int
) -> npt.NDArray[np.int64]:
    """Return what ``partition_of`` does, for many keys at once.

    Args:
        data: the keys' bytes.
        offsets: the first byte of each key, inclusive, and at the end that of the last one's end, exclusive.
        partitions: how many there are.
    """
    if len(data) < _BLOCK.itemsize:
        data = np.pad(data, (0, _BLOCK.itemsize - len(data)))
    blocks = np.ndarray(len(data) - _BLOCK.itemsize + 1, _BLOCK, data, strides=(1,))
    found = np.empty(len(offsets) - 1, np.int64)
    for first in range(0, len(found), _CHUNK_KEYS):
        edges = offsets[first : first + _CHUNK_KEYS + 1].astype(np.int64)
        found[first : first + _CHUNK_KEYS] = (_hashes(data, blocks, edges) & np.uint32(_INT32_MAX)) % partitions
    return found


def _hashes(data: npt.NDArray[np.uint8], blocks: _Hashes, offsets: npt.NDArray[np.int64]) -> _Hashes:
    """Return the hash of each key. ``blocks`` has the four bytes from each byte of ``data`` on."""
    order = np.argsort(np.diff(offsets), kind="stable")  # then the keys that have an n-th block are the last ones
    starts, lengths = offsets[:-1][order], np.diff(offsets)[order]
    short = int(np.searchsorted(lengths, _LONG_KEY_BYTES, "right"))
    hashes = np.empty(len(order), np.uint32)
    hashes[order[:short]] = _hashes_of_ascending(blocks, starts[:short], lengths[:short])
    for index, start, length in zip(*(a[short:].tolist() for a in (order, starts, lengths)), strict=True):
        hashes[index] = mmh3.hash(data[start : start + length].tobytes(), 0, False)
    return hashes


def _hashes_of_ascending(blocks: _Hashes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> _Hashes:
    """Return the hashes of keys whose lengths ascend."""
    hashes = np.zeros(len(starts), np.uint32)
    for done in range(0, int(lengths.max(initial=0)) & ~3, _BLOCK.itemsize):
        first = int(np.searchsorted(lengths, done + _BLOCK.itemsize))
        mixed = hashes[first:] ^ _scrambled(blocks[starts[first:] + done])
        hashes[first:] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    tails = starts + (lengths & ~3)
    at = np.minimum(tails, len(blocks) - 1)  # a tail may lie so near to the end that no block begins with it
    tail = blocks[at] >> (8 * (tails - at)).astype(np.uint32) & _KEPT_OF_TAIL[lengths & 3]
    hashes ^= _scrambled(tail) ^ lengths.astype(np.uint32)
    for shift, factor in _FINAL_STEPS:
        hashes = (hashes ^ hashes >> np.uint32(shift)) * np.uint32(factor)
    return hashes


def _scrambled(block: _Hashes) -> _Hashes:
    return _rotated(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(value: _Hashes, by: int) -> _Hashes:
    return value << np.uint32(by) | value >> np.uint32(32 - by)
