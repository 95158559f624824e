"""A subscription that a stream holds: where it stands, and acknowledging what the stream has processed.

The stream is the subscription's one consumer, but nothing is delivered to it: it gives no permits, and reads by plans.
Its connection keeps others out. One that is lost is made again at once, so that a restart of the service lets nobody in
between.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from txn_source.client.consuming.due_thread import DueThread
from txn_source.client.consuming.link import Link
from txn_source.metadata.stub.conversation import Conversation, EpochChange, Event, Subscribed, SubscribeRequest
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.subscriptions import SubscriptionInfo
from txn_source.model.acknowledgement import Acknowledged, Acknowledgement
from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    SubscriptionNotFoundError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import message_id_of, message_key
from txn_source.model.position import EARLIEST, LATEST, MessageId, Position
from txn_source.model.subscription import Place, SubscriptionType
from txn_source.model.topic_name import TopicName

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.1
"""A service that stops isn't asked again while it does."""
_LOOK_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class Cursors:
    """Where a subscription stands in an epoch: of each partition, by index, the first message not acknowledged.

    What is acknowledged one by one above it isn't told: a stream reads on from there without gaps.
    """

    subscription_id: int
    epoch: int
    marks: Mapping[int, MessageId]


class StreamSubscription:
    """An exclusive subscription of one topic, held until ``close``, or until it is forgotten. Thread-safe."""

    def __init__(self, stub: MetadataStub, topic: TopicName, name: str, level: IsolationLevel | None) -> None:
        """Take hold of the subscription if it is there; ``level`` None is its own, and else must be that.

        Raises:
            SubscriptionBusyError: it has a consumer.
            SubscriptionIsolationMismatchError: it has the other level.
            InvalidArgumentError: it isn't exclusive.
        """
        consumer = f"stream-{socket.gethostname()}-{os.getpid()}"
        self._stub = stub
        self.topic = topic
        self._given = SubscribeRequest(
            str(topic), name, SubscriptionType.EXCLUSIVE, level, True, Place(LATEST), consumer, uuid.uuid4().hex
        )
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        """Tells of a new connection, a failure, and the end."""
        self._thread = DueThread(consumer, lock)
        self._link = Link(stub.transport, self._thread, lock, first_pause_s=_FIRST_PAUSE_S)
        self._closed = threading.Event()
        self._failure: TxnLogError | None = None
        self.subscription_id = self._consumer_id = -1
        self._partition_ids: Mapping[int, int] = {}
        self._acknowledged: tuple[int, Mapping[int, Position]] | None = None
        self.name = name
        self.epoch = 0
        """The newest epoch that is known; ``cursors`` asks the service."""
        self.isolation_level = level or IsolationLevel.READ_COMMITTED
        found = next((s for s in stub.list_subscriptions(topic, brief=True) if s.name == name), None)
        self.is_there = False
        if found is not None:
            self._take_hold(found)

    def create(self, starts: Mapping[int, Position]) -> None:
        """Make the subscription, which stands at positions of the partitions, by index; and take hold of it."""
        [view] = self._stub.get_view([self.topic]).topics
        begin = {p.partition_id: starts[p.index] for p in view.partitions if p.index in starts}
        # Those that were added since the starts were looked up are read from their own start.
        place = Place(EARLIEST, {p: MessageId(at.ledger_id, at.entry_id) for p, at in begin.items()})
        kind = SubscriptionType.EXCLUSIVE
        self._stub.create_subscription(self.topic, self.name, kind, self.isolation_level, place)
        _log.info("subscription %r of topic %r was made for the stream", self.name, self.topic.short)
        self._take_hold(self._describe())

    def cursors(self) -> Cursors:
        """Return where the subscription stands now, while it is held for sure.

        Raises:
            TxnLogError: it is gone, or another consumer has taken it.
            UnavailableError: the service can't be reached.
        """
        if not self.is_there:
            self._take_hold(self._describe())
        deadline = time.monotonic() + self._stub.transport.timeout_s
        while True:
            consumer_id = self._held(deadline)
            info = self._describe()
            if info.subscription_id != self.subscription_id:
                raise self._another()
            if any(consumer.consumer_id == consumer_id for consumer in info.consumers):
                break
            # This process slept past its lease: the connection learns soon whether somebody else has taken over.
            self._closed.wait(_LOOK_AGAIN_S)
            if time.monotonic() >= deadline:
                raise self._not_held()
        marks = {p.partition: message_id_of(p.mark) for p in info.partitions}
        self._partition_ids = {p.partition: p.partition_id for p in info.partitions}
        self.epoch = info.epoch
        return Cursors(info.subscription_id, info.epoch, marks)

    def acknowledge(self, epoch: int, ends: Mapping[int, Position]) -> None:
        """Acknowledge all that lies below positions of the partitions, by index, and that was read in an epoch.

        The service ignores it, and counts it, if a seek has begun a newer epoch. Without a connection nothing happens:
        the stream's own checkpoint knows how far it has come, and what it reads next is acknowledged with this.
        """
        known_epoch, known = self._acknowledged or (epoch, {})
        moved = {i: at for i, at in ends.items() if known_epoch != epoch or known.get(i) != at}
        with self._changed:
            conversation, consumer_id = self._link.current, self._consumer_id
        if not moved or conversation is None:
            return
        ids = self._partition_ids
        parts = tuple(Acknowledged(ids[i], (), message_key(at)) for i, at in moved.items() if i in ids)
        try:
            conversation.acknowledge(Acknowledgement(self.subscription_id, consumer_id, epoch, parts))
        except UnavailableError as error:
            _log.info("stream of subscription %r acknowledges later: %s", self.name, error)
            return
        # One that was added since ``cursors`` is acknowledged next time.
        self._acknowledged = epoch, {i: at for i, at in ends.items() if i in ids}

    def close(self) -> None:
        """Let go of the subscription; closing again is harmless."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._link.close()
        self._thread.leave()

    # The connection

    def do_what_is_due(self) -> None:
        """Connect again, until it is done, closed or refused; the thread calls it."""
        self._link.keep(self, lambda: None)  # the stream acknowledges by itself

    def is_over(self) -> bool:
        """True if it is closed, or can't be held any more."""
        return self._closed.is_set() or self._failure is not None

    def request(self) -> SubscribeRequest:
        """Return what to subscribe to; after a lost connection at the subscription's own level."""
        return replace(self._given, isolation_level=None) if self._consumer_id >= 0 else self._given

    def adopt(self, conversation: Conversation, request: SubscribeRequest, answer: Subscribed) -> None:
        """Take the service's answer, which must be that of the same subscription."""
        other_level = self._consumer_id >= 0 and answer.isolation_level is not self.isolation_level
        if answer.subscription_id != self.subscription_id or other_level:
            raise self._another()
        self._consumer_id = answer.consumer_id
        self.isolation_level = answer.isolation_level
        self.epoch = max(self.epoch, answer.epoch)
        self._changed.notify_all()

    def take(self, event: Event) -> None:
        """Note the epoch that a seek has begun. Nothing is delivered; ``cursors`` asks for all partitions."""
        if isinstance(event, EpochChange):
            self.epoch = max(self.epoch, event.epoch)

    def refused(self, error: BaseException) -> None:
        """Have the stream told why the subscription isn't held any more."""
        if not isinstance(error, TxnLogError):
            what = f"Connecting again failed with {type(error).__name__}: {error}."
            error = InternalError(what, "Please report it, and start the query again.")
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _take_hold(self, info: SubscriptionInfo) -> None:
        if info.type is not SubscriptionType.EXCLUSIVE:
            raise InvalidArgumentError(
                f"Subscription {self.name!r} is {info.type}, and a stream holds its subscription alone.",
                "Use an exclusive subscription, one for each query.",
            )
        self.subscription_id = info.subscription_id
        self._partition_ids = {p.partition: p.partition_id for p in info.partitions}
        self._link.connect(self)
        self._thread.begin(self, self._link.close)
        self.is_there = True

    def _describe(self) -> SubscriptionInfo:
        [info] = self._stub.list_subscriptions(self.topic, self.name, brief=True)
        return info

    def _held(self, deadline: float) -> int:
        """Wait for the connection, and return the consumer's id in it."""
        with self._changed:
            while not self.is_over() and self._link.current is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._not_held()
                self._changed.wait(left)
            if self._failure is not None:
                raise self._failure
            if self._closed.is_set():
                raise InvalidArgumentError("The stream is stopped.", "Start it again.")
            return self._consumer_id

    def _another(self) -> TxnLogError:
        return SubscriptionNotFoundError(
            f"Subscription {self.name!r} of topic {self.topic.short!r} was deleted and made anew, or changed its"
            " isolation level, while the stream had lost its connection.",
            "Start the query again; of one that was made anew, with a new checkpoint.",
        )

    def _not_held(self) -> UnavailableError:
        return UnavailableError(
            f"The stream can't reach the service to hold subscription {self.name!r}.", "Try again when it is back."
        )
