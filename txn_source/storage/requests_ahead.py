"""Reads that begin before their result is wanted, on a few threads of the process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_MOST_THREADS = 16
"""So many reads of a process are under way at most; a store is not served better by more."""
_IDLE_S = 5.0


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


def begun(read: Callable[[], T]) -> Callable[[], T]:
    """Begin a read; return what waits for it, and returns, or raises, what came of it.

    A result that nobody waits for any more is dropped when it comes.
    """
    found: list[Any] = []
    failed: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            found.append(read())
        except BaseException as error:
            failed.append(error)
        ended.set()

    _pool.give(run)

    def result() -> T:
        ended.wait()
        if failed:
            raise failed[0]
        value: T = found[0]
        return value

    return result
