"""Keys to partitions: the hash is Murmur3 and stays it, or keys of running topics would change their partition."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from tests.selection import for_each
from txn_source.model.routing import partition_of

ALL = 1 << 31
"""So many partitions that the index is the hash itself, less its sign bit."""


def murmur3_x86_32(data: bytes) -> int:
    """Austin Appleby's MurmurHash3_x86_32 (SMHasher, public domain) with seed 0, written down once more."""
    mask, h = 0xFFFFFFFF, 0

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> 32 - by) & mask

    for start in range(0, len(data), 4):
        block = data[start : start + 4]
        k = int.from_bytes(block, "little") * 0xCC9E2D51 & mask
        h ^= rotated(k, 15) * 0x1B873593 & mask
        if len(block) == 4:
            h = (rotated(h, 13) * 5 + 0xE6546B64) & mask
    h ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> shift) * factor & mask
    return h


PUBLISHED = [
    (b"", 0x00000000),
    (b"\xff\xff\xff\xff", 0x76293B50),
    (b"\x21\x43\x65\x87", 0xF55B516B),
    (b"\x21\x43\x65", 0x7E4A8634),
    (b"\x21\x43", 0xA0F7B07A),
    (b"\x21", 0x72661CF4),
    (b"\x00\x00\x00\x00", 0x2362F9DE),
    (b"\x00\x00\x00", 0x85F0B427),
    (b"\x00\x00", 0x30F4C306),
    (b"\x00", 0x514E28B7),
    (b"test", 0xBA6BD213),
    (b"Hello, world!", 0xC0363E43),
    (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
]
"""Those with seed 0 of Ian Boyd's test vectors (stackoverflow.com/questions/14747343) and of Wikipedia's."""


@for_each(("key", "hash32"), PUBLISHED)
def test_hash_has_the_published_values(key: bytes, hash32: int) -> None:
    """Compare with published values of the hash, and those with the hash written down here."""
    assert murmur3_x86_32(key) == hash32
    assert partition_of(key, ALL) == hash32 & 0x7FFFFFFF


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_partition_is_the_hash_without_its_sign_modulo_the_partitions(key: bytes, partitions: int) -> None:
    """Compare with the hash written down here, for any key and number of partitions."""
    assert partition_of(key, partitions) == (murmur3_x86_32(key) & 0x7FFFFFFF) % partitions
