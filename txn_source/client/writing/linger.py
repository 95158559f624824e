"""The thread that writes what a producer has gathered, once that has waited long enough."""

from __future__ import annotations

import atexit
import logging
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

if TYPE_CHECKING:
    from txn_source.client.writing.producer import Producer

_log = logging.getLogger(__name__)


class Linger:
    """A thread that begins when it is first woken, and ends when its producer is closed or collected.

    It holds the producer only while messages wait. It is woken by a SimpleQueue, which may be used in a destructor and
    is never left half-way by an interrupt.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Producer | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def wake(self, producer: Producer) -> None:
        """Have the thread look at the producer, which lives at least until then."""
        if self._thread is None or not self._thread.is_alive():  # an interrupt may have come before it began
            self._thread = threading.Thread(target=_run, args=(self._calls,), name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(producer)

    def stop(self) -> None:
        """Have the thread end; it waits for nothing."""
        self._calls.put(None)

    def join(self) -> None:
        """Return when the thread has ended."""
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()


def _run(calls: SimpleQueue[Producer | None]) -> None:
    wait: float | None = None
    known: ref[Producer] | None = None
    while True:
        producer: Producer | None = None
        with suppress(Empty):
            producer = calls.get(timeout=wait)
            if producer is None:
                calls.put(None)  # an interrupted start may have left a second thread
                return
            known = ref(producer)
        held = known() if known is not None else None
        wait = held._write_if_due() if held is not None else None
        if wait is None:
            del held, producer


_OPEN: WeakSet[Producer] = WeakSet()


def tell_at_exit(producer: Producer) -> None:
    """Have the log say at the program's end what a producer still holds then, if it is open."""
    _OPEN.add(producer)


def _tell() -> None:
    for producer in list(_OPEN):
        if (unsaid := producer._unsaid()) is not None:
            _log.warning("The program ends while producer %s is open: %s", producer.name, unsaid)


atexit.register(_tell)
