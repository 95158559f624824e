"""Calls in threads of their own: what came of them comes to whoever asked, and what comes late to nobody."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from txn_source.process.calls import Abandoned, Call, TooLate, begun, within

WAIT_S = 30.0


class Late:
    """A call that answers only when it is let, and then into a buffer. Its wait ends with the test."""

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
    """Let the call answer at the end, and wait until it knows that nobody waits."""
    yield
    late.let.set()
    assert late.abandoned.wait(WAIT_S)


def test_call_in_time_returns_what_it_returns() -> None:
    """Call something that fills a buffer and returns."""
    buffer = bytearray(4)

    def call(of: Call) -> str:
        of.go_on()
        of.fill(memoryview(buffer)[1:3], b"ab")
        return "done"

    assert within(WAIT_S, call) == "done"
    assert bytes(buffer) == b"\0ab\0"


@pytest.mark.parametrize("kind", [ValueError, TooLate, SystemExit])
def test_call_in_time_raises_what_it_raises(kind: type[BaseException]) -> None:
    """Call something that fails in ways that an ordinary handler doesn't see, too."""

    def call(_: Call) -> None:
        raise kind("so")

    with pytest.raises(kind, match="so"):
        within(WAIT_S, call)


def test_call_runs_in_another_thread() -> None:
    """Ask a call for its thread, which is none that the end of the program waits for."""
    thread = within(WAIT_S, lambda _: threading.current_thread())
    assert thread is not threading.current_thread()
    assert thread.daemon


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_late_answer_is_not_copied(seconds: float) -> None:
    """Give a call no time: its buffer is used by others by the time it answers, and it is told that nobody waits."""
    late = Late()
    with ended(late), pytest.raises(TooLate):
        within(seconds, late)
    assert bytes(late.buffer) == b"mine"


def test_late_call_that_asks_learns_that_nobody_waits() -> None:
    """Let a call ask whether it is to go on after it was given up."""
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
    """Interrupt the wait from within the call, as Ctrl-C does: it ends, and what comes later isn't copied."""
    late, main = Late(), threading.main_thread().ident
    assert main is not None

    def call(of: Call) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        late(of)

    with ended(late), pytest.raises(KeyboardInterrupt):
        within(WAIT_S, call)
    assert bytes(late.buffer) == b"mine"


def test_begun_call_runs_before_its_result_is_wanted() -> None:
    """Begin a call, wait until it runs, and only then ask for its result, twice."""
    running = threading.Event()

    def call() -> int:
        running.set()
        return 7

    result = begun(call)
    assert running.wait(WAIT_S)
    assert [result(), result()] == [7, 7]


@pytest.mark.parametrize("kind", [OSError, SystemExit])
def test_begun_call_raises_where_its_result_is_wanted(kind: type[BaseException]) -> None:
    """Begin calls one of which fails: the others return, and the next ones, too."""

    def call() -> None:
        raise kind("so")

    before, failing, after = begun(lambda: 1), begun(call), begun(lambda: 2)
    with pytest.raises(kind, match="so"):
        failing()
    assert [before(), after(), begun(lambda: 3)()] == [1, 2, 3]


def test_many_calls_may_be_begun_at_once() -> None:
    """Begin more calls than there are threads; the first two wait for each other, and the last is asked for first."""
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
    """Fork where one call is under way and threads wait for others, which the child doesn't have."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (found.returncode, found.stderr) == (0, "")
