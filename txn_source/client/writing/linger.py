"""The thread that writes what a producer has gathered, once that has waited long enough."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol
from weakref import WeakSet, ref

_log = logging.getLogger(__name__)


class Waiting(Protocol):
    """A producer, as its thread and the program's end see it."""

    name: str

    def _write_if_due(self) -> float | None:
        """Write what has waited long enough; return in how many seconds to look again, None: when woken."""

    def _unreported(self) -> str | None:
        """Return what nobody will hear of if this producer goes now; None: nothing."""


class Linger:
    """A thread that begins when it is first woken, and ends when its producer is closed or collected.

    It holds the producer only while messages wait. It is woken by a SimpleQueue, which may be used in a destructor and
    is never left half-way by an interrupt.
    """

    def __init__(self, name: str, linger_s: float, clock: Callable[[], float]) -> None:
        self._name = name
        self._linger_s = linger_s
        self._clock = clock
        self.least_s = 0.0
        """Messages wait at least so long."""
        self._due_s = 0.0
        self._plan = _Plan()
        self._calls: SimpleQueue[Waiting | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def left(self) -> float:
        """In how many seconds the messages have waited long enough; 0 or less: now."""
        return self._due_s - self._clock()

    def start(self, producer: Waiting) -> None:
        """Begin to wait for the first message of many.

        The thread isn't woken if it looks by itself before they are due, as it does where one small write follows the
        other. It must find something waiting from before this call.
        """
        linger_s = max(self._linger_s, self.least_s)
        self._due_s = self._clock() + linger_s
        next_look_s = self._plan.next_look_s
        if next_look_s is None or next_look_s > time.monotonic() + linger_s:
            self.wake(producer)

    def wake(self, producer: Waiting) -> None:
        """Have the thread look at the producer, which lives at least until then."""
        if self._thread is None or not self._thread.is_alive():  # an interrupt may have come before it began
            self._thread = threading.Thread(target=_run, args=(self._calls, self._plan), name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(producer)

    def stop(self) -> None:
        """Have the thread end; it waits for nothing."""
        self._calls.put(None)

    def join(self) -> None:
        """Return when the thread has ended."""
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()


class _Plan:
    """When a thread looks by itself, on the machine's monotonic clock; None: it is looking, or waits to be woken."""

    next_look_s: float | None = None


def _run(calls: SimpleQueue[Waiting | None], plan: _Plan) -> None:
    wait: float | None = None
    known: ref[Waiting] | None = None
    while True:
        producer: Waiting | None = None
        with suppress(Empty):
            producer = calls.get(timeout=wait)
            if producer is None:
                calls.put(None)  # an interrupted start may have left a second thread
                return
            known = ref(producer)
        held = known() if known is not None else None
        plan.next_look_s = None  # before it looks: what begins to wait from here on wakes it
        wait = held._write_if_due() if held is not None else None
        if wait is None:
            del held, producer
        else:
            plan.next_look_s = time.monotonic() + wait


_OPEN: WeakSet[Waiting] = WeakSet()


def report_at_exit(producer: Waiting) -> None:
    """Have the log say at the program's end what a producer still holds then, if it is open."""
    _OPEN.add(producer)


def _report() -> None:
    for producer in list(_OPEN):
        if (unreported := producer._unreported()) is not None:
            _log.warning("The program ends while producer %s is open: %s", producer.name, unreported)


atexit.register(_report)
