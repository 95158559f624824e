"""Columns of keys to partitions: a column is routed as its keys are one by one, however Arrow holds it."""

from __future__ import annotations

import hypothesis.strategies as st
import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings

from tests.selection import for_each
from txn_source.client.writing.routing import group, route
from txn_source.model import routing
from txn_source.model.routing import partition_of

WITHOUT_KEY = -7
ALL = 1 << 31
"""So many partitions that the index is the hash itself, less its sign bit."""
KEYS = st.lists(
    st.none() | st.binary(max_size=12) | st.binary(min_size=120, max_size=140) | st.sampled_from([b"\xff" * 64, b"a"]),
    max_size=30,
)


@settings(deadline=None)
@given(keys=KEYS, cut=st.tuples(st.integers(0, 30), st.integers(0, 30)), partitions=st.integers(1, 1000) | st.just(ALL))
@example(keys=[b"", b"a", b"ab"], cut=(0, 3), partitions=ALL)
@example(keys=[b"", b""], cut=(0, 2), partitions=ALL)
@example(keys=[b"abcd", b"abc"], cut=(0, 2), partitions=ALL)
def test_column_is_routed_as_its_keys_are(keys: list[bytes | None], cut: tuple[int, int], partitions: int) -> None:
    """Route any part of a column: each row goes where Murmur3 of its key alone says, and null where it is told to."""
    first, last = sorted(cut)
    routed = route(pa.array(keys, pa.binary())[first:last], partitions, WITHOUT_KEY)
    assert routed.dtype == np.int64
    assert routed.tolist() == [
        WITHOUT_KEY if key is None else (mmh3.hash(key, 0, False) & 0x7FFFFFFF) % partitions for key in keys[first:last]
    ]


@for_each("length", [*range(10), 15, 16, 17, *range(126, 132), 1000, 70_000])
def test_key_of_any_length_keeps_its_hash(length: int) -> None:
    """Route keys of one length alone, and as the last one of a column: nothing behind the bytes is read."""
    key = bytes(251 * i % 256 for i in range(length))
    for keys in ([key], [b"x", b"1234567", key]):
        assert route(pa.array(keys, pa.binary()), ALL, WITHOUT_KEY).tolist() == [partition_of(k, ALL) for k in keys]


@for_each("rows", [4, 5, 6, 10, 11])
def test_large_column_is_routed_in_parts(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash five keys at once: the edges of these parts aren't seen."""
    monkeypatch.setattr(routing, "_CHUNK_KEYS", 5)
    keys = [b"key %d" % n * (n % 4) for n in range(rows)]
    assert route(pa.array(keys, pa.binary()), 7, WITHOUT_KEY).tolist() == [partition_of(key, 7) for key in keys]


def test_bytes_of_a_null_are_not_looked_at() -> None:
    """Mask keys that are there in the column's bytes: they are null all the same, and their neighbours are not."""
    masked = pa.BinaryArray.from_buffers(
        pa.binary(),
        3,
        [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 2, 6, 7], np.int32)), pa.py_buffer(b"aabbbbc")],
    )
    assert masked.to_pylist() == [b"aa", None, b"c"]
    assert route(masked, ALL, WITHOUT_KEY).tolist() == [partition_of(b"aa", ALL), WITHOUT_KEY, partition_of(b"c", ALL)]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_column_without_any_key_is_routed(rows: int) -> None:
    """Route columns of nulls, and empty ones, whose buffers may be missing."""
    for keys in (pa.nulls(rows, pa.binary()), pa.array([None] * rows, pa.binary()), pa.array([b"x"] * 3)[:0]):
        assert route(keys, 5, WITHOUT_KEY).tolist() == [WITHOUT_KEY] * len(keys)


@settings(deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2, 300, 32_767, 32_768, 70_000]), max_size=40))
def test_rows_are_grouped_in_their_order(targets: list[int]) -> None:
    """Group rows over few and many partitions: each partition comes once, ascending, with all its rows in order."""
    found = [(target, rows.to_pylist()) for target, rows in group(np.array(targets, np.int64))]
    assert found == [(t, [i for i, target in enumerate(targets) if target == t]) for t in sorted(set(targets))]
