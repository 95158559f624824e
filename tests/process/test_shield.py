"""Ctrl-C waits for the end of a block that changes something, and a second one doesn't."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from txn_source.process.shield import held


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Put back what a test sets."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def press() -> None:
    """Send this process Ctrl-C, and let Python see it."""
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(100):
        pass


def test_first_signal_comes_at_the_end() -> None:
    """Interrupt a block, and blocks within it: all of it is done, then the interrupt comes."""
    done = []

    def work() -> None:
        with held():
            press()
            with held():
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_second_signal_comes_at_once_and_tells_of_both() -> None:
    """Interrupt a block twice: it is left there, and nothing comes later."""
    done = []

    def work() -> None:
        with held():
            press()
            press()
            done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not done
    with held():
        done.append("another one")
    assert done == ["another one"]


def test_interrupt_that_was_held_has_the_blocks_error_as_its_context() -> None:
    """Raise in a block, with and without an interrupt: the handler is back each time."""

    def work(*, interrupted: bool) -> None:
        with held():
            if interrupted:
                press()
            raise ValueError("of the block")

    with pytest.raises(KeyboardInterrupt) as caught:
        work(interrupted=True)
    assert isinstance(caught.value.__context__, ValueError)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ValueError, match="of the block"):
        work(interrupted=False)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_programs_own_handler_gets_the_signal() -> None:
    """Set a handler that raises nothing: it is called once, after the block, for each signal that it is set for."""
    seen = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)
    with held():
        press()
        assert not seen
    with held():
        os.kill(os.getpid(), signal.SIGTERM)
        assert seen == [signal.SIGINT]
    assert seen == [signal.SIGINT, signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is note


COROUTINE = """
import asyncio, os, signal
from txn_source.process.shield import held

async def work():
    with held():
        os.kill(os.getpid(), signal.SIGINT)
        print("whole", flush=True)
    await asyncio.sleep(10)
    print("not cancelled")

try:
    asyncio.run(work())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_asyncio_cancels_its_task_after_the_block() -> None:
    """Interrupt a block of a coroutine: asyncio's own handler cancels the task, as it would without the block."""
    found = subprocess.run([sys.executable, "-c", COROUTINE], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "whole\ninterrupted\n"


def test_other_threads_change_no_handler() -> None:
    """Enter a block in another thread: signals are the main thread's, where nothing is held back."""
    entered, leave = threading.Event(), threading.Event()

    def block() -> None:
        with held():
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=block)
    thread.start()
    entered.wait(30)
    try:
        with pytest.raises(KeyboardInterrupt):
            press()
    finally:
        leave.set()
        thread.join()


IGNORING = """
import os, signal
from txn_source.process.shield import held
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with held():
    os.kill(os.getpid(), signal.SIGHUP)
    print("goes on", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("not here")
"""


def test_signals_without_a_handler_stay_as_they_are() -> None:
    """Ignore SIGHUP, as nohup does, and leave SIGTERM alone: the one does nothing, the other ends the process."""
    found = subprocess.run([sys.executable, "-c", IGNORING], capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout == "goes on\n"
    assert found.returncode == -signal.SIGTERM
