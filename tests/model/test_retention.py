"""Which ledgers may be offloaded, lose a copy, or go, and which of them policies want to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.selection import for_each
from txn_source.model.ledger import Ledger, OffloadableLedger
from txn_source.model.policies import effective
from txn_source.model.position import Position
from txn_source.model.read_priority import ReadPriority
from txn_source.model.retention import (
    CopyPolicies,
    TrimLimits,
    is_decided,
    may_be_offloaded,
    may_lose_a_copy,
    trimmed_by,
)

NOW_MS = 1_000_000
STABLE = Position(9, 0)


def ledger(ledger_id: int = 1, **changed: Any) -> Ledger:
    """Return a closed ledger of 10 entries and 100 bytes, which has its hot copy alone."""
    fields: dict[str, Any] = {
        "entries": 10, "messages": 20, "bytes": 100, "created_at_ms": 0, "closed_at_ms": 1_000 * ledger_id,
        "offloaded_at_ms": None, "hot_deleted_at_ms": None,
    }  # fmt: skip
    return Ledger(ledger_id=ledger_id, **(fields | changed))


def policies(**given: Any) -> CopyPolicies:
    return CopyPolicies.of(effective({"topic": given}))


def nobody(_: Position) -> None:
    return None


@pytest.mark.parametrize(
    ("last_stable", "decided"),
    [(Position(3, 0), True), (Position(2, 11), False), (Position(2, 0), False), (Position(1, 5), False)],
)
def test_closed_ledger_is_decided_wholly_below_the_last_stable_position(last_stable: Position, decided: bool) -> None:
    """Move the bound over a closed ledger 2; an open one never is decided."""
    assert is_decided(ledger(2), last_stable) is decided
    assert not is_decided(ledger(2, closed_at_ms=None), last_stable)


def test_decided_ledger_may_be_offloaded_once() -> None:
    """Ask for a ledger without an object, with one, and without a hot copy; and for one that isn't decided."""
    assert may_be_offloaded(ledger(), STABLE)
    assert not may_be_offloaded(ledger(offloaded_at_ms=5_000), STABLE)
    assert not may_be_offloaded(ledger(offloaded_at_ms=5_000, hot_deleted_at_ms=6_000), STABLE)
    assert not may_be_offloaded(ledger(), Position(1, 3))


def test_last_copy_never_goes() -> None:
    """Ask for a ledger with both copies, and with each of them alone."""
    assert may_lose_a_copy(ledger(offloaded_at_ms=5_000))
    assert not may_lose_a_copy(ledger())
    assert not may_lose_a_copy(ledger(offloaded_at_ms=5_000, hot_deleted_at_ms=6_000))


@for_each(
    ("limits", "gone"),
    [
        (TrimLimits(), []),
        (TrimLimits(before=Position(3, 0)), [1, 2]),
        (TrimLimits(before=Position(2, 10)), [1, 2]),
        (TrimLimits(before=Position(2, 9)), [1]),
        (TrimLimits(closed_before_ms=2_000), [1]),
        (TrimLimits(closed_before_ms=2_001), [1, 2]),
        (TrimLimits(keep_bytes=300), [1]),
        (TrimLimits(keep_bytes=299), [1]),
        (TrimLimits(keep_bytes=200), [1, 2]),
        (TrimLimits(closed_before_ms=1_500, keep_bytes=200), [1, 2]),
        (TrimLimits(keep_bytes=0), [1, 2, 3]),
    ],
)
def test_ledgers_go_from_the_start_for_any_reason(limits: TrimLimits, gone: list[int]) -> None:
    """Trim a partition of four ledgers, 400 bytes, of which the last one isn't decided."""
    ledgers = [ledger(number) for number in (1, 2, 3, 4)]
    found, held_by = trimmed_by(limits, ledgers, Position(4, 2), 400, nobody)
    assert ([x.ledger_id for x in found], held_by) == (gone, None)


