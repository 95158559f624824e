"""The thread that writes what has waited long enough: by the clock it is given, and only while something waits."""

from __future__ import annotations

import gc
import weakref
from queue import SimpleQueue

from txn_source.client.writing.linger import Linger

_WAIT_S = 30.0


class Waiter:
    """Stands for a producer; each look at it is noted."""

    name = "waiter"

    def __init__(self, answers: list[float | None]) -> None:
        self.answers = answers
        self.looks: SimpleQueue[int] = SimpleQueue()

    def _write_if_due(self) -> float | None:
        answer = self.answers.pop(0)
        self.looks.put(len(self.answers))
        return answer

    def _unreported(self) -> str | None:
        return None


def test_messages_wait_by_the_clock_that_is_given() -> None:
    """Begin to wait at 10 s on a clock that the test moves, twice."""
    now = [10.0]
    linger = Linger("linger", 2.5, lambda: now[0])
    waiter = Waiter([None, None])
    linger.start(waiter)
    assert linger.left == 2.5
    now[0] = 13.0
    assert linger.left == -0.5
    linger.start(waiter)
    assert linger.left == 2.5
    assert [waiter.looks.get(timeout=_WAIT_S) for _ in range(2)] == [1, 0]
    linger.stop()
    linger.join()


def test_thread_looks_again_when_it_was_told_to() -> None:
    """Answer that it is to look again at once, twice: it does so without being woken."""
    linger = Linger("linger", 0.0, lambda: 0.0)
    waiter = Waiter([0.0, 0.0, None])
    linger.wake(waiter)
    assert [waiter.looks.get(timeout=_WAIT_S) for _ in range(3)] == [2, 1, 0]
    linger.stop()
    linger.join()


def test_thread_holds_nobody_for_whom_nothing_waits() -> None:
    """Have the thread look at one that has nothing to write, and drop it."""
    linger = Linger("linger", 0.0, lambda: 0.0)
    waiter, next_one = Waiter([None]), Waiter([None])
    gone = weakref.ref(waiter)
    linger.wake(waiter)
    assert waiter.looks.get(timeout=_WAIT_S) == 0
    del waiter
    linger.wake(next_one)  # once this was looked at, the thread is past the first one
    assert next_one.looks.get(timeout=_WAIT_S) == 0
    linger.stop()
    linger.join()
    gc.collect()
    assert gone() is None
