"""Transactions: their ids, and what makes one unstable on a partition."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.transaction import TxnId

BITS = st.integers(0, (1 << 64) - 1)


@given(BITS, BITS)
def test_id_survives_text(most: int, least: int) -> None:
    """Write any id as text and read it back."""
    txn = TxnId(most, least)
    assert TxnId.parse(str(txn)) == txn


@for_each("text", ["(0,7)", " (0,7) ", "(0, 7)", "0:7", "0,7"])
def test_id_is_read_in_the_forms_that_people_write(text: str) -> None:
    """Parse the log's own form and Pulsar's."""
    assert TxnId.parse(text) == TxnId(0, 7)


def test_id_zero_is_a_valid_id() -> None:
    """Parse and write (0,0); the value itself is taken as it is."""
    assert str(TxnId.parse("(0,0)")) == "(0,0)"
    assert TxnId.parse(TxnId(0, 0)) == TxnId(0, 0)


@for_each("value", ["", "7", "(0,)", "(a,b)", "(-1,0)", "(0,1,2)", "(0,٧)", "(٧,0)", "0" * 5000 + ",1", 7, None])
def test_text_that_is_no_id_is_refused(value: object) -> None:
    """Parse malformed ids: the error shows the value and how to write one."""
    with pytest.raises(InvalidArgumentError) as caught:
        TxnId.parse(value)  # type: ignore[arg-type]
    expected = f'[TXNLOG_INVALID_ARGUMENT] {value!r} is not a transaction id. Write it as "(0,7)".'
    assert str(caught.value) == expected


@for_each("halves", [(-1, 0), (0, -1), (1 << 64, 0), (0, 1 << 64)])
def test_id_cannot_be_made_out_of_bounds(halves: tuple[int, int]) -> None:
    """Construct ids whose halves don't fit 64 bits."""
    with pytest.raises(InvalidArgumentError, match="Both halves are unsigned 64-bit integers"):
        TxnId(*halves)
