"""The shield delays the first Ctrl-C to the end of its block; a second one takes effect at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from txn_source.process import shield
from txn_source.process.shield import deaf, held, safe_point


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the handlers after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def press() -> None:
    """Send Ctrl-C to this process, and let Python run the handler."""
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(100):
        pass


def test_first_signal_comes_at_the_end() -> None:
    """Interrupt a block with an inner block: both are complete before KeyboardInterrupt."""
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
    """Interrupt a block twice: KeyboardInterrupt ends it at once, and only once."""
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


def test_second_signal_waits_for_a_safe_point_of_a_deaf_block() -> None:
    """Interrupt a deaf block twice: KeyboardInterrupt comes at the safe point, or at the block's end without one."""
    done = []

    def work(*, has_safe_point: bool) -> None:
        with held():
            with deaf():
                press()
                press()
                done.append("deaf")
                if has_safe_point:
                    safe_point()
                done.append("no safe point")
            done.append("too late")

    for has_safe_point in (True, False):
        with pytest.raises(KeyboardInterrupt):
            work(has_safe_point=has_safe_point)
    assert done == ["deaf", "deaf", "no safe point"]
    test_first_signal_comes_at_the_end()


def test_interrupt_that_was_held_has_the_blocks_error_as_its_context() -> None:
    """Raise in a block, with and without an interrupt: the handler is restored each time."""

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


def test_signal_at_any_step_reaches_its_handler_and_leaves_all_handlers_as_they_were() -> None:
    """Send Ctrl-C before each step of entering and leaving a block, until there is none: it takes effect every time."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    tracing, step, reached = sys.gettrace(), 0, True

    def at_each_step(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != shield.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGINT)
        return at_each_step

    while reached:
        step += 1
        left, came = step, False
        sys.settrace(at_each_step)
        try:
            with held():
                pass
        except KeyboardInterrupt:
            came = True
        finally:
            sys.settrace(tracing)
        reached = left <= 0
        assert came == reached, step
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before, step
    assert step > 50


def test_block_without_handlers_leaves_later_blocks_working() -> None:
    """Enter a block while no signal has a Python handler, as after ``nohup``; then install one: it is delayed."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held():
        press()
    signal.signal(signal.SIGINT, before)
    test_first_signal_comes_at_the_end()


def test_programs_own_handler_gets_the_signal() -> None:
    """Install a handler that doesn't raise: the block's end calls it once for SIGINT, and once for SIGTERM."""
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
    """Interrupt a block in a coroutine: asyncio's handler cancels the task after the block."""
    found = subprocess.run([sys.executable, "-c", COROUTINE], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "whole\ninterrupted\n"


def test_other_threads_change_no_handler() -> None:
    """Enter a block in another thread: Ctrl-C in the main thread takes effect at once."""
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
    """Ignore SIGHUP, as nohup does, and leave SIGTERM alone: in a block, SIGHUP does nothing and SIGTERM kills."""
    found = subprocess.run([sys.executable, "-c", IGNORING], capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout == "goes on\n"
    assert found.returncode == -signal.SIGTERM


FORKED = """
import os, signal, threading
from txn_source.process.shield import held

def fork():
    child = os.fork()
    if child == 0:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(100):
                pass
        except KeyboardInterrupt:
            with held():
                os._exit(7)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

with held():
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
"""


def test_child_that_was_forked_during_a_block_gets_its_signals() -> None:
    """Fork in another thread during a block, and send Ctrl-C to the child: it takes effect at once."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "7\n"
