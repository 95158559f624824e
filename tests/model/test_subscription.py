"""Types of subscriptions, and the cursor: against a plain set of acknowledged messages."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.model.test_message_ranges import LAST, PLACES, of, place, places_in, places_of, ranges
from tests.selection import for_each
from txn_source import InvalidArgumentError, SubscriptionType
from txn_source.model import subscription
from txn_source.model.message_ranges import MessageRange
from txn_source.model.subscription import Cursor

Step = MessageRange | int
"""Acknowledge a range, or everything below a place."""
steps = st.lists(ranges | place)


def carried_out(start: int, what: list[Step]) -> tuple[Cursor, set[int]]:
    """Do the steps to a cursor, and to a set."""
    cursor, acknowledged = Cursor(PLACES[start]), set(range(start))
    for step in what:
        if isinstance(step, int):
            cursor.acknowledge_up_to(PLACES[step])
            acknowledged |= set(range(step))
        else:
            cursor.acknowledge([step])
            acknowledged |= places_in(step)
    return cursor, acknowledged


@given(place, steps)
def test_mark_stands_at_the_first_message_that_is_not_acknowledged(start: int, what: list[Step]) -> None:
    """Acknowledge in any order: the mark is as high as it can be, and the ranges are what lies above it."""
    cursor, acknowledged = carried_out(start, what)
    first = next((n for n in range(LAST) if n not in acknowledged), LAST)
    assert cursor.mark == PLACES[first]
    assert places_of(cursor.ranges) == {n for n in acknowledged if n > first}
    assert all(item.start > cursor.mark for item in cursor.ranges)


@given(place, steps, ranges)
def test_wanted_is_what_is_not_acknowledged(start: int, what: list[Step], asked: MessageRange) -> None:
    """Ask for a stretch after any steps."""
    cursor, acknowledged = carried_out(start, what)
    assert places_of(cursor.wanted(asked.start, asked.end)) == places_in(asked) - acknowledged
    if asked.start < asked.end:
        assert cursor.has(asked) == (not places_in(asked).isdisjoint(acknowledged))


@given(place, steps)
def test_acknowledging_again_changes_nothing(start: int, what: list[Step]) -> None:
    """Do all steps twice."""
    once, _ = carried_out(start, what)
    twice, _ = carried_out(start, what + what)
    assert (twice.mark, list(twice.ranges)) == (once.mark, list(once.ranges))


@given(place, st.lists(st.integers(0, LAST - 1)))
def test_new_messages_are_counted(start: int, numbers: list[int]) -> None:
    """Acknowledge single messages: each counts once, and none below the mark does."""
    cursor = Cursor(PLACES[start])
    new = sum(cursor.acknowledge([of(n, n + 1)]) for n in numbers)
    assert new == len({n for n in numbers if n >= start})


def test_too_many_ranges_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave gaps beyond the limit: what would be one range more is not acknowledged; what joins one is."""
    monkeypatch.setattr(subscription, "MAX_RANGES", 3)
    cursor = Cursor(PLACES[0])
    assert [cursor.acknowledge([of(n, n + 1)]) for n in (2, 4, 6, 8, 7)] == [1, 1, 1, 0, 1]
    assert places_of(cursor.ranges) == {2, 4, 6, 7}
    assert cursor.acknowledge([of(0, 2)]) == 2  # at the mark: it makes none
    assert cursor.mark == PLACES[3]
    assert cursor.acknowledge([of(8, 9), of(10, 11)]) == 2


@pytest.mark.parametrize("text", ["shared", "SHARED", " Shared ", SubscriptionType.SHARED])
def test_type_is_parsed_in_any_case(text: str) -> None:
    """Write it in several ways."""
    assert SubscriptionType.parse(text) is SubscriptionType.SHARED


@for_each("text", ["", "key_shared", "exclusive,shared", None, 1])
def test_other_types_are_refused(text: str) -> None:
    """Name what isn't one: the error lists those that are."""
    with pytest.raises(InvalidArgumentError, match="Use one of exclusive, failover, shared"):
        SubscriptionType.parse(text)
