"""Calls in other threads: the caller gets the result, and a late result changes nothing."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from txn_source.process.calls import Abandoned, Call, TooLate, begun, watched, within

WAIT_S = 30.0


class Late:
    """A call that fills a buffer when the test lets it; the end of the test ends its wait."""

    def __init__(self) -> None:
        self.buffer = bytearray(b"mine")
        self.let = threading.Event()
        self.abandoned = threading.Event()

    def __call__(self, of: Call) -> None:
        self.let.wait(WAIT_S)
        try:
            of.fill(memoryview(self.buffer), b"late")
        except Abandoned:
            self.abandoned.set()
            raise


@contextmanager
def ended(late: Late) -> Iterator[None]:
    """Release the call, and wait until it sees that its caller has left."""
    yield
    late.let.set()
    assert late.abandoned.wait(WAIT_S)


def test_call_in_time_returns_what_it_returns() -> None:
    """Make a call that fills a buffer and returns."""
    buffer = bytearray(4)

    def call(of: Call) -> str:
        of.go_on()
        of.fill(memoryview(buffer)[1:3], b"ab")
        return "done"

    assert within(WAIT_S, call) == "done"
    assert bytes(buffer) == b"\0ab\0"


@pytest.mark.parametrize("kind", [ValueError, TooLate, SystemExit])
def test_call_in_time_raises_what_it_raises(kind: type[BaseException]) -> None:
    """Raise an Exception, and a BaseException: the caller gets both."""

    def call(_: Call) -> None:
        raise kind("so")

    with pytest.raises(kind, match="so"):
        within(WAIT_S, call)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_late_answer_is_not_copied(seconds: float) -> None:
    """Give a call no time: its late ``fill`` raises Abandoned, and leaves the buffer as it is."""
    late = Late()
    with ended(late), pytest.raises(TooLate):
        within(seconds, late)
    assert bytes(late.buffer) == b"mine"


def test_late_call_that_asks_learns_that_nobody_waits() -> None:
    """Let an abandoned call ask ``go_on``: it raises Abandoned."""
    given_up, abandoned = threading.Event(), threading.Event()

    def call(of: Call) -> None:
        given_up.wait(WAIT_S)
        try:
            of.go_on()
        except Abandoned:
            abandoned.set()

    with pytest.raises(TooLate):
        within(0.0, call)
    given_up.set()
    assert abandoned.wait(WAIT_S)


def test_whoever_waits_can_be_interrupted() -> None:
    """Interrupt the wait, as Ctrl-C does: the wait ends, and a later ``fill`` copies nothing."""
    late, main = Late(), threading.main_thread().ident
    assert main is not None

    def call(of: Call) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        late(of)

    with ended(late), pytest.raises(KeyboardInterrupt):
        within(WAIT_S, call)
    assert bytes(late.buffer) == b"mine"


@pytest.mark.parametrize("kind", [OSError, SystemExit])
def test_begun_call_raises_where_its_result_is_wanted(kind: type[BaseException]) -> None:
    """Start several calls. One fails; the others return, and so do later calls."""

    def call() -> None:
        raise kind("so")

    before, failing, after = begun(lambda: 1), begun(call), begun(lambda: 2)
    with pytest.raises(kind, match="so"):
        failing()
    assert [before(), after(), begun(lambda: 3)()] == [1, 2, 3]


def test_many_calls_may_be_begun_at_once() -> None:
    """Start more calls than threads; the first two wait for each other. Ask for the last result first."""
    two = threading.Barrier(2)

    def call(number: int) -> int:
        if number < 2:
            two.wait(WAIT_S)
        return number

    results = [begun(lambda number=number: call(number)) for number in range(100)]  # type: ignore[misc]
    assert [result() for result in reversed(results)] == list(reversed(range(100)))


FORKING = """
import os, signal, sys, threading
from txn_source.process.calls import begun

held = threading.Event()
under_way = begun(held.wait)
assert begun(lambda: "parent")() == "parent"
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if begun(lambda: "child")() == "child" else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
held.set()
assert under_way() is True
sys.exit(status)
"""


def test_forked_child_can_begin_calls() -> None:
    """Fork during a call and with idle threads: the child starts calls of its own."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (found.returncode, found.stderr) == (0, "")


def test_watched_call_is_looked_at_while_it_takes() -> None:
    """Let a call wait for the second look: the caller gets its value, and the error of another one."""
    looks, seen = [], threading.Event()

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            seen.set()

    assert watched(lambda: seen.wait(WAIT_S), look)
    assert len(looks) == 2
    with pytest.raises(SystemExit, match="so"):
        watched(lambda: sys.exit("so"), look)


def test_look_that_raises_ends_the_wait() -> None:
    """Leave a call in its middle: it goes on, and the next one doesn't wait for it."""
    let, over = threading.Event(), threading.Event()

    def call() -> None:
        let.wait(WAIT_S)
        over.set()

    def look() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watched(call, look)
    assert watched(lambda: not over.is_set(), look)
    let.set()
    assert over.wait(WAIT_S)


def test_watched_error_keeps_nothing_alive() -> None:
    """Drop what raised: it is gone without the garbage collector."""

    class Kept:
        def fail(self) -> None:
            raise ValueError("so")

    kept = Kept()
    left = weakref.ref(kept)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="so"):
            watched(kept.fail, lambda: None)
        del kept
        assert left() is None
    finally:
        gc.enable()
