"""A connection to a subscription that is made again when it is lost: of a consumer, or of a stream.

One at a time counts. What arrives over an older one is dropped, and so is its end. A new one is made by the thread
that does what is due, so that nobody who only listens has to wait for it:

1. ``connect`` opens a connection and has the subscriber adopt the answer.
2. It is lost (the service or the network went), or taken away (``take_away``, ``doubtful``).
3. ``keep``, which the thread calls, connects again at once, then after pauses that double; any refusal but
   ``UNAVAILABLE``, and a limit, which its own old connection may still count for, ends it, and the subscriber is told.
4. ``close`` disconnects. Nothing is connected any more after it.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol

from txn_source.client.consuming.due_thread import DueThread
from txn_source.metadata.stub.consumer_stream import (
    AddedPartitions,
    ConsumerLink,
    Delivery,
    Subscribed,
    SubscribeRequest,
)
from txn_source.metadata.stub.transport import Transport
from txn_source.model.errors import LimitExceededError, TxnLogError, UnavailableError

_TRIED_AGAIN = (UnavailableError, LimitExceededError)
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0


class Subscriber(Protocol):
    """Who is connected. It isn't kept alive by its connection."""

    def is_over(self) -> bool:
        """True if no connection is wanted any more."""

    def open(self, link: ConsumerLink) -> tuple[SubscribeRequest, Subscribed]:
        """Subscribe over a new connection; return what was asked for, and the answer.

        Raises:
            UnavailableError: the service can't be reached; it is tried again.
            TxnLogError: it is refused, or it isn't the same subscription any more.
        """

    def adopt(self, link: ConsumerLink, request: SubscribeRequest, subscribed: Subscribed) -> None:
        """Take the answer, under the lock; from now on this connection counts."""

    def on_delivery(self, delivery: Delivery) -> None:
        """Take a delivery of the current connection, under the lock."""

    def on_epoch_change(self, link: ConsumerLink, epoch: int) -> None:
        """Begin anew in an epoch that a seek, here or elsewhere, has begun; under the lock."""

    def on_partitions_added(self, added: AddedPartitions) -> None:
        """Take notice of partitions that were added to the topic; under the lock."""

    def on_lost(self, error: UnavailableError) -> None:
        """Take notice that the connection was lost and will be made again; under the lock."""

    def on_refused(self, error: BaseException) -> None:
        """Take notice that there will be no connection any more, and tell the caller why."""

    def do_other_work(self) -> None:
        """Do what else is due, while there is a connection."""


