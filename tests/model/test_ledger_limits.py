"""When an open ledger is full."""

from __future__ import annotations

import pytest

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.ledger_limits import LedgerLimits

LIMITS = LedgerLimits(max_entries=10, max_bytes=1000, max_age_ms=60_000)


@for_each(
    ("entries", "size_bytes", "age_ms", "full"),
    [
        (9, 999, 59_999, False),
        (10, 0, 0, True),
        (1, 1000, 0, True),
        (1, 0, 60_000, True),
        (11, 2000, 70_000, True),
    ],
)
def test_ledger_is_full_at_any_of_its_limits(entries: int, size_bytes: int, age_ms: int, full: bool) -> None:
    """Try each limit by itself, at it and just below it."""
    assert LIMITS.full(entries, size_bytes, age_ms) is full


def test_empty_ledger_is_never_full() -> None:
    """Let an empty ledger grow old: rolling it would only leave empty ledgers behind."""
    assert not LIMITS.full(0, 0, 10**9)


@pytest.mark.parametrize(("field", "name"), [("max_entries", "entries"), ("max_bytes", "bytes"), ("max_age_ms", "age")])
@pytest.mark.parametrize("value", [0, -1])
def test_limit_that_no_entry_could_meet_is_refused(field: str, name: str, value: int) -> None:
    """Set each limit to 0 and below: the error names the policy."""
    with pytest.raises(InvalidArgumentError) as caught:
        LedgerLimits(**{field: value})
    assert str(caught.value) == f"[TXNLOG_INVALID_ARGUMENT] ledger_max_{name} is {value}. Use a number above 0."
