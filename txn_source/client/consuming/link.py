"""A connection to a subscription that is made again when it is lost: of a consumer, or of a stream.

One conversation with the service counts at a time. What an older one says is dropped, and so is its end. The thread
that does what is due makes the new one, so that a caller who only listens never waits for it:

1. ``connect`` opens a conversation, and the subscriber adopts the answer.
2. The conversation is lost (the service or the network went), given up, or renewed.
3. ``keep``, which the thread calls, connects again at once, then after pauses that double. UNAVAILABLE is tried again,
   and so is a limit: the subscriber's own old connection may still count towards it. Any other error is a refusal: it
   ends the link, and the subscriber gets it.
4. ``close`` disconnects. Nothing is connected any more after it.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Protocol

from txn_source.client.consuming.due_thread import DueThread
from txn_source.metadata.stub.conversation import Conversation, Event, Subscribed, SubscribeRequest
from txn_source.metadata.stub.transport import Transport
from txn_source.model.errors import LimitExceededError, TxnLogError, UnavailableError

_log = logging.getLogger(__name__)
_TRIED_AGAIN = (UnavailableError, LimitExceededError)
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.1, 2.0


class Subscriber(Protocol):
    """A consumer or stream as its link knows it. The link doesn't keep it alive."""

    def is_over(self) -> bool:
        """True if no connection is wanted any more."""

    def request(self) -> SubscribeRequest:
        """Return what to ask for now."""

    def adopt(self, conversation: Conversation, request: SubscribeRequest, answer: Subscribed) -> None:
        """Begin where the answer says; from now on this conversation counts. Under the lock.

        Raises:
            TxnLogError: it isn't the same subscription any more.
        """

    def take(self, event: Event) -> None:
        """Take what the current conversation says. Under the lock."""

    def refused(self, error: BaseException) -> None:
        """Tell the caller why there will be no connection any more."""


class Link:
    """The current conversation, if there is one; ``lock`` guards it, and the subscriber."""

    def __init__(
        self, transport: Transport, thread: DueThread, lock: threading.RLock, *, first_pause_s: float = 0.0
    ) -> None:
        """Take what is needed to connect.

        Args:
            transport: the way to the service.
            thread: calls ``keep`` when that is due.
            lock: the subscriber's.
            first_pause_s: the pause before it connects again for the first time.
        """
        self._transport = transport
        self._thread = thread
        self._lock = lock
        self._first_pause_s = first_pause_s
        self.current: Conversation | None = None
        """None while there is no connection."""
        self._opening: Conversation | None = None
        self._left: list[Conversation] = []
        self._pause_s = 0.0
        self._closed = False

    @property
    def conversation(self) -> Conversation:
        """The current conversation.

        Raises:
            UnavailableError: there is none.
        """
        if (current := self.current) is None:
            raise UnavailableError("The consumer isn't connected at the moment.", "It connects again by itself.")
        return current

    def connect(self, subscriber: Subscriber) -> None:
        """Open a conversation; when it returns it is the current one, unless none is wanted any more.

        Raises:
            UnavailableError: the service can't be reached.
            TxnLogError: it is refused, or it isn't the same subscription any more.
        """
        request = subscriber.request()
        conversation = Conversation(self._transport, partial(self._heard, weakref.ref(subscriber), request))
        self._opening = conversation
        try:
            conversation.open(request)
        except BaseException:
            with self._lock:  # an answer that comes later counts no more
                self._opening = None
                self.current = None if self.current is conversation else self.current
            conversation.close()
            raise
        if self.current is not conversation:  # closed meanwhile
            conversation.close()

    def give_up(self) -> Conversation | None:
        """Have another conversation made; return this one, which counts no more, for the caller to close. Locked."""
        self._thread.due(0.0)
        given_up, self.current = self.current, None
        return given_up

    def renew(self) -> None:
        """Have another conversation made, because it isn't known in which epoch the service is."""
        with self._lock:
            if (left := self.give_up()) is not None:
                self._left.append(left)

    def keep(self, subscriber: Subscriber, work: Callable[[], None]) -> None:
        """Connect again where that is due, else do the subscriber's other work; raise nothing."""
        if subscriber.is_over():
            return
        try:
            while self._left:
                self._left.pop().close()
            if self.current is None:
                self._connect_again(subscriber)
            else:
                work()
        except _TRIED_AGAIN:
            self._thread.due(time.monotonic() + max(_MIN_PAUSE_S, self._pause_s))
        except BaseException as error:  # the caller must hear of it: this thread does what nobody else does
            subscriber.refused(error)

    def close(self) -> None:
        """Disconnect, for good; closing again is harmless."""
        with self._lock:
            self._closed = True
            current, self.current = self.current, None
        for each in (*self._left, current):
            if each is not None:
                each.close()

    def _connect_again(self, subscriber: Subscriber) -> None:
        try:
            self.connect(subscriber)
        except _TRIED_AGAIN:
            self._pause_s = min(_MAX_PAUSE_S, max(_MIN_PAUSE_S, self._pause_s * 2))
            raise
        self._thread.wake()  # for the subscriber's other work

    def _heard(
        self,
        of: weakref.ref[Subscriber],
        request: SubscribeRequest,
        conversation: Conversation,
        said: Subscribed | Event | TxnLogError,
    ) -> None:
        """Have the subscriber take what a conversation says, if it is the current one, or becomes so."""
        subscriber = of()
        if subscriber is None:
            return
        with self._lock:
            over = self._closed or subscriber.is_over()
            if isinstance(said, Subscribed):
                if not over and conversation is self._opening:
                    subscriber.adopt(conversation, request, said)
                    self.current, self._opening, self._pause_s = conversation, None, 0.0
                return
            if conversation is not self.current or (over and isinstance(said, TxnLogError)):
                return
            if not isinstance(said, TxnLogError):
                subscriber.take(said)
                return
            self.current = None
            if isinstance(said, UnavailableError):
                _log.warning("%s lost its connection and connects again: %s", self._thread.name, said)
                self._thread.due(time.monotonic() + self._first_pause_s)
                return
        subscriber.refused(said)
