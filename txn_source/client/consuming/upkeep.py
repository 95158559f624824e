"""What a consumer leaves to a thread of its own: sending acknowledgements, redelivering, connecting again, the end.

The thread holds no reference to its consumer while it waits. So a consumer that its program has forgotten is collected;
the thread then sends what had been acknowledged, disconnects, and ends. ``close`` has it do the same.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
import weakref
from functools import partial
from typing import Protocol

from txn_source.client.consuming.acknowledgements import PendingAcknowledgements
from txn_source.metadata.stub.consumer_stream import ConsumerLink
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.errors import InternalError, TxnLogError, UnavailableError
from txn_source.storage.forks import belongs_to_process

_log = logging.getLogger(__name__)
_LONGEST_S = 3600.0


class Keeper(Protocol):
    """A consumer, as its thread sees it."""

    def do_what_is_due(self) -> None:
        """Do it, and raise nothing."""


class Upkeep:
    """The connection of a consumer, what it has to send, and the thread that looks after both.

    It outlives the consumer until the thread has ended. ``link`` is None while there is no connection; ``lock`` guards
    it and what waits to be sent, ``sending`` keeps two threads from sending at once.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.sending = threading.Lock()
        self.link: ConsumerLink | None = None
        self.pending = PendingAcknowledgements()
        self.subscription_id = self.consumer_id = -1
        self.hopeless = False
        """True if nothing that is left can be sent any more."""
        self._due_at = math.inf
        self._wishes: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._running = threading.Lock()
        self._error: TxnLogError | None = None
        self.wake = partial(self._wishes.put, 0.0)
        """Has the thread look now: a C function, so that no signal comes between the call and its effect."""
        self.leave = partial(self._wishes.put, None)
        """Has the thread send what is left, disconnect and end."""

    def begin(self, consumer: Keeper) -> None:
        """Start the thread, which ends with the consumer."""
        belongs_to_process(self)
        weakref.finalize(consumer, self.leave).atexit = False
        self._running.acquire()  # until the thread ends
        threading.Thread(target=self._run, args=(weakref.ref(consumer),), name="txnlog-due", daemon=True).start()

    def due(self, at: float) -> None:
        """Have the thread look at a time (monotonic), or earlier."""
        with self.lock:
            if at < self._due_at:
                self._wishes.put(at)  # first: if it is put twice, the thread looks once too often
                self._due_at = at

    def send(self) -> None:
        """Send what has been acknowledged; when it returns it is stored."""
        with self.sending:
            with self.lock:
                unsent, link = self.pending.unsent(), self.link
            for item in unsent:
                if link is None:
                    raise not_connected()
                link.acknowledge(Acknowledgement(self.subscription_id, self.consumer_id, item.epoch, item.parts))
                with self.lock:
                    self.pending.sent(item)

    def end(self) -> None:
        """Have the thread send what is left, disconnect and end, and wait for that.

        Raises:
            TxnLogError: it couldn't be sent; only the first call says so.
        """
        self.leave()
        with self._running:
            pass
        error, self._error = self._error, None
        if error is not None:
            raise error

    def inherited(self) -> None:
        """Wait for nothing, in a child that was forked."""
        self._running, self.hopeless = threading.Lock(), True

    def close(self) -> None:
        """Wait for the end of a consumer that was forgotten; ``Log.close`` calls it."""
        try:
            self.end()
        except TxnLogError as error:
            _log.warning("acknowledgements of %s weren't sent; these messages come again: %s", self.name, error)

    def _run(self, of: weakref.ref[Keeper]) -> None:
        at = math.inf
        try:
            while (wish := self._wish(at)) is not None:
                at = wish
                if at > time.monotonic():
                    continue
                at = math.inf
                with self.lock:
                    self._due_at = math.inf
                consumer = of()
                if consumer is None:
                    return
                consumer.do_what_is_due()
                del consumer
        finally:
            try:
                self._part()
            finally:
                self._running.release()

    def _wish(self, at: float) -> float | None:
        """Wait for a wish until a time; return the earlier time, or None for the end."""
        try:
            wish = self._wishes.get(timeout=min(max(at - time.monotonic(), 0.0), _LONGEST_S))
        except queue.Empty:
            return at
        return None if wish is None else min(wish, at)

    def _part(self) -> None:
        try:
            if not self.hopeless:
                self.send()
        except TxnLogError as error:
            self._error = error
        except BaseException as error:
            self._error = InternalError(f"Sending failed with {type(error).__name__}: {error}.", "Please report it.")
        finally:
            with self.lock:
                link, self.link = self.link, None
            if link is not None:
                link.close()


def not_connected() -> UnavailableError:
    """Return the error of what needs a connection while there is none."""
    return UnavailableError("The consumer isn't connected at the moment.", "It connects again by itself.")
