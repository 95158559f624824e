"""The four bounds of a partition as one value, and what a fetch may read below them."""

from __future__ import annotations

import pytest

from tests.selection import for_each
from txn_source.model.bounds import Bounds
from txn_source.model.errors import InternalError, OutOfRangeError
from txn_source.model.isolation import FetchIsolation, IsolationLevel
from txn_source.model.position import Position, PositionRange


def at(entry: int) -> Position:
    return Position(4, entry)


BOUNDS = Bounds(log_start=at(10), last_stable=at(20), high_watermark=at(30), log_end=at(40))


@for_each(
    ("isolation", "bound"),
    [
        (FetchIsolation.TXN_COMMITTED, at(20)),
        (IsolationLevel.READ_COMMITTED, at(20)),
        (FetchIsolation.HIGH_WATERMARK, at(30)),
        (IsolationLevel.READ_UNCOMMITTED, at(30)),
        (FetchIsolation.LOG_END, at(40)),
    ],
)
def test_fetch_reads_below_the_bound_of_its_isolation(
    isolation: FetchIsolation | IsolationLevel, bound: Position
) -> None:
    """Clip a read of everything, where all four bounds differ."""
    assert BOUNDS.upper(isolation) == bound
    assert BOUNDS.clip(at(10), at(40), isolation) == PositionRange(at(10), bound)


@pytest.mark.parametrize("isolation", FetchIsolation)
@pytest.mark.parametrize("start", [20, 25, 30, 35, 40])
def test_read_at_or_above_the_bound_gives_nothing_and_no_error(isolation: FetchIsolation, start: int) -> None:
    """Clip reads that start at each bound and between them."""
    clipped = BOUNDS.clip(at(start), at(40), isolation)
    assert clipped.start == at(start)
    assert clipped.empty == (at(start) >= BOUNDS.upper(isolation))


def test_read_that_ends_below_the_bound_keeps_its_end() -> None:
    """Clip [12, 15), which lies wholly below the bound, and [12, 12), which is empty."""
    assert BOUNDS.clip(at(12), at(15), FetchIsolation.TXN_COMMITTED) == PositionRange(at(12), at(15))
    assert BOUNDS.clip(at(12), at(12), FetchIsolation.TXN_COMMITTED).empty


def test_read_whose_end_lies_before_its_start_is_empty() -> None:
    """Clip [18, 12): the range must not run backwards."""
    assert BOUNDS.clip(at(18), at(12), FetchIsolation.LOG_END) == PositionRange(at(18), at(18))


@pytest.mark.parametrize(
    ("start", "end"),
    [(at(9), at(20)), (at(10), at(41)), (at(41), at(41)), (Position(3, 99), at(20)), (at(10), Position(5, 0))],
    ids=str,
)
@pytest.mark.parametrize("isolation", FetchIsolation)
def test_position_outside_the_log_is_out_of_range(start: Position, end: Position, isolation: FetchIsolation) -> None:
    """Ask for positions below the log's start and above its end, in the same ledger and in others."""
    with pytest.raises(OutOfRangeError, match=r"^\[TXNLOG_OUT_OF_RANGE\] Position .* has \[4:10, 4:40\)\. Use "):
        BOUNDS.clip(start, end, isolation)


def test_positions_at_both_ends_of_the_log_are_in_range() -> None:
    """Check the first position and the next one to be assigned; neither is an error."""
    BOUNDS.check(at(10))
    BOUNDS.check(at(40))


@pytest.mark.parametrize(
    "entries",
    [(11, 10, 30, 40), (10, 31, 30, 40), (10, 20, 41, 40)],
    ids=["start above stable", "stable above watermark", "watermark above end"],
)
def test_bounds_out_of_order_are_our_bug(entries: tuple[int, int, int, int]) -> None:
    """Make bounds that contradict each other: that is an internal error, not the caller's mistake."""
    with pytest.raises(InternalError, match="disagree"):
        Bounds(*(at(entry) for entry in entries))


def test_high_watermark_stays_inside_the_log() -> None:
    """Derive bounds from watermarks below the log's start and above its end."""
    assert Bounds.of(at(10), at(40), (), at(5)).high_watermark == at(10)
    assert Bounds.of(at(10), at(40), (), at(50)).high_watermark == at(40)