@for_each("needed", [1, 2, 500, 999, 1000, 1001])
def test_few_questions_find_what_is_needed_among_many_ledgers(needed: int) -> None:
    """Trim all of a thousand ledgers but those from the first needed one on; count how often anybody is asked."""
    asked: list[Position] = []

    def keeper(end: Position) -> str | None:
        asked.append(end)
        return "slow" if end.ledger_id >= needed else None

    ledgers = [ledger(number) for number in range(1, 1001)]
    found, held_by = trimmed_by(TrimLimits(keep_bytes=0), ledgers, Position(1001, 0), 100_000, keeper)
    assert len(found) == needed - 1
    assert held_by == ("slow" if needed <= 1000 else None)
    assert len(asked) <= 10


def offloadable(ledger_id: int, partition_id: int, closed_at_ms: int) -> OffloadableLedger:
    return OffloadableLedger(
        ledger_id=ledger_id, entries=1, messages=1, bytes=100, created_at_ms=0, closed_at_ms=closed_at_ms,
        partition=partition_id, partition_id=partition_id,
    )  # fmt: skip


@for_each(
    ("given", "due"),
    [
        ({}, []),
        ({"offload_after_age": 1}, [1, 3]),
        ({"offload_after_bytes": 250}, [1, 2]),
        ({"offload_after_bytes": 399}, [1]),
        ({"offload_after_bytes": 400}, []),
        ({"offload_after_age": 1, "offload_after_bytes": 250}, [1, 3, 2]),
    ],
)
def test_thresholds_offload_by_age_and_by_size(given: dict[str, Any], due: list[int]) -> None:
    """Let two ledgers of a partition with 400 bytes, and one of a small partition, wait; two of them are old enough."""
    ledgers = [offloadable(1, 7, NOW_MS - 1_001), offloadable(2, 7, NOW_MS - 1_000), offloadable(3, 8, 0)]
    in_force = policies(**given)
    assert [x.ledger_id for x in in_force.to_offload(ledgers, {7: 400, 8: 100}, NOW_MS)] == due
    assert in_force.offloads is bool(given)


@pytest.mark.parametrize(("age_ms", "due"), [(5_000, False), (5_001, True)])
def test_hot_copy_is_due_when_its_lag_has_passed(age_ms: int, due: bool) -> None:
    """Set a lag of 5 s, and look at a ledger as old as that, and older; without a lag, or an object, it never is."""
    offloaded = ledger(3, offloaded_at_ms=NOW_MS - age_ms)
    assert policies(offload_deletion_lag=5).hot_copy_is_due(offloaded, NOW_MS, None) is due
    assert not policies().hot_copy_is_due(offloaded, NOW_MS, None)
    assert not policies(offload_deletion_lag=5).hot_copy_is_due(ledger(3), NOW_MS, None)


@pytest.mark.parametrize(("first_needed", "kept"), [(2, True), (3, True), (4, False), (None, False)])
def test_hot_copy_that_is_read_is_kept_where_it_is_read_first(first_needed: int | None, kept: bool) -> None:
    """Let a subscription stand in front of, in and behind a ledger whose lag has passed, with both priorities."""
    due = ledger(3, offloaded_at_ms=0)
    for priority in ReadPriority:
        in_force = policies(offload_deletion_lag=5, data_read_priority=priority)
        hot_first = priority is ReadPriority.BOOKKEEPER_FIRST
        assert in_force.hot_copy_is_due(due, NOW_MS, first_needed) is not (kept and hot_first)


def test_retention_is_a_limit_by_age_and_by_size() -> None:
    """Ask for what retention trims at a time, with each policy and without any."""
    assert policies(retention_age=2.5).trim_limits(NOW_MS) == TrimLimits(None, NOW_MS - 2_500, None)
    assert policies(retention_bytes=77).trim_limits(NOW_MS) == TrimLimits(None, None, 77)
    assert policies().trim_limits(NOW_MS) == TrimLimits()
    assert [policies(**given).trims for given in ({"retention_age": 0}, {"retention_bytes": 0}, {})] == [
        True,
        True,
        False,
    ]
