"""Dividing a stream's batch over partitions."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from txn_source.model.batch_shares import shared_ends
from txn_source.model.position import Position

_SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=6)
_LIMITS = st.none() | st.integers(1, 100)
_BYTES = 3
"""Of each message."""


def _shared(
    starts: list[int], tops: list[int], messages: int | None, size: int | None, turn: int
) -> tuple[list[int], int]:
    """Divide partitions of one ledger each, in which each entry is a message."""

    def take(index: int, most: int, most_bytes: int) -> tuple[Position, int, int]:
        assert most >= 1
        assert most_bytes >= 1
        assert starts[index] < tops[index]
        count = min(tops[index] - starts[index], most, max(1, most_bytes // _BYTES))
        return Position(1, starts[index] + count), count, count * _BYTES

    places = ([Position(1, at) for at in each] for each in (starts, tops))
    ends, following = shared_ends(*places, messages, size, turn, take)
    return [end.entry_id for end in ends], following


@given(_SIZES, _LIMITS, _LIMITS, st.data())
def test_ends_lie_within_and_together_within_the_limits(
    sizes: list[int], messages: int | None, size: int | None, data: st.DataObject
) -> None:
    """Divide any batch: one that must begin takes one message at least, however small the limits are."""
    turn = data.draw(st.integers(0, len(sizes) - 1))
    ends, following = _shared([0] * len(sizes), sizes, messages, size, turn)
    assert all(0 <= end <= top for end, top in zip(ends, sizes, strict=True))
    assert 0 <= following < len(sizes)
    assert bool(sum(ends)) == bool(sum(sizes))
    assert messages is None or sum(ends) <= messages
    assert size is None or sum(ends) * _BYTES <= max(size, _BYTES) + _BYTES * len(sizes)
    if messages is None and size is None:
        assert ends == sizes


def test_what_one_does_not_use_is_the_others() -> None:
    assert _shared([0, 0, 0], [1, 50, 50], 31, None, 0) == ([1, 15, 15], 1)


@given(st.integers(1, 6), st.integers(1, 5))
def test_partitions_take_turns(partitions: int, rounds: int) -> None:
    """Take a message at a time: after each round all partitions have got as many."""
    starts, turn = [0] * partitions, 0
    for done in range(1, rounds + 1):
        for _ in range(partitions):
            starts, turn = _shared(starts, [rounds] * partitions, 1, None, turn)
        assert starts == [done] * partitions


def test_nothing_to_take_passes_no_turn() -> None:
    assert _shared([5, 5], [5, 5], 1, 1, 1) == ([5, 5], 1)
    assert shared_ends([], [], 1, 1, 0, lambda *_: (Position(1, 0), 0, 0)) == ([], 0)
