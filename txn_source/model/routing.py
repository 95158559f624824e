"""Keys to partitions: Murmur3 (x86, 32 bit, seed 0) of the key's bytes, sign bit cleared, modulo the partitions.

It is what Pulsar's ``Murmur3_32Hash`` does, so a key lands in the partition of the same index there.
"""

from __future__ import annotations

import mmh3

_INT32_MAX = 0x7FFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the index in ``[0, partitions)`` of the partition that a key belongs to."""
    return (mmh3.hash(key, 0, False) & _INT32_MAX) % partitions
