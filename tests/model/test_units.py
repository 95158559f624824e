"""Durations and sizes as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.units import given_duration, parse_duration, parse_size


@for_each(
    ("text", "seconds"),
    [
        ("24h", 86_400),
        ("1h30m", 5400),
        ("90s", 90),
        ("1.5d", 129_600),
        ("250ms", 0.25),
        (" 2M ", 120),
        ("0", 0),
    ],
)
def test_duration_is_read(text: str, seconds: float) -> None:
    """Each spelling has one meaning in seconds."""
    assert parse_duration(text) == seconds


@for_each("text", ["", "h", "1 day", "-1s", "1h 30m", "1e3", "1,5s", "1w"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    """Nothing is guessed: each is an error that shows how to write it."""
    with pytest.raises(InvalidArgumentError, match="Write it as 7d"):
        parse_duration(text)


@for_each(
    ("text", "size"), [("1", 1), ("64m", 64 << 20), ("1G", 1 << 30), ("8 KiB", 8192), ("8kb", 8192), ("2t", 2 << 40)]
)
def test_size_is_read(text: str, size: int) -> None:
    """Letters are powers of 1024, as in Spark."""
    assert parse_size(text) == size


@for_each("text", ["", "m", "-1", "1.5g", "1x"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    """Nothing is guessed: each is an error that shows how to write it."""
    with pytest.raises(InvalidArgumentError, match="Write it as 64m"):
        parse_size(text)


@pytest.mark.parametrize("text", ["7", "0.5", " 60 "])
def test_duration_without_a_unit_is_refused(text: str) -> None:
    """Give a bare number: the error shows it with every unit that may have been meant."""
    number = text.strip()
    with pytest.raises(InvalidArgumentError) as caught:
        parse_duration(text)
    assert str(caught.value) == (
        f"[TXNLOG_INVALID_ARGUMENT] {text!r} has no unit."
        f" Write {number}d, {number}h, {number}m, {number}s or {number}ms."
    )


@for_each(
    ("value", "seconds"),
    [(7, 7), (0.5, 0.5), ("7d", 604_800.0), (timedelta(days=1, seconds=1), 86_401.0), (None, None)],
)
def test_duration_is_taken_as_number_text_or_timedelta(value: Any, seconds: Any) -> None:
    """Give seconds, a text with its unit, and a timedelta; what is none of them is judged elsewhere."""
    assert given_duration(value) == seconds