class ReconnectingLink:
    """The current connection, if there is one; ``lock`` guards it, and whoever subscribes."""

    def __init__(
        self, transport: Transport, thread: DueThread, lock: threading.RLock, *, first_pause_s: float = 0.0
    ) -> None:
        """Take what is needed to connect.

        Args:
            transport: the way to the service.
            thread: calls ``keep`` when that is due.
            lock: the subscriber's.
            first_pause_s: so long it waits before it connects again for the first time.
        """
        self._transport = transport
        self._lock = lock
        self._thread = thread
        self._first_pause_s = first_pause_s
        self.current: ConsumerLink | None = None
        """None while there is no connection."""
        self.doubtful = False
        """True if it isn't known in which epoch the service is. ``wake`` then replaces the connection."""
        self.wake = thread.wake
        """Has ``keep`` called now; a C function, as the thread's own."""
        self._listener: _Listener | None = None
        self._pause_s = 0.0
        self._closed = False

    def connect(self, subscriber: Subscriber) -> None:
        """Open a connection; when it returns it is the current one, unless none is wanted any more.

        Raises:
            TxnLogError: as ``Subscriber.open``.
        """
        listener = _Listener(self, weakref.ref(subscriber))
        link = ConsumerLink(self._transport, listener, self._transport.timeout_s)
        try:
            request, subscribed = subscriber.open(link)
            with self._lock:
                if not (self._closed or subscriber.is_over()):
                    subscriber.adopt(link, request, subscribed)
                    self.current, self._listener = link, listener
                    self._pause_s, self.doubtful = 0.0, False
                    link.release()
                    return
        except BaseException:
            link.close()
            raise
        link.close()

    def take_away(self) -> ConsumerLink | None:
        """Have another connection made; return this one, which counts no more, for the caller to close.

        The lock is held.
        """
        self._thread.due(0.0)
        link, self.current, self._listener = self.current, None, None
        return link

    def keep(self, subscriber: Subscriber) -> None:
        """Connect again where that is due, or have the subscriber do its other work; raise nothing."""
        if subscriber.is_over():
            return
        try:
            with self._lock:
                doubtful, link = self.doubtful, self.current
                if doubtful:
                    self.current = self._listener = None
            if doubtful and link is not None:
                link.close()
            if doubtful or link is None:
                self._connect_again(subscriber)
            else:
                subscriber.do_other_work()
        except _TRIED_AGAIN:
            self._thread.due(time.monotonic() + max(_MIN_PAUSE_S, self._pause_s))
        except BaseException as error:  # the caller must hear of it: this thread does what nobody else does
            subscriber.on_refused(error)

    def close(self) -> None:
        """Disconnect, for good; closing again is harmless."""
        with self._lock:
            self._closed = True
            link, self.current, self._listener = self.current, None, None
        if link is not None:
            link.close()

    def _connect_again(self, subscriber: Subscriber) -> None:
        try:
            self.connect(subscriber)
        except _TRIED_AGAIN:
            self._pause_s = min(_MAX_PAUSE_S, max(_MIN_PAUSE_S, self._pause_s * 2))
            raise
        self._thread.wake()  # for the subscriber's other work

    def on_delivery(self, listener: _Listener, subscriber: Subscriber, delivery: Delivery) -> None:
        """Pass a delivery on, unless it comes from an older connection."""
        with self._lock:
            if listener is self._listener:
                subscriber.on_delivery(delivery)

    def on_epoch_change(self, listener: _Listener, subscriber: Subscriber, epoch: int) -> None:
        """Pass a new epoch on, likewise."""
        with self._lock:
            if listener is self._listener and self.current is not None:
                subscriber.on_epoch_change(self.current, epoch)

    def on_partitions_added(self, listener: _Listener, subscriber: Subscriber, added: AddedPartitions) -> None:
        """Pass new partitions on, likewise."""
        with self._lock:
            if listener is self._listener:
                subscriber.on_partitions_added(added)

    def on_end(self, link: ConsumerLink, subscriber: Subscriber, error: TxnLogError) -> None:
        """Have a lost connection made again; tell the subscriber of anything else."""
        with self._lock:
            if link is not self.current or subscriber.is_over():
                return
            self.current = None
            if isinstance(error, UnavailableError):
                subscriber.on_lost(error)
                self._thread.due(time.monotonic() + self._first_pause_s)
            else:
                subscriber.on_refused(error)


class _Listener:
    """What one connection tells, with the connection that tells it; it keeps no subscriber alive."""

    def __init__(self, of: ReconnectingLink, subscriber: weakref.ref[Subscriber]) -> None:
        self._of = of
        self._subscriber = subscriber

    def on_delivery(self, delivery: Delivery) -> None:
        if (subscriber := self._subscriber()) is not None:
            self._of.on_delivery(self, subscriber, delivery)

    def on_epoch_change(self, epoch: int, active: bool) -> None:
        if (subscriber := self._subscriber()) is not None:
            self._of.on_epoch_change(self, subscriber, epoch)

    def on_partitions_added(self, added: AddedPartitions) -> None:
        if (subscriber := self._subscriber()) is not None:
            self._of.on_partitions_added(self, subscriber, added)

    def on_end(self, link: ConsumerLink, error: TxnLogError) -> None:
        if (subscriber := self._subscriber()) is not None:
            self._of.on_end(link, subscriber, error)


def not_connected() -> UnavailableError:
    """Return the error of what needs a connection while there is none."""
    return UnavailableError("The consumer isn't connected at the moment.", "It connects again by itself.")
