"""Ranges of messages: against plain sets of places, for any ranges in any order."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from txn_source.model.message_ranges import MessageRange, MessageRanges, index_of, message_key, position_of
from txn_source.model.position import Position

PLACES = [message_key(Position(ledger, entry), index) for ledger in (1, 2) for entry in (0, 1, 5) for index in range(4)]
"""Ascending; one message lies at each but the last."""
LAST = len(PLACES) - 1
place = st.integers(0, LAST)


def of(first: int, last: int) -> MessageRange:
    """The range between two numbered places, with the messages in it."""
    return MessageRange(PLACES[first], PLACES[last], max(0, last - first))


ranges = st.builds(of, place, place)


def places_in(item: MessageRange) -> set[int]:
    return {number for number, key in enumerate(PLACES[:-1]) if item.start <= key < item.end}


def places_of(items: list[MessageRange] | MessageRanges) -> set[int]:
    return set().union(*map(places_in, items))


@given(st.integers(0, 2**30), st.integers(0, 2**30), st.integers(0, 2**31))
def test_key_tells_position_and_index(ledger: int, entry: int, index: int) -> None:
    """Take a key apart again."""
    key = message_key(Position(ledger, entry), index)
    assert (position_of(key), index_of(key)) == (Position(ledger, entry), index)


def test_keys_sort_as_messages_do() -> None:
    """Sort places whose ledgers, entries and indexes disagree."""
    assert sorted(PLACES) == PLACES
    assert message_key(Position(1, 0), 2**32 - 1) < message_key(Position(1, 1))


def test_range_is_shown_by_its_message_ids() -> None:
    """Print one."""
    assert str(MessageRange(message_key(Position(12, 40), 3), message_key(Position(12, 41)))) == "[12:40:3, 12:41:0)"


@given(st.lists(ranges))
def test_ranges_are_the_set_of_what_was_added(items: list[MessageRange]) -> None:
    """Add ranges; each place is in the set or not, and the ranges are ascending, disjoint and don't touch."""
    found = MessageRanges(items)
    assert places_of(found) == places_of(items)
    assert all(before.end < after.start for before, after in pairwise(found))
    assert all(item.start < item.end for item in found)
    assert len(found) == len(list(found))


@given(st.lists(st.sampled_from([of(n, n + 1) for n in range(LAST)])))
def test_messages_that_come_one_by_one_are_counted_once(items: list[MessageRange]) -> None:
    """Add single messages, some again: each counts when it is new."""
    found = MessageRanges()
    seen: set[int] = set()
    for item in items:
        new = places_in(item) - seen
        assert found.add(item) == len(new)
        seen |= new
        assert found.messages == len(seen)


@given(st.lists(ranges))
def test_no_message_is_counted_twice(items: list[MessageRange]) -> None:
    """Add ranges that overlap: the count may fall short, and never exceeds what is there."""
    found = MessageRanges()
    for item in items:
        assert found.add(item) >= 0
        assert found.messages <= len(places_of(found))


@given(st.lists(st.sampled_from([of(n, n + 2) for n in range(0, LAST - 1, 4)])), ranges)
def test_range_over_all_that_was_there_counts_what_was_not(items: list[MessageRange], again: MessageRange) -> None:
    """Add a range that holds all the others: the count is exact; what lies inside it then is not new."""
    found = MessageRanges(items)
    assert found.add(of(0, LAST)) == LAST - len(places_of(items))
    assert found.messages == LAST
    assert found.add(again) == 0


@given(st.lists(ranges), ranges)
def test_questions_about_a_range_are_those_of_sets(items: list[MessageRange], item: MessageRange) -> None:
    """Ask whether a range is covered or touched, and which parts of it are there and missing."""
    found = MessageRanges(items)
    there, asked = places_of(items), places_in(item)
    assert found.covers(item) == (asked <= there)
    assert found.touches(item) == (not asked.isdisjoint(there))
    if item.start < item.end:
        assert found.joins(item) == (len(MessageRanges([*found, item])) <= len(found))
    inside = list(found.within(item.start, item.end)) if item.start < item.end else []
    assert places_of(inside) == asked & there
    missing = found.missing(item.start, item.end)
    assert places_of(missing) == asked - there
    assert all(before.end < after.start for before, after in pairwise(missing))
    assert all(item.start <= part.start < part.end <= item.end for part in [*inside, *missing])


@given(st.lists(ranges), place)
def test_dropping_below_a_place_leaves_the_rest(items: list[MessageRange], below: int) -> None:
    """Drop what lies below a place."""
    found = MessageRanges(items)
    found.drop_below(PLACES[below])
    assert places_of(found) == {n for n in places_of(items) if n >= below}
    assert all(item.start >= PLACES[below] for item in found)


@given(st.lists(ranges))
def test_bytes_give_the_same_set(items: list[MessageRange]) -> None:
    """Write and read."""
    found = MessageRanges(items)
    assert MessageRanges.from_bytes(found.to_bytes()) == found
    assert len(found.to_bytes()) == 40 * len(found)


def test_largest_places_survive_bytes() -> None:
    """Write a range at the very end of what positions can say."""
    end = message_key(Position(2**31 - 1, 2**32 - 1), 2**32 - 1)
    found = MessageRanges([MessageRange(end - 1, end, 1)])
    assert MessageRanges.from_bytes(found.to_bytes()) == found


def test_sets_are_equal_by_what_is_in_them() -> None:
    """Compare; they are no keys of dictionaries, for they change."""
    assert MessageRanges([of(0, 2), of(2, 4)]) == MessageRanges([of(0, 4)])
    assert MessageRanges([of(0, 2)]) != MessageRanges([of(0, 3)])
    with pytest.raises(TypeError):
        hash(MessageRanges())
