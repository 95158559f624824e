"""Waiting for something to change, with C's locks alone: whatever interrupts a wait, no lock stays held."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress

_LONGEST_S = 3600.0


class News:
    """Wakes all that wait for a change. ``expect`` and ``tell`` are called under the owner's lock, ``wait`` isn't.

    A ``threading.Condition`` is written in Python: an exception in the middle of its ``wait`` leaves its lock in the
    other state than the block around it believes.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[threading.Lock] = deque()

    def expect(self) -> threading.Lock:
        """Return a ticket, with which to wait for what is told from now on."""
        ticket = threading.Lock()
        ticket.acquire()
        self._waiting.append(ticket)
        return ticket

    def wait(self, ticket: threading.Lock, seconds: float | None) -> None:
        """Wait until something is told, or for so many seconds, or an hour: look again in any case."""
        try:
            ticket.acquire(timeout=_LONGEST_S if seconds is None else min(max(seconds, 0.0), _LONGEST_S))
        finally:
            with suppress(ValueError):
                self._waiting.remove(ticket)

    def tell(self) -> None:
        """Wake all that wait."""
        with suppress(IndexError):
            while True:
                self._waiting.popleft().release()
