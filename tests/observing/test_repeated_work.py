"""What a log tells of work that fails again and again: enough to see it, and not so much that it hides the rest."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from txn_source import UnavailableError
from txn_source.observing.repeated_work import TOLD_EVERY_S, RepeatedWork

AWAY = UnavailableError("The database is away.", "Wait.")
_log = logging.getLogger("work")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def work(clock: Clock, caplog: pytest.LogCaptureFixture) -> Iterator[RepeatedWork]:
    with caplog.at_level(logging.INFO):
        yield RepeatedWork(_log, "maintenance", clock)


def test_night_without_a_database_is_a_line_in_a_minute(
    work: RepeatedWork, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Fail each second for ten minutes: the first is told, then one a minute with how many there were besides."""
    for second in range(600):
        clock.now = second
        work.failed(AWAY)
    assert TOLD_EVERY_S == 60.0
    first, *later = caplog.messages
    assert first == f"maintenance failed and is tried again: {AWAY}"
    assert later == [f"{first} (59 more failures since such a line)"] * 9


def test_end_is_told_once(work: RepeatedWork, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Fail for a while, then work twice: one line says since when and how often; the next failure is a new one."""
    work.succeeded()
    for clock.now in range(10, 70):
        work.failed(AWAY)
    clock.now = 71
    work.succeeded()
    work.succeeded()
    work.failed(AWAY)
    assert caplog.messages[-2:] == [
        "maintenance works again, 61 s after its first of 60 failures",
        f"maintenance failed and is tried again: {AWAY}",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


def test_other_failures_are_told_at_once(work: RepeatedWork, caplog: pytest.LogCaptureFixture) -> None:
    """Fail in two ways by turns: each is told once, a bug with where it came from."""
    for _ in range(3):
        work.failed(AWAY)
        try:
            raise ZeroDivisionError("of the figures")
        except ZeroDivisionError as error:
            work.failed(error)
    ours, bug = caplog.records
    assert ours.exc_info is None
    assert bug.getMessage().endswith("tried again: ZeroDivisionError: of the figures")
    assert bug.exc_info is not None
    assert bug.exc_info[0] is ZeroDivisionError
