"""Striking a call with an exception at its k-th line, or with signals at any time."""

from __future__ import annotations

import dis
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import txn_source

_CLIENT = str(Path(txn_source.__file__).parent / "client")
_LINK = str(Path(txn_source.__file__).parent / "metadata" / "consumer_link.py")
R = TypeVar("R")


class Struck(BaseException):
    """What strikes: no Exception, as Ctrl-C is none."""


class Striker:
    """Calls functions and raises at the k-th line, or function's beginning, that the client runs in this thread."""

    def __init__(self) -> None:
        self.strikes = 0

    def at(self, k: int, call: Callable[[], R]) -> R:
        """Call, and strike at the k-th line; it returns if it has fewer."""
        left = k

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            code = frame.f_code
            if not code.co_filename.startswith((_CLIENT, _LINK)):
                return trace if event == "call" else None
            if event == "call" or (event == "line" and frame.f_lasti not in _ends_of_with(code)):
                left -= 1
                if left == 0:
                    self.strikes += 1
                    raise Struck
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return call()
        finally:
            sys.settrace(before)

    def until_it_passes(self, call: Callable[[], R], after: Callable[[], None] = lambda: None, *, step: int = 1) -> R:
        """Strike at the first line, then further on, until the call gets through; do something after each strike."""
        for k in range(1, 1_000_000, step):
            try:
                return self.at(k, call)
            except Struck:
                after()
        raise AssertionError("it never ended")


@cache
def _ends_of_with(code: CodeType) -> frozenset[int]:
    """Return where blocks of ``with`` are left: CPython runs a line there, but takes no notice of signals."""
    instructions = list(dis.get_instructions(code))
    return frozenset(
        one.offset
        for one, two, three in zip(instructions, instructions[1:], instructions[2:], strict=False)
        if [i.opname for i in (one, two, three)] == ["LOAD_CONST"] * 3
        and one.argval is two.argval is three.argval is None
    )


@contextmanager
def storm(every_s: float) -> Iterator[list[bool]]:
    """Raise again and again in the main thread, while the list that the block gets says True."""
    armed = [False]

    def strike(*_: object) -> None:
        if armed[0]:
            raise Struck

    before, hook = signal.signal(signal.SIGALRM, strike), sys.unraisablehook
    ignored: list[Any] = []
    sys.unraisablehook = ignored.append  # of strikes on destructors; pytest's own would be struck in its turn
    signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
    try:
        yield armed
    finally:
        armed[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
    assert [each for each in ignored if not issubclass(each.exc_type, Struck)] == []


def free(*locks: Any) -> bool:
    """True if another thread can take all of the locks."""
    taken = []

    def take() -> None:
        for lock in locks:
            if lock.acquire(timeout=10.0):
                lock.release()
                taken.append(lock)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return len(taken) == len(locks)
