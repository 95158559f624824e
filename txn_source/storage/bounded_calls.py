"""Calls of libraries that may take for ever, as when a store sends a byte now and then, in a bounded time.

Each runs in a thread of its own. So whoever waits can be interrupted, too, and the library never is: an exception in
the middle of it would leave its locks and connections in any state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from txn_source.storage.store_errors import StoreError

R = TypeVar("R")


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


def bounded(call: Callable[[Call], R], seconds: float) -> R:
    """Return what a call returns, or raise what it raises.

    Raises:
        StoreError: it takes longer. Its thread ends when it next asks if it is to go on.
    """
    found: list[Any] = []
    failed: list[BaseException] = []
    of = Call()

    def run() -> None:
        try:
            found.append(call(of))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="txnlog-request", daemon=True)
    thread.start()
    try:
        thread.join(max(0.0, seconds))
    finally:
        of.give_up()
    if failed:
        raise failed[0]
    if not found:
        raise StoreError("the store can't be reached: it didn't answer in time", unreachable=True)
    result: R = found[0]
    return result
