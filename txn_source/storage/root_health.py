"""Which hot roots this process has found wanting, and calls that may hang.

A root that fails is left alone for a while, as far as others do: asking it again for each segment would cost a time-out
each time. It is told once, and once more when it works again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from txn_source.process.calls import Call, TooLate, within
from txn_source.storage.store_errors import StoreError

_log = logging.getLogger(__name__)
T = TypeVar("T")
READ_S = 10.0
"""How long a read of a root may take while there are others."""
REST_S = 2.0
"""How long a root that has refused is left alone."""
HUNG_REST_S = 30.0
"""The same of one that did not answer, each try of which costs its time-out."""


class _Roots:
    """What is known of roots, by their places."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def rests(self, place: str) -> bool:
        """True if a root is to be left alone now."""
        return self._until.get(place, 0.0) > time.monotonic()

    def failed(self, place: str, name: str, error: BaseException) -> None:
        """Note that a root has failed."""
        hung = isinstance(error, StoreError) and error.unreachable
        with self._lock:
            is_new = place not in self._until
            self._until[place] = time.monotonic() + (HUNG_REST_S if hung else REST_S)
        if is_new:
            _log.warning("the root %s is left out for now, and tried again later: %s", name, str(error)[:300])

    def works(self, place: str, name: str) -> None:
        """Note that a root works."""
        if place in self._until:
            with self._lock:
                had_failed = self._until.pop(place, None) is not None
            if had_failed:
                _log.warning("the root %s works again", name)


roots = _Roots()


def _in_child() -> None:
    global roots
    roots = _Roots()  # another thread of the parent may have had the lock


os.register_at_fork(after_in_child=_in_child)


def bounded(call: Callable[[], T], seconds: float) -> T:
    """Return what a call returns, or raise what it raises; raise StoreError if it takes longer.

    One that takes longer is left to its thread, which ends some time.
    """
    return answered(seconds, lambda _: call())


def answered(seconds: float, call: Callable[[Call], T]) -> T:
    """The same of a call that asks whether it is to go on, and so ends soon after it was given up."""
    try:
        return within(seconds, call)
    except TooLate:
        raise StoreError("the store can't be reached: it didn't answer in time", unreachable=True) from None
