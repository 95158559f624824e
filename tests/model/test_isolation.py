"""Isolation levels: their texts, and the fetch isolation of each."""

from __future__ import annotations

import pytest

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel


@pytest.mark.parametrize("level", IsolationLevel)
@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title, lambda text: f" {text} "])
@pytest.mark.parametrize("separator", "-_")
def test_case_and_separator_do_not_matter(level: IsolationLevel, spelling: object, separator: str) -> None:
    """Parse each level in many spellings."""
    text = spelling(str(level).replace("_", separator))  # type: ignore[operator]
    assert IsolationLevel.parse(text) is level
    assert IsolationLevel.parse(level) is level


BAD = ["", "committed", "read committed", "readcommitted", "serializable", "read_committed,read_uncommitted", None, 1]


@for_each("value", BAD)
def test_anything_else_is_refused_with_the_two_levels(value: object) -> None:
    """Parse what is no level: the error shows the value and lists both levels."""
    with pytest.raises(InvalidArgumentError) as caught:
        IsolationLevel.parse(value)  # type: ignore[arg-type]
    expected = f"[TXNLOG_INVALID_ARGUMENT] {value!r} is not an isolation level. Use read_committed or read_uncommitted."
    assert str(caught.value) == expected
