"""A consumer between its connection and its caller: where it is, what waits, and why it can't go on."""

from __future__ import annotations

import copy
import logging
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.consuming.acknowledgements import AcknowledgementSender
from txn_source.client.consuming.due_thread import DueThread
from txn_source.client.consuming.link import Link
from txn_source.client.consuming.messages import Message, MessageBatch, Origin, Receiver, message_schema
from txn_source.client.consuming.options import ConsumerOptions
from txn_source.client.consuming.receive_queue import Loss, ReceiveQueue
from txn_source.client.consuming.redeliveries import Redeliveries
from txn_source.metadata.stub.conversation import (
    AddedPartitions,
    Conversation,
    Delivery,
    EpochChange,
    Event,
    Subscribed,
    SubscribeRequest,
)
from txn_source.model.errors import (
    DataLossError,
    InternalError,
    InvalidArgumentError,
    SubscriptionIsolationMismatchError,
    SubscriptionNotFoundError,
    TxnLogError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange, MessageRanges, key_of, message_key
from txn_source.model.position import EARLIEST, MessageId, PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.process.waiting import News
from txn_source.storage.schema import RAW_SCHEMA, deserialize_schema

_log = logging.getLogger(__name__)
_QUEUE, _QUEUE_BY_ROWS = 100_000, 1_000


@dataclass(frozen=True, slots=True)
class SubscribedTopic:
    """The topic that a consumer is connected to; ``partitions`` are the indexes of those it knows, by partition id."""

    topic_id: int
    schema: pa.Schema
    """The columns that messages are made of."""
    partitions: Mapping[int, int]


class ConsumerState:
    """The state of a consumer, and the ``Subscriber`` of its link. ``lock`` guards all of it that changes."""

    def __init__(
        self,
        access: Access,
        request: SubscribeRequest,
        options: ConsumerOptions,
        lock: threading.RLock,
        receiver: weakref.ref[Receiver],
    ) -> None:
        self._access = access
        self._receiver = receiver
        self.given = request
        """What the caller subscribed to, and how."""
        self.options = options
        by_rows = request.counts or not request.type.in_order
        self.queue_size = options.queue_size or (_QUEUE_BY_ROWS if by_rows else _QUEUE)
        self.topic_name = TopicName.parse(request.topic)
        self.lock = lock
        self.thread = DueThread(f"consumer {request.consumer_name}", lock)
        self.link = Link(access.metadata.transport, self.thread, lock)
        self.news = News()
        """Tells of deliveries, of a new connection, and of the end."""
        self.queue = ReceiveQueue()
        self.sender = AcknowledgementSender(self.link, self.queue, lock)
        self.redeliveries = Redeliveries()
        self.late: dict[int, MessageRanges] = {}
        """Acknowledged ranges of an older connection's deliveries, by partition id: their redeliveries are skipped."""
        self.letters: dict[tuple[int, int], Message] = {}
        """Messages on their way to the dead-letter topic, by ``MessageBatch.key``; the one that failed last is last."""
        self.epoch = -1
        self.level = IsolationLevel.READ_COMMITTED
        self.origin = Origin(receiver, self.topic_name.short, RAW_SCHEMA, -1, -1)
        self.topic = SubscribedTopic(-1, pa.schema([]), {})
        """What these are is known from the first connection on."""
        self.plain = False
        """True if ``redeliveries`` needn't hear of a message that is handed out, nor of one that is acknowledged."""
        self.again_due = False
        """True if the next receive call has to request a redelivery in order first."""
        self.refusal: TxnLogError | None = None
        """What every call raises, once the consumer is closed or can't go on."""

    @property
    def was_connected(self) -> bool:
        """True from the first connection on."""
        return self.topic.topic_id >= 0

    # The connection

    def is_over(self) -> bool:
        """True if the consumer is closed, or can't go on."""
        return self.refusal is not None

    def request(self) -> SubscribeRequest:
        """Return what to subscribe to; of an undurable subscription, where the caller stands: only a consumer knows."""
        given = self.given
        with self.lock:
            if not given.durable:
                self.queue.drop()  # what were taken from now on would come again
                if not self.was_connected:
                    return given
                # Partitions that it doesn't know were added while it was away, and begin at their start.
                return replace(given, place=replace(given.place, where=EARLIEST, messages=self.queue.cursors()))
            if not self.was_connected:
                return given
            self.queue.note_received()
            received = self.sender.received(self.epoch) if self.sender.reports else None
            # Without a level the service doesn't make a deleted subscription again.
            return replace(given, isolation_level=None, received=received, epoch=self.epoch)

    def adopt(self, conversation: Conversation, request: SubscribeRequest, answer: Subscribed) -> None:
        """Begin in the subscription's current epoch where it stands."""
        again = self.was_connected
        if again:
            self._check_same(answer)
        view, payload = answer.topic, deserialize_schema(answer.topic.topic.schema)
        ids = self.sender.subscription_id, self.sender.consumer_id = answer.subscription_id, answer.consumer_id
        self.origin = Origin(self._receiver, self.topic_name.short, payload, *ids)
        indexes = {partition.partition_id: partition.index for partition in view.partitions}
        self.topic = SubscribedTopic(view.topic.topic_id, message_schema(payload), indexes)
        self.level, self.epoch = answer.isolation_level, answer.epoch
        self.late = self.sender.pending.ranges(answer.epoch)
        options = self.options
        self.plain = options.acknowledge_timeout is None and options.max_redeliveries is None and not self.late
        self.redeliveries.forget_before(self.epoch + 1)  # all that isn't acknowledged comes again
        self.queue.drop(answer.messages)
        self.queue.in_hand.clear()
        self.queue.is_shared = not request.type.in_order
        self.sender.reports = request.counts or not request.type.in_order
        if not request.durable:
            self._note_losses(answer, request.place.messages, again=again)
        conversation.flow(self.epoch, self.queue_size)
        self.news.tell()

    def take(self, event: Event) -> None:
        """Take a delivery into the queue, partitions that were added, or begin anew in an epoch. Locked.

        What is of an older epoch is dropped.
        """
        match event:
            case Delivery() if event.epoch == self.epoch and self.refusal is None:
                self.queue.put(event)
                self.news.tell()
            case AddedPartitions():
                self.add_partitions(event.indexes, event.messages)
            case EpochChange() if event.epoch >= self.epoch:
                self.follow_epoch(event.epoch)
                self.queue.drop()
                self.link.conversation.flow(event.epoch, self.queue_size)

    def refused(self, error: BaseException) -> None:
        """Have every call raise the error from now on; what is left to send is lost."""
        if not isinstance(error, TxnLogError):
            what = f"The consumer's upkeep failed with {type(error).__name__}: {error}."
            error = InternalError(what, "Please report it, and subscribe again.")
        if isinstance(error, InvalidArgumentError) and self._is_other_topic():  # whose partitions have other ids
            error = self._made_anew()
        with self.lock:
            self.refuse(error)
            self.sender.hopeless = True

    def _is_other_topic(self) -> bool:
        try:
            [view] = self._access.metadata.get_view([self.topic_name]).topics
        except TxnLogError:
            return False
        return view.topic.topic_id != self.topic.topic_id

    def _check_same(self, answer: Subscribed) -> None:
        """Raise if this isn't the subscription any more to which the consumer was connected."""
        other = self.given.durable and answer.subscription_id != self.origin.subscription_id
        if other or answer.topic.topic.topic_id != self.topic.topic_id:
            raise self._made_anew()
        if answer.isolation_level != self.level:
            raise SubscriptionIsolationMismatchError(
                f"Subscription {self.given.name!r} was changed to {answer.isolation_level} while the connection"
                f" was lost; the consumer has read it as {self.level}.",
                "Subscribe anew if that was meant.",
            )

    def _made_anew(self) -> SubscriptionNotFoundError:
        return SubscriptionNotFoundError(
            f"Subscription {self.given.name!r} of topic {self.topic_name.short!r}, or the topic, was deleted and made"
            " anew while the connection was lost.",
            "Subscribe anew if that was meant.",
        )

    def _note_losses(self, answer: Subscribed, wanted: Mapping[int, MessageId], *, again: bool) -> None:
        """Have told what was trimmed before it could be read; only the consumer itself knows how far it had got.

        Where one begins that lies before the start, that isn't a loss, but said.
        """
        for view in answer.topic.partitions:
            start, low = wanted.get(view.partition_id), view.bounds.log_start
            if start is None and again and view.trimmed_end.ledger_id:
                start = MessageId(0, 0)  # it was added meanwhile, and all of it is wanted
            if start is None or start.position >= low or view.lost_nothing(start.position):
                continue
            if not again:
                _log.warning(
                    "topic %s, partition %d: nothing can begin at %s, which was trimmed; it begins at %s",
                    self.topic_name.short, view.index, start, low,
                )  # fmt: skip
                continue
            gap = (MessageRange(key_of(start), message_key(low)),)
            of = PositionRange(start.position, low)
            self.queue.put(Delivery(self.epoch, view.partition_id, of, gap, 0, 0, 0, False, None))

    # What waits, and where it is

    def add_partitions(self, indexes: Mapping[int, int], messages: Mapping[int, MessageId]) -> None:
        """Take partitions that were added to the topic, and the subscription's next message of each, by id. Locked.

        Where a seek was faster, what that said of them stays.
        """
        self.topic = replace(self.topic, partitions={**self.topic.partitions, **indexes})
        known = self.queue.cursors()
        self.queue.begin_at({p: at for p, at in messages.items() if p not in known})

    def refuse(self, error: TxnLogError) -> None:
        """Have calls that wait, and all later ones, raise an error; the first one counts."""
        with self.lock:
            self.refusal = self.refusal or error
            self.news.tell()

    def fail(self, error: TxnLogError) -> None:
        """Make all calls raise an error, and drop the delivered messages."""
        with self.lock:
            self.refuse(error)
            self.queue.drop()

    def check_open(self) -> None:
        """Raise the error of a consumer that is closed, or can't go on."""
        if self.refusal is not None:
            raise copy.copy(self.refusal)  # each thread its own: a traceback belongs to one

    def note_late(self, batch: MessageBatch, rows: Sequence[int]) -> None:
        """Note acknowledged rows of an older connection's deliveries. The lock is held."""
        if batch.origin.consumer_id != self.origin.consumer_id and batch.epoch == self.epoch:
            self.plain = False
            of = self.late.setdefault(batch.delivery.partition_id, MessageRanges())
            for item in batch.ranges(rows):
                of.add(item)

    def is_late(self, batch: MessageBatch, row: int) -> bool:
        """True if a message was acknowledged before its redelivery. The lock is held."""
        partition_id = batch.delivery.partition_id
        if (of := self.late.get(partition_id)) is None:
            return False
        item = MessageRange(batch.start(row), batch.end(row))
        if self.given.type.in_order and item.start >= of.end:
            del self.late[partition_id]  # messages come in order, so no other one is
            return False
        return of.covers(item)

    def next_rows(self, batch: MessageBatch, row: int) -> tuple[int, int]:
        """Return the next readable, unacknowledged rows, ``[first, last)``; first is the batch's length if none is."""
        if not self.late:
            return row, batch.sound(row)
        while row < len(batch) and self.is_late(batch, row):
            row += 1
        until = batch.sound(row)
        return row, next((other for other in range(row, until) if self.is_late(batch, other)), until)

    def lost(self, loss: Loss) -> DataLossError:
        """Return the error of messages that were trimmed before they were received."""
        partition = self.topic.partitions.get(loss.partition_id, "that is gone")
        error = DataLossError(
            f"Messages in {loss.range} of topic {self.topic_name.short!r}, partition {partition}, were trimmed before"
            " they were received.",
            "Go on: the next call gives what lies behind them. A longer retention keeps more; a durable subscription"
            " keeps what it hasn't acknowledged, unless the retention ends it.",
        )
        error.lost = loss.range
        return error

    def have_again(self) -> None:
        """Let the next receive call begin with a redelivery in order. The lock is held."""
        self.again_due, self.queue.values = True, ()
        self.news.tell()

    def follow_epoch(self, epoch: int) -> None:
        """Go to an epoch unless it is in a newer one; what was handed out before needs no redelivery. Locked."""
        self.late = self.late if epoch <= self.epoch else {}
        self.epoch = max(self.epoch, epoch)
        self.redeliveries.forget_before(self.epoch)

    def wait(self, ticket: threading.Lock, deadline: float | None) -> bool:
        """Wait until there is news; return False when the deadline (monotonic seconds) has passed."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            self.news.wait(ticket, 0.0)
            return False
        self.news.wait(ticket, left)
        return True
