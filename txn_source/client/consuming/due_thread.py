"""A thread that does what comes due, of an object that may be forgotten meanwhile.

It holds no reference to that object while it waits. So a consumer that its program has forgotten is collected; the
thread then does what is left to do, such as sending what was acknowledged, and ends. ``end`` has it do the same.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Protocol

from txn_source.model.errors import InternalError, TxnLogError

_log = logging.getLogger(__name__)
_LONGEST_S = 3600.0


class DueWork(Protocol):
    """What has things to do at certain times."""

    def do_what_is_due(self) -> None:
        """Do them, and raise nothing; the thread calls it."""


class DueThread:
    """Sleeps until something of its owner's comes due. It belongs to the process that made it.

    1. ``begin`` starts it.
    2. ``due`` and ``wake`` have it call the owner.
    3. ``leave``, or that the owner is collected, has it do what is left and end; ``end`` waits for that.
    """

    def __init__(self, name: str, lock: threading.RLock) -> None:
        """Take the owner's name, for the log, and the lock that guards the owner, which ``due`` takes, too."""
        self.name = name
        self._lock = lock
        self._due_at = math.inf
        self._wishes: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._running = threading.Lock()
        self._error: TxnLogError | None = None
        self.wake = partial(self._wishes.put, 0.0)
        """Has the thread look now: a C function, so that no signal comes between the call and its effect."""
        self.leave = partial(self._wishes.put, None)
        """Has the thread do what is left, and end; likewise."""

    def begin(self, owner: DueWork, at_end: Callable[[], None]) -> None:
        """Start the thread, which ends with the owner.

        Args:
            owner: what is called when something is due.
            at_end: is called once, last, in the thread. It must not hold the owner.
        """
        weakref.finalize(owner, self.leave).atexit = False
        self._running.acquire()  # until the thread ends
        threading.Thread(target=self._run, args=(weakref.ref(owner), at_end), name="txnlog-due", daemon=True).start()

    def due(self, at: float) -> None:
        """Have the thread look at a time (monotonic seconds), or earlier."""
        with self._lock:
            if at < self._due_at:
                self._wishes.put(at)  # first: if it is put twice, the thread looks once too often
                self._due_at = at

    def end(self) -> None:
        """Have the thread do what is left and end, and wait for that.

        Raises:
            TxnLogError: it couldn't; only the first call says so.
        """
        self.leave()
        with self._running:
            pass
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Wait for the end of an owner that was forgotten; ``Log.close`` calls it."""
        try:
            self.end()
        except TxnLogError as error:
            _log.warning("acknowledgements of %s weren't sent; these messages come again: %s", self.name, error)

    def _run(self, of: weakref.ref[DueWork], at_end: Callable[[], None]) -> None:
        at = math.inf
        try:
            while (wish := self._wish(at)) is not None:
                at = wish
                if at > time.monotonic():
                    continue
                at = math.inf
                with self._lock:
                    self._due_at = math.inf
                owner = of()
                if owner is None:
                    return
                owner.do_what_is_due()
                del owner
        finally:
            try:
                at_end()
            except TxnLogError as error:
                self._error = error
            except BaseException as error:
                what = f"Sending failed with {type(error).__name__}: {error}."
                self._error = InternalError(what, "Please report it.")
            finally:
                self._running.release()

    def _wish(self, at: float) -> float | None:
        """Wait for a wish until a time; return the earlier time, or None for the end."""
        try:
            wish = self._wishes.get(timeout=min(max(at - time.monotonic(), 0.0), _LONGEST_S))
        except queue.Empty:
            return at
        return None if wish is None else min(wish, at)
