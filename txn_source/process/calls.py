"""Calls in threads of their own: within so many seconds, or begun now and waited for later.

A library that is called so may take for ever, as when a store sends a byte now and then. Whoever waits can be
interrupted, and the library never is: an exception in the middle of it would leave its locks and connections in any
state.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")
_MOST_THREADS = 16
"""So many of the calls that a process has begun are under way at most; a store is not served better by more."""
_IDLE_S = 5.0


class TooLate(Exception):
    """A call took longer than it was given."""


class Abandoned(Exception):
    """Nobody waits for a call any more. It is raised in its thread, so that this ends."""


class Call:
    """What a call that may be given up asks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False

    def go_on(self) -> None:
        """Raise Abandoned if nobody waits any more."""
        if self._is_over:
            raise Abandoned

    def fill(self, into: memoryview, data: bytes | memoryview) -> None:
        """Copy bytes to whoever waits; raise Abandoned if nobody does, whose buffer may be in use by others."""
        with self._lock:
            self.go_on()
            into[:] = data

    def give_up(self) -> None:
        """From now on nothing is copied."""
        with self._lock:
            self._is_over = True


class _Outcome:
    """What comes of a call: a value or an error."""

    def __init__(self) -> None:
        self.is_known = False
        self._value: Any = None
        self._error: BaseException | None = None

    def take(self, call: Callable[[], object]) -> None:
        """Carry out the call."""
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


def within(seconds: float, call: Callable[[Call], R]) -> R:
    """Return what a call returns, or raise what it raises.

    Raises:
        TooLate: it takes longer. Its thread ends when it next asks if it is to go on.
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
    """Threads that end when nothing was to be done for a while. They hold up neither the program's end nor a fork."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._open = 0
        """Tasks that were given and aren't done."""

    def give(self, task: Callable[[], None]) -> None:
        with self._lock:
            self._open += 1
            new = self._threads < min(self._open, _MOST_THREADS)
            self._threads += new
        self._todo.put(task)
        if new:
            threading.Thread(target=self._work, name="txnlog-read", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                task = self._todo.get(timeout=_IDLE_S)
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


_pool = _Pool()


def _in_child() -> None:
    global _pool
    _pool = _Pool()  # the threads are the parent's


os.register_at_fork(after_in_child=_in_child)


def begun(call: Callable[[], R]) -> Callable[[], R]:
    """Begin a call; return what waits for it, and returns, or raises, what came of it.

    A result that nobody waits for any more is dropped when it comes.
    """
    outcome, ended = _Outcome(), threading.Event()

    def run() -> None:
        outcome.take(call)
        ended.set()

    _pool.give(run)

    def result() -> R:
        ended.wait()
        value: R = outcome.result()
        return value

    return result
