"""Calls in other threads: with a time limit (``within``), started early (``begun``), or watched (``watched``).

A library may block for ever, for example while a store sends a byte now and then. An interrupt ends the wait and never
reaches the library, where it could leave locks and connections in any state.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")
_MOST_THREADS = 16
"""A pool runs at most this many calls at once; more don't make a store faster."""
_IDLE_S = 5.0
_LOOK_S = 0.1


class TooLate(Exception):
    """The call took longer than its limit."""


class Abandoned(Exception):
    """The caller stopped waiting; raised in the call's thread to end it."""


class Call:
    """The state of a call with a time limit, shared with its caller. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False

    def go_on(self) -> None:
        """Raise Abandoned if the caller has stopped waiting."""
        if self._is_over:
            raise Abandoned

    def fill(self, into: memoryview, data: bytes | memoryview) -> None:
        """Copy bytes into the caller's buffer; raise Abandoned once the caller may have reused the buffer."""
        with self._lock:
            self.go_on()
            into[:] = data

    def give_up(self) -> None:
        """Stop waiting: later ``fill`` calls copy nothing."""
        with self._lock:
            self._is_over = True


class _Outcome:
    """The result of a call: a value or an error."""

    def __init__(self) -> None:
        self.is_known = False
        self._value: Any = None
        self._error: BaseException | None = None

    def take(self, call: Callable[[], object]) -> None:
        """Make the call and keep its result."""
        try:
            self._value = call()
        except BaseException as error:
            self._error = error
        self.is_known = True

    def result(self) -> Any:
        """Return the value, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._value

    def forget(self) -> None:
        """Drop the error, whose traceback has the outcome."""
        self._error = None


def within(seconds: float, call: Callable[[Call], R]) -> R:
    """Return what a call returns, or raise what it raises.

    Raises:
        TooLate: the call takes longer. Its thread ends at its next ``go_on`` or ``fill``.
    """
    of, outcome = Call(), _Outcome()
    thread = threading.Thread(target=outcome.take, args=(lambda: call(of),), name="txnlog-request", daemon=True)
    try:
        thread.start()
        thread.join(max(0.0, seconds))
    finally:
        of.give_up()
    if not outcome.is_known:
        raise TooLate(f"it took longer than {seconds:g} s")
    result: R = outcome.result()
    return result


class _Pool:
    """Threads for calls; idle threads end after a few seconds, and none delays the program's end or a fork."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._todo: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._open = 0
        """Tasks that are queued or running."""

    def give(self, task: Callable[[], None]) -> None:
        with self._lock:
            self._open += 1
            new = self._threads < min(self._open, _MOST_THREADS)
            self._threads += new
        self._todo.put(task)
        if new:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError:  # the process can't start threads any more: it ends, or has too many
                self._work(idle_s=0.0)

    def _work(self, idle_s: float = _IDLE_S) -> None:
        while True:
            try:
                task = self._todo.get(timeout=idle_s)
            except Empty:
                with self._lock:
                    if self._todo.empty():
                        self._threads -= 1
                        return
                continue
            task()
            del task  # it has the result
            with self._lock:
                self._open -= 1


_early, _watched = _Pool("txnlog-read"), _Pool("txnlog-call")


def _in_child() -> None:
    global _early, _watched
    _early, _watched = _Pool("txnlog-read"), _Pool("txnlog-call")  # the threads are the parent's


os.register_at_fork(after_in_child=_in_child)


def begun(call: Callable[[], R]) -> Callable[[], R]:
    """Start a call; return a function that waits for its result, and returns or raises it.

    A result that is never asked for is dropped.
    """
    outcome, running = _started(_early, call)

    def result() -> R:
        running.acquire()
        running.release()
        value: R = outcome.result()
        return value

    return result


def watched(call: Callable[[], R], look: Callable[[], None]) -> R:
    """Return what a call returns, or raise what it raises; run ``look`` every 0.1 s while it takes.

    If ``look`` raises, the wait is over, and the call continues alone.
    """
    outcome, running = _started(_watched, call)
    while not running.acquire(timeout=_LOOK_S):
        look()
    try:
        value: R = outcome.result()
        return value
    finally:
        outcome.forget()


def _started(pool: _Pool, call: Callable[[], object]) -> tuple[_Outcome, threading.Lock]:
    """Give a call to a pool; return its outcome, and a lock that is held until this is known."""
    outcome, running = _Outcome(), threading.Lock()
    running.acquire()

    def run() -> None:
        outcome.take(call)
        running.release()

    pool.give(run)
    return outcome, running
