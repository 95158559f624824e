"""The ids of many messages: a sequence like any other, kept in arrays."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from txn_source.client.writing.message_ids import MessageIds
from txn_source.model.position import MAX_ENTRY_ID, MAX_LEDGER_ID, MessageId

IDS = st.lists(
    st.builds(MessageId, st.integers(0, MAX_LEDGER_ID), st.integers(0, MAX_ENTRY_ID), st.integers(0, (1 << 31) - 1))
)


def kept(ids: list[MessageId]) -> MessageIds:
    keys = np.array([i.position.key for i in ids], np.int64)
    return MessageIds(keys, np.array([i.batch_index for i in ids], np.int32))


@given(IDS)
def test_ids_are_given_back_as_they_are(ids: list[MessageId]) -> None:
    """Keep any ids and take them out again: one by one, from the end, and all."""
    several = kept(ids)
    assert list(several) == ids
    assert len(several) == len(ids)
    assert [several[i - len(ids)] for i in range(len(ids))] == ids
    assert all(type(number) is int for i in several for number in (i.ledger_id, i.entry_id, i.batch_index))


@given(IDS, st.slices(10))
def test_slice_is_a_sequence_of_ids(ids: list[MessageId], part: slice) -> None:
    """Slice any ids as a list is sliced."""
    assert isinstance(kept(ids)[part], MessageIds)
    assert list(kept(ids)[part]) == ids[part]


def test_ids_are_compared_item_by_item() -> None:
    """Compare with lists and with other ids; there is no hash, as with lists."""
    ids = [MessageId(1, 2, 0), MessageId(1, 2, 1)]
    assert kept(ids) == ids
    assert kept(ids) == kept(ids)
    assert kept(ids) != ids[:1]
    assert kept(ids) != ids[::-1]
    assert kept(ids) != 5
    with pytest.raises(TypeError):
        hash(kept(ids))


def test_index_outside_is_an_error() -> None:
    """Ask for an item behind the last and before the first."""
    for index in (2, -3):
        with pytest.raises(IndexError):
            kept([MessageId(0, 0, 0), MessageId(0, 0, 1)])[index]


def test_few_are_shown_of_many() -> None:
    """Show none, three and a million: the text stays short."""
    assert repr(kept([])) == "<0 message ids>"
    assert repr(kept([MessageId(1, 2, i) for i in range(3)])) == "<3 message ids: 1:2:0, 1:2:1, 1:2:2>"
    many = MessageIds(np.zeros(1_000_000, np.int64), np.zeros(1_000_000, np.int32))
    assert repr(many) == "<1,000,000 message ids: 0:0:0, 0:0:0, 0:0:0, ...>"


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=4))
def test_joined_ids_are_in_the_order_of_their_turns(turns: list[list[int]]) -> None:
    """Join parts with any turns, and compare with a stable sort; the parts stay as they were."""
    parts = [[MessageId(p, i, i) for i in range(len(turn))] for p, turn in enumerate(turns)]
    given_parts = [kept(part) for part in parts]
    joined = MessageIds.join(given_parts, [np.array(turn, np.int64) for turn in turns])
    pairs = [pair for turn, part in zip(turns, parts, strict=True) for pair in zip(turn, part, strict=True)]
    assert joined == [message_id for _, message_id in sorted(pairs, key=lambda pair: pair[0])]
    assert given_parts == parts
