"""A consumer of a subscription: receives, acknowledges, seeks, and connects again by itself.

Three threads take part: the caller's, which reads the bytes of what was delivered; the link's, which takes deliveries
into the queue; and one that does what comes due (acknowledgements, redeliveries, connecting again) and else sleeps.

The epoch guards all of it. A seek raises the consumer's own epoch and drops its queue before it asks the service; what
arrives with a smaller epoch is dropped. So once ``seek`` has returned nothing from before it is received.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from txn_source.client.acknowledgements import PendingAcknowledgements
from txn_source.client.acknowledging import Acknowledging, not_connected
from txn_source.client.consumer_options import ConsumerOptions
from txn_source.client.dead_letters import bury
from txn_source.client.inbox import Inbox
from txn_source.client.messages import Message, MessageBatch, Origin, batches_of, message_schema
from txn_source.client.redeliveries import Redeliveries, parts_of
from txn_source.client.slice_reader import SliceReader
from txn_source.metadata.consumer_link import (
    AnsweredStub,
    ConsumerLink,
    Delivery,
    Subscribed,
    SubscribeRequest,
)
from txn_source.metadata.stub import MetadataStub
from txn_source.metadata.subscription_stub import Sought
from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    StaleEpochError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange, index_of, message_id_of, position_of
from txn_source.model.packing import Slice
from txn_source.model.position import MessageId
from txn_source.model.subscription import SubscriptionType
from txn_source.model.topic_name import TopicName
from txn_source.storage.schema import deserialize_schema

if TYPE_CHECKING:
    from txn_source.client.log import Log

_log = logging.getLogger(__name__)
_MAX_BACKOFF_S = 2.0
_PENDING_MAX = 10_000
_SEEK_TRIES = 20
_QUEUE_IN_ORDER, _QUEUE_SHARED = 100_000, 1_000


class Consumer(Acknowledging):
    """A consumer of one subscription. Thread-safe; iterating yields messages as they come, without end.

    A context manager that sends its acknowledgements and closes.
    """

    def __init__(
        self,
        log: Log,
        topic: TopicName,
        name: str,
        kind: SubscriptionType,
        level: IsolationLevel | None,
        where: str,
        points: Mapping[int, int],
        options: ConsumerOptions,
        *,
        durable: bool = True,
    ) -> None:
        """Subscribe; ``Log.subscribe`` has the arguments' meaning."""
        token = uuid.uuid4().hex
        self._log = log
        self._stub: MetadataStub = log.metadata
        self._root: Path = log.root
        self._options = options
        self._queue_size = options.queue_size or (_QUEUE_IN_ORDER if kind.in_order else _QUEUE_SHARED)
        self._request = SubscribeRequest(
            str(topic),
            name,
            kind,
            level,
            durable,
            where,
            points,
            options.consumer_name or f"consumer-{token[:8]}",
            token,
        )
        self.topic = topic.short
        self.subscription = name
        self.type = kind
        self._condition = threading.Condition(threading.RLock())
        self._seeking = threading.Lock()
        self._sending = threading.Lock()
        self._inbox = Inbox(self._read)
        self._pending = PendingAcknowledgements()
        self._redeliveries = Redeliveries()
        self._failure: TxnLogError | None = None
        self._closed = False
        self._due_at: float | None = None
        self._retry_s = 0.0
        self._link: ConsumerLink | None = None
        self._epoch = -1
        self._open()
        self._thread = threading.Thread(target=self._do_what_is_due, name="txnlog-due", daemon=True)
        self._thread.start()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        while (message := self.receive()) is not None:
            yield message

    def __repr__(self) -> str:
        return f"<Consumer {self._request.consumer_name} of {self.topic}/{self.subscription}>"

    @property
    def epoch(self) -> int:
        """The subscription's epoch that this consumer is in."""
        return self._epoch

    @property
    def isolation_level(self) -> IsolationLevel:
        """The subscription's level."""
        return self._level

    # Receiving

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None if none comes within so many seconds; None waits without end.

        Raises:
            TxnLogError: the subscription is gone, its consumer's place was taken, or the messages can't be read.
        """
        deadline = _deadline(timeout)
        inbox = self._inbox
        with self._condition:
            while True:
                batch, row = inbox.batch, inbox.row
                if batch is None or row >= len(batch.values):
                    if not self._advance(deadline):
                        return None
                    continue
                message = Message(batch, row, batch.values[row], batch.delivery.redeliveries)
                if self._plain or self._hand_out(message):
                    inbox.row = row + 1
                    return message
                inbox.row = row + 1

    def receive_batch(self, timeout: float | None = None) -> MessageBatch | None:
        """Return the next messages together, or None if none come within so many seconds.

        They are of one partition, in order. It doesn't move messages to a dead-letter topic, and has no
        acknowledgement time-out.
        """
        deadline = _deadline(timeout)
        with self._condition:
            while (batch := self._inbox.batch) is None or self._inbox.row >= len(batch):
                if not self._advance(deadline):
                    return None
            row, self._inbox.row = self._inbox.row, len(batch)
            return batch if row == 0 else batch.tail(row)

    def _advance(self, deadline: float | None) -> bool:
        """Make the next batch the current one; return False when the time is up."""
        while True:
            self._check_open()
            found = self._inbox.advance()
            if self._inbox.taken * 2 >= self._queue_size and self._link is not None:
                self._link.flow(self._epoch, self._inbox.taken)
                self._inbox.taken = 0
            if found is True:
                return True
            if found:
                self._add_range(*found)
                continue
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._condition.wait(left)

    def _read(self, delivery: Delivery) -> Iterator[MessageBatch | MessageRange]:
        partition = self._partitions[delivery.partition_id]
        piece = Slice(self.topic, partition, delivery.partition_id, delivery.range, 0)
        stub = AnsweredStub(self._stub, delivery)
        reader = SliceReader(stub, self._root, self._schema, self._level, delivery.decisions)
        return batches_of(self._origin, delivery, partition, reader.read([piece]))

    def _hand_out(self, message: Message) -> bool:
        """Note that a message goes to the caller; return False for one that goes to the dead-letter topic."""
        batch, row, options = message._batch, message._row, self._options
        if self.type.in_order:
            message.redelivery_count = self._redeliveries.count_of(batch, row)
        if options.max_redeliveries is not None and message.redelivery_count > options.max_redeliveries:
            bury(self._log, message, options.dead_letter_topic or f"{self.topic}-{self.subscription}-DLQ")
            self._redeliveries.buried(batch, row)
            return False
        if options.acknowledge_timeout is not None:
            due = time.monotonic() + options.acknowledge_timeout
            self._redeliveries.hand_out(batch, row, due)
            self._due(due)
        return True

    # Seeking

    def seek(self, to: Any) -> dict[int, MessageId]:
        """Move the subscription; when it returns nothing from before it is received any more.

        Args:
            to: ``earliest``, ``latest``, a ``MessageId`` or ``Position`` (or its text; that message is the next), a
                datetime (the first message published then or after), or a mapping ``{"orders": {0: "12:40"}}``.
                Partitions that it doesn't name go back to what they have not acknowledged.

        Returns:
            Where it stands now, by partition: the next message. A place before the start or beyond the end is replaced
            by the nearest one, with a warning in the log.
        """
        from txn_source.client.subscriptions import placed

        with self._seeking:
            where, points = placed(self._stub, self._root, TopicName.parse(self.topic), to, self._level)
            topic, name = self._request.topic, self.subscription
            with suppress(UnavailableError):  # they count in the partitions that stay where they are
                self.flush()
            if not where and not self._request.durable:  # whose stand only the consumer knows
                with self._condition:
                    points = self._inbox.stand() | points
            sought = self._begin_epoch(lambda link, epoch: link.seek(topic, name, where, points, epoch))
            for partition_id in sought.moved:
                at = sought.points[partition_id]
                _log.warning(
                    "topic %s, partition %d: subscription %s can't stand at %s; it is at the nearest place, %s:%d",
                    self.topic, self._partitions[partition_id], name, to, position_of(at), index_of(at),
                )  # fmt: skip
            return {self._partitions[p]: message_id_of(key) for p, key in sorted(sought.points.items())}

    def redeliver(self) -> None:
        """Have all that was delivered to this consumer and isn't acknowledged delivered again, now."""
        self.flush()
        if self.type.in_order:
            self._begin_epoch(self._redeliver_in)
        else:
            self._reconnect_now()

    def _redeliver_in(self, link: ConsumerLink, epoch: int) -> Sought:
        return Sought(link.redeliver(epoch), {}, frozenset())

    def _begin_epoch(self, ask: Callable[[ConsumerLink, int], Sought]) -> Sought:
        """Raise the epoch here, drop what is queued, then raise it at the service."""
        retry_until = time.monotonic() + self._stub.transport.timeout_s
        for _ in range(_SEEK_TRIES):
            with self._condition:
                self._check_open()
                self._epoch += 1
                epoch, link = self._epoch, self._link
                self._inbox.drop()
            try:
                if link is None:
                    raise not_connected()
                sought = ask(link, epoch)
                with self._condition:
                    self._redeliver_nothing_older(sought.epoch)
                    self._inbox.begin_at(sought.points)
                return sought
            except StaleEpochError:
                [info] = self._stub.list_subscriptions(
                    TopicName.parse(self._request.topic), self.subscription, brief=True
                )
                with self._condition:
                    self._epoch = max(self._epoch, info.epoch)
            except UnavailableError:
                itself = threading.current_thread() is self._thread  # which connects again
                if itself or time.monotonic() > retry_until or self._failure is not None:
                    self._reconnect_now()  # the service may have stayed in the epoch before
                    raise
                with self._condition:
                    while self._link in (None, link) and time.monotonic() < retry_until:
                        if self._failure is not None or self._closed:
                            break
                        self._condition.wait(1.0)
            except TxnLogError:
                self._reconnect_now()  # the service stayed in the epoch before
                raise
        raise StaleEpochError(
            f"Others moved subscription {self.subscription!r} {_SEEK_TRIES} times while this call tried.", "Try again."
        )

    def _redeliver_nothing_older(self, epoch: int) -> None:
        self._epoch = max(self._epoch, epoch)
        self._redeliveries.forget_before(self._epoch)

    def messages_left(self) -> int:
        """Return how many messages the level shows behind the last one that the caller got."""
        with self._condition:
            stand = self._inbox.stand()
        return self._stub.count_messages(self._level, stand)

    # The link

    def on_delivery(self, delivery: Delivery) -> None:
        """Take a delivery into the queue, unless it is of an older epoch."""
        with self._condition:
            if delivery.epoch == self._epoch and not self._closed:
                self._inbox.put(delivery)
                self._condition.notify_all()

    def on_turn(self, epoch: int, active: bool) -> None:
        """Begin anew in an epoch, which a seek here or elsewhere has begun."""
        with self._condition:
            if epoch < self._epoch or self._link is None:
                return
            self._redeliver_nothing_older(epoch)
            self._inbox.drop()
            self._link.flow(epoch, self._queue_size)

    def on_end(self, link: ConsumerLink, error: TxnLogError) -> None:
        """Connect again after a lost connection; tell the caller of anything else."""
        with self._condition:
            if link is not self._link or self._closed:
                return
            self._link = None
            if not isinstance(error, UnavailableError):
                self._fail(error)
                return
            _log.warning("consumer %s lost its connection and connects again: %s", self._request.consumer_name, error)
            self._due(time.monotonic() + self._retry_s)

    def _open(self) -> None:
        """Connect, and begin in the subscription's current epoch where it stands."""
        link = ConsumerLink(self._stub.transport, self, self._stub.transport.timeout_s)
        request = self._request
        if not request.durable and (stand := self._inbox.stand()):
            request = replace(request, points=stand)
        subscribed = link.open(request)
        with self._condition:
            if not self._closed:
                self._adopt(subscribed)
                self._link = link
                self._inbox.drop(subscribed.points)
                link.release()
                link.flow(self._epoch, self._queue_size)
                self._retry_s = 0.0
                self._condition.notify_all()
                return
        link.close()

    def _adopt(self, subscribed: Subscribed) -> None:
        topic = subscribed.topic
        payload = deserialize_schema(topic.topic.schema)
        self._schema = message_schema(payload)
        self._partitions = {view.partition_id: view.index for view in topic.partitions}
        self._level = subscribed.isolation_level
        self._origin = Origin(self, self.topic, payload, subscribed.subscription_id, subscribed.consumer_id)
        self._plain = self._options.acknowledge_timeout is None and self._options.max_redeliveries is None
        self._epoch = subscribed.epoch
        self._redeliveries.forget_before(self._epoch + 1)  # all that isn't acknowledged comes again

    def _reconnect_now(self) -> None:
        with self._condition:
            link, self._link = self._link, None
            self._due(0.0)
        if link is not None:
            link.close()

    def _fail(self, error: TxnLogError) -> None:
        self._failure = error
        self._condition.notify_all()

    # What comes due

    def _due(self, at: float) -> None:
        """Have the housekeeping look at a time (monotonic), or earlier."""
        with self._condition:
            if self._due_at is None or at < self._due_at:
                self._due_at = at
                self._condition.notify_all()

    def _do_what_is_due(self) -> None:
        while True:
            with self._condition:
                while not self._closed:
                    left = None if self._due_at is None else self._due_at - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._condition.wait(left)
                if self._closed:
                    return
                self._due_at = None
                connected = self._link is not None
            try:
                if not connected:
                    self._connect_again()
                else:
                    self._send_what_is_due()
            except UnavailableError:
                self._due(time.monotonic() + max(0.1, self._retry_s))
            except TxnLogError as error:
                with self._condition:
                    self._fail(error)
            except Exception as error:  # the caller must hear of it: this thread does what nobody else does
                what = f"The consumer's upkeep failed with {type(error).__name__}: {error}."
                with self._condition:
                    self._fail(InternalError(what, "Please report it, and subscribe again."))

    def _connect_again(self) -> None:
        if self._failure is not None:
            return
        try:
            self._open()
        except UnavailableError:
            self._retry_s = min(_MAX_BACKOFF_S, max(0.1, self._retry_s * 2))
            raise
        self._due(0.0)

    def _send_what_is_due(self) -> None:
        now = time.monotonic()
        with self._condition:
            again = self._redeliveries.take_due(now, self._epoch)
            if (due := self._redeliveries.next_due) is not None:
                self._due(due)
        self.flush()
        if not again:
            return
        if self.type.in_order:
            with self._condition:
                self._redeliveries.count(again)
                self._plain = False
            self._begin_epoch(self._redeliver_in)
            return
        with self._condition:
            link, epoch = self._link, self._epoch
        if link is not None:
            link.redeliver(epoch, parts_of(again))

    # The end

    def unsubscribe(self) -> None:
        """Close, and delete the subscription."""
        self.close()
        if self._request.durable:
            self._stub.delete_subscription(TopicName.parse(self._request.topic), self.subscription)

    def close(self) -> None:
        """Send the acknowledgements, and disconnect; closing again is harmless.

        Raises:
            UnavailableError: acknowledgements couldn't be sent; these messages are delivered again.
        """
        with self._condition:
            if self._closed:
                return
        try:
            if self._failure is None:
                self.flush()
        finally:
            with self._condition:
                self._closed = True
                link, self._link = self._link, None
                self._inbox.drop()
                self._condition.notify_all()
            if link is not None:
                link.close()
            if self._thread is not threading.current_thread():
                self._thread.join()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise InvalidArgumentError("The consumer is closed.", "Subscribe again.")


def _deadline(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if not isinstance(timeout, int | float):
        raise InvalidArgumentError(f"{timeout!r:.80} is not a timeout.", "Use seconds, or None to wait without end.")
    return time.monotonic() + timeout
