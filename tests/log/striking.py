"""Striking a call with an exception at its k-th signal point, or with signals at any time."""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.interrupts.injection import at_signal_point
from txn_source import UnavailableError, client
from txn_source.metadata.stub import consumer_stream

R = TypeVar("R")


class Struck(BaseException):
    """What strikes: no Exception, as Ctrl-C is none."""


class Striker:
    """Calls functions and raises at the k-th signal point that the client passes in this thread."""

    def __init__(self, step: int = 1) -> None:
        """``step``: strike each call at every so many-th point only, at others from one call to the next."""
        self.strikes = 0
        self._step = step
        self._calls = 0

    def at(self, k: int, call: Callable[[], R]) -> R:
        """Call, and strike at the k-th point, from 0; it returns if it has fewer."""
        with at_signal_point(k, (client, consumer_stream), Struck) as injection:
            try:
                return call()
            finally:
                self.strikes += injection.place is not None

    def until_it_passes(self, call: Callable[[], R], after: Callable[[], None] = lambda: None) -> R:
        """Strike at the first points, then further on, until the call gets through; do something after each strike."""
        self._calls += 1
        for k in range(self._calls % self._step, 1_000_000, self._step):
            try:
                return self.at(k, call)
            except Struck:
                after()
        raise AssertionError("it never ended")


@contextmanager
def storm(mean_s: float) -> Iterator[list[bool]]:
    """Raise again and again in the main thread, while the list that the block gets says True.

    Some pauses are long: where a call takes longer than the mean pause, it gets through nevertheless.
    """
    gc.collect()  # what other tests have left
    armed, rng = [False], random.Random(1)

    def strike(*_: object) -> None:
        _set_timer(rng.expovariate(1 / mean_s) * rng.choice((0.5, 0.5, 0.5, 2.0, 20.0)))
        if armed[0]:
            raise Struck

    before, hook = signal.signal(signal.SIGALRM, strike), sys.unraisablehook
    ignored: list[Any] = []  # what was struck in a destructor, and files that closed themselves
    sys.unraisablehook = ignored.append  # of strikes on destructors; pytest's own would be struck in its turn
    _set_timer(mean_s)
    try:
        yield armed
    finally:
        armed[0] = False
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
    of_strikes = (Struck, UnavailableError, ResourceWarning)  # the database may answer that it was interrupted
    others = [each for each in ignored if not issubclass(each.exc_type, of_strikes)]
    assert not others, [(each.exc_value, each.object, each.err_msg) for each in others]


def _set_timer(pause_s: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, max(pause_s, 1e-4))


def free(*locks: Any) -> bool:
    """True if another thread can take all of the locks."""
    taken = []

    def take() -> None:
        for lock in locks:
            if lock.acquire(timeout=60.0):
                lock.release()
                taken.append(lock)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return len(taken) == len(locks)
