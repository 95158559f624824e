"""Calls that no signal may come into.

gRPC guards a channel with a ``threading.Condition``, and an interrupt in the moment in which that is entered leaves it
locked for ever: every later call over the channel, of any thread, would hang. Signals reach the main thread only. So it
lets another thread call, and waits for the answer by itself, which an interrupt may end at any time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "SimpleQueue[tuple[Any, BaseException | None]]"]
_idle: dict[int, SimpleQueue[SimpleQueue[_Job]]] = {}
"""By process, the threads that wait for a job: each by the queue that it takes it from."""


def unsignalled(call: Callable[[], T]) -> T:
    """Return what a call returns, or raise what it raises. If the wait is interrupted, the call goes on by itself."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    idle = _idle.setdefault(os.getpid(), SimpleQueue())
    try:
        jobs = idle.get_nowait()
    except Empty:
        jobs = SimpleQueue()
        threading.Thread(target=_work, args=(jobs, idle), name="txnlog-calls", daemon=True).start()
    answers: SimpleQueue[tuple[T, BaseException | None]] = SimpleQueue()
    context = copy_context()  # of the caller: whose request it is
    jobs.put((lambda: context.run(call), answers))
    answer, error = answers.get()
    if error is not None:
        try:
            raise error
        finally:
            del error, answers  # no cycle with the error's traceback
    return answer


def _work(jobs: SimpleQueue[_Job], idle: SimpleQueue[SimpleQueue[_Job]]) -> None:
    while True:
        call, answers = jobs.get()
        try:
            answer, error = call(), None
        except BaseException as raised:
            answer, error = None, raised
        idle.put(jobs)
        answers.put((answer, error))
        del call, answers, answer, error
