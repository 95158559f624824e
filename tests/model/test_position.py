"""Positions, message ids and ranges: their order, their texts and their keys."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import (
    MAX_ENTRY_ID,
    MAX_LEDGER_ID,
    MessageId,
    Position,
    PositionRange,
    entry_of,
    key_of,
    ledger_of,
)

LEDGERS, ENTRIES = st.integers(0, MAX_LEDGER_ID), st.integers(0, MAX_ENTRY_ID)
POSITIONS = st.builds(Position, LEDGERS, ENTRIES)


@given(POSITIONS)
def test_position_survives_text_and_key(position: Position) -> None:
    """Write any position as text and as a key, and read it back."""
    assert Position.parse(str(position)) == position
    assert Position.from_key(position.key) == position
    assert 0 <= position.key < 1 << 63


@given(st.lists(POSITIONS))
def test_keys_of_many_are_those_of_each(positions: list[Position]) -> None:
    """Pack and unpack positions in arrays, and each by itself."""
    ledgers = np.array([p.ledger_id for p in positions], np.int64)
    entries = np.array([p.entry_id for p in positions], np.int64)
    keys = key_of(ledgers, entries)
    assert keys.tolist() == [p.key for p in positions]
    assert ledger_of(keys).tolist() == ledgers.tolist() == [ledger_of(p.key) for p in positions]
    assert entry_of(keys).tolist() == entries.tolist() == [entry_of(p.key) for p in positions]


@given(POSITIONS, POSITIONS)
def test_positions_their_keys_and_their_pairs_have_one_order(a: Position, b: Position) -> None:
    """Compare any two positions by ledger, then entry."""
    pairs = (a.ledger_id, a.entry_id) < (b.ledger_id, b.entry_id)
    assert (a < b) == pairs == (a.key < b.key)


@given(LEDGERS, ENTRIES, st.integers(0, 1 << 31))
def test_message_id_survives_text(ledger: int, entry: int, index: int) -> None:
    """Write any message id as text and read it back; it lies in the entry at its position."""
    message_id = MessageId(ledger, entry, index)
    assert MessageId.parse(str(message_id)) == message_id
    assert message_id.position == Position(ledger, entry)


def test_texts_are_those_that_people_write() -> None:
    """Spell out one of each, with spaces around, and the value itself where a text would do."""
    assert Position.parse(" 12:40 ") == Position(12, 40)
    assert str(Position(12, 40)) == "12:40"
    assert MessageId.parse("12:40:3") == MessageId(12, 40, 3)
    assert str(MessageId(12, 40, 3)) == "12:40:3"
    assert str(PositionRange(Position(1, 2), Position(3, 4))) == "[1:2, 3:4)"
    assert Position.parse(Position(1, 2)) == Position(1, 2)
    assert MessageId.parse(MessageId(1, 2, 3)) == MessageId(1, 2, 3)


def test_inclusive_last_position_of_an_empty_ledger_has_entry_minus_one() -> None:
    """Read and order Pulsar's 12:-1: it lies before the ledger's first entry."""
    assert Position.parse("12:-1") == Position(12, -1) < Position(12, 0)


def test_message_ids_are_ordered_inside_their_entry() -> None:
    """Sort message ids of one entry, of the next one and of the next ledger."""
    backwards = [MessageId(2, 0, 0), MessageId(1, 10, 0), MessageId(1, 9, 2), MessageId(1, 9, 0)]
    assert sorted(backwards) == backwards[::-1]


BAD_POSITIONS = ["", "12", "12:", ":40", "12:40:3", "12-40", "a:b", "-1:0", "12:-2", "1.5:0", "١٢:٤٠", 12, None, (1, 2)]


@for_each("value", BAD_POSITIONS)
def test_text_that_is_no_position_is_refused(value: object) -> None:
    """Parse malformed positions: the error shows the value and how to write one."""
    with pytest.raises(InvalidArgumentError) as caught:
        Position.parse(value)  # type: ignore[arg-type]
    assert (
        str(caught.value)
        == f'[TXNLOG_INVALID_ARGUMENT] {value!r} is not a position. Write it as "ledger:entry", such as "12:40".'
    )


@for_each("value", ["", "12:40", "12:40:-1", "12:-1:0", "1:2:3:4", "a:b:c", 5, None])
def test_text_that_is_no_message_id_is_refused(value: object) -> None:
    """Parse malformed message ids: the error shows the value and how to write one."""
    with pytest.raises(InvalidArgumentError, match=r"is not a message id\. Write it as \"ledger:entry:index\""):
        MessageId.parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [f"{MAX_LEDGER_ID + 1}:0", f"0:{MAX_ENTRY_ID + 1}", "9" * 10 + ":0"])
def test_position_that_no_ledger_can_have_is_refused(text: str) -> None:
    """Parse numbers just above the largest ids, as a position and as a message id."""
    for parse in (lambda: Position.parse(text), lambda: MessageId.parse(f"{text}:0")):
        with pytest.raises(InvalidArgumentError, match=r"out of bounds\. A ledger id lies in \[0, 2147483647\]"):
            parse()


@for_each("ids", [(-1, 0), (0, -2), (MAX_LEDGER_ID + 1, 0), (0, MAX_ENTRY_ID + 1)])
def test_position_cannot_be_made_out_of_bounds(ids: tuple[int, int]) -> None:
    """Construct positions just outside what fits a key."""
    with pytest.raises(InvalidArgumentError, match="out of bounds"):
        Position(*ids)


def test_number_of_thousands_of_digits_is_refused_like_any_other() -> None:
    """Parse numbers that Python itself refuses to convert: the error must still be txnlog's."""
    for parse, text in ((Position.parse, "1" * 5000 + ":0"), (MessageId.parse, "0:0:" + "1" * 5000)):
        with pytest.raises(InvalidArgumentError, match=r"^\[TXNLOG_INVALID_ARGUMENT\]"):
            parse(text)


def test_position_moves_on_in_its_own_ledger() -> None:
    """Add entries to a position; the last readable one before it leads back to it."""
    assert Position(3, 4).plus(5) == Position(3, 9)
    assert Position(3, -1).plus(1) == Position(3, 0)


def test_range_holds_its_start_and_not_its_end() -> None:
    """Ask a range over two ledgers for its edges and for what lies between."""
    over_two = PositionRange(Position(1, 5), Position(2, 3))
    inside = [Position(1, 5), Position(1, 6), Position(1, MAX_ENTRY_ID), Position(2, 0), Position(2, 2)]
    outside = [Position(0, 9), Position(1, 4), Position(2, 3), Position(2, 4), Position(3, 0)]
    assert all(position in over_two for position in inside)
    assert not any(position in over_two for position in outside)


def test_range_is_empty_if_it_ends_where_it_starts_or_before() -> None:
    """Ask ranges of one entry, of none, and backwards."""
    assert not PositionRange(Position(1, 1), Position(1, 2)).empty
    assert PositionRange(Position(1, 1), Position(1, 1)).empty
    assert PositionRange(Position(2, 0), Position(1, 9)).empty
