"""Repeated work: at once, after each interval, after errors, and never after ``stop``."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from txn_source.process.repeating import Repeating

WAIT_S, LONG_S, SHORT_S = 30.0, 3600.0, 0.001
Make = Callable[[float, Callable[[], object]], Repeating]


@pytest.fixture
def make() -> Iterator[Make]:
    """Make repeated work; the end of the test stops all of it."""
    made: list[Repeating] = []

    def repeating(every_s: float, work: Callable[[], object]) -> Repeating:
        made.append(Repeating(every_s, work, "work"))
        return made[-1]

    yield repeating
    for each in made:
        assert each.stop(WAIT_S)


class Rounds:
    """Work that counts its rounds and reports the awaited one; each round calls ``within``."""

    def __init__(self, until: int, within: Callable[[int], object] = lambda _: None) -> None:
        self._until = until
        self._within = within
        self.count = 0
        self.reached = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._until:
            self.reached.set()
        self._within(self.count)


def test_work_is_done_at_once_and_an_interval_is_cut_short_by_its_end(make: Make) -> None:
    """Start with an interval of an hour, and stop after the first round."""
    rounds = Rounds(1)
    repeating = make(LONG_S, rounds)
    repeating.start()
    assert rounds.reached.wait(WAIT_S)
    assert repeating.stop(WAIT_S)
    assert rounds.count == 1


def test_work_is_repeated_though_it_fails(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Fail the first two rounds: both errors are logged, and a third and a fourth round follow."""

    def fail(number: int) -> None:
        if number <= 2:
            raise ValueError(f"round {number}")

    rounds = Rounds(4, fail)
    make(SHORT_S, rounds).start()
    assert rounds.reached.wait(WAIT_S)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in told] == ["work failed and is tried again"] * 2
    assert [str(record.exc_info[1]) for record in told if record.exc_info] == ["round 1", "round 2"]


def test_work_under_way_is_left_after_the_grace_and_not_begun_again(make: Make) -> None:
    """Stop during a long round without grace: the round goes on, and is the last one."""
    going_on = threading.Event()
    rounds = Rounds(1, lambda _: going_on.wait(WAIT_S))
    repeating = make(SHORT_S, rounds)
    repeating.start()
    assert rounds.reached.wait(WAIT_S)
    assert not repeating.stop(0.0)
    going_on.set()
    assert repeating.stop(WAIT_S)
    assert rounds.count == 1


def test_work_that_waits_is_woken_by_the_end(make: Make) -> None:
    """Let a round wait for ``stopping`` for an hour: ``stop`` ends the wait."""
    woken: list[bool] = []
    rounds = Rounds(1, lambda _: woken.append(repeating.stopping.wait(LONG_S)))
    repeating = make(SHORT_S, rounds)
    repeating.start()
    assert rounds.reached.wait(WAIT_S)
    assert repeating.stop(WAIT_S)
    assert woken == [True]


def test_what_was_stopped_before_it_was_started_does_nothing(make: Make) -> None:
    """Stop before the start: no round takes place."""
    rounds = Rounds(1)
    repeating = make(SHORT_S, rounds)
    assert repeating.stop(WAIT_S)
    repeating.start()
    assert repeating.stop(WAIT_S)
    assert rounds.count == 0
