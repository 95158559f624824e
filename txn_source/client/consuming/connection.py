"""What a consumer does over its connection: it hears of deliveries and epochs, and goes on where it stood."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace

from txn_source.client.access import Access
from txn_source.client.consuming.acknowledgements import AcknowledgementSender
from txn_source.client.consuming.consumer_state import ConsumerState, SubscribedTopic
from txn_source.client.consuming.dead_letters import DeadLetters
from txn_source.client.consuming.due_thread import DueThread
from txn_source.client.consuming.messages import Origin, Receiver, message_schema
from txn_source.client.consuming.reconnecting_link import ReconnectingLink, not_connected
from txn_source.client.consuming.redeliveries import parts_of
from txn_source.metadata.stub.consumer_stream import (
    AddedPartitions,
    ConsumerLink,
    Delivery,
    Subscribed,
    SubscribeRequest,
)
from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    SubscriptionIsolationMismatchError,
    SubscriptionNotFoundError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.message_ranges import MessageRange, key_of, message_key
from txn_source.model.position import EARLIEST, MessageId, PositionRange
from txn_source.model.subscription import Place
from txn_source.storage.schema import deserialize_schema

_log = logging.getLogger(__name__)


class ConsumerConnection:
    """The consumer as its ``ReconnectingLink`` and its ``DueThread`` know it. Only the consumer holds it."""

    def __init__(
        self,
        access: Access,
        state: ConsumerState,
        thread: DueThread,
        link: ReconnectingLink,
        sender: AcknowledgementSender,
        dead_letters: DeadLetters,
        receiver: weakref.ref[Receiver],
    ) -> None:
        self._access = access
        self._state = state
        self._thread = thread
        self._link = link
        self._sender = sender
        self._dead_letters = dead_letters
        self._receiver = receiver

    # What comes over it

    def on_delivery(self, delivery: Delivery) -> None:
        """Take a delivery into the queue, unless it is of an older epoch."""
        state = self._state
        if delivery.epoch == state.epoch and state.refusal is None:
            state.queue.put(delivery)
            state.news.tell()

    def on_epoch_change(self, link: ConsumerLink, epoch: int) -> None:
        """Begin anew in an epoch, unless this is an older one."""
        state = self._state
        if epoch < state.epoch:
            return
        state.follow_epoch(epoch)
        state.queue.drop()
        link.flow(epoch, state.queue_size)

    def on_partitions_added(self, added: AddedPartitions) -> None:
        """Take deliveries of partitions that were added to the topic, too."""
        self._state.add_partitions(added.indexes, added.messages)

    def on_lost(self, error: UnavailableError) -> None:
        """Say so in the log."""
        name = self._state.request.consumer_name
        _log.warning("consumer %s lost its connection and connects again: %s", name, error)

    def on_refused(self, error: BaseException) -> None:
        """Have every call raise the error from now on; what is left to send is lost."""
        if not isinstance(error, TxnLogError):
            what = f"The consumer's upkeep failed with {type(error).__name__}: {error}."
            error = InternalError(what, "Please report it, and subscribe again.")
        with self._state.lock:
            self._state.refuse(error)
            self._sender.hopeless = True

    def is_over(self) -> bool:
        """True if the consumer is closed, or can't go on."""
        return self._state.refusal is not None

    # Connecting

    def open(self, link: ConsumerLink) -> tuple[SubscribeRequest, Subscribed]:
        """Subscribe; of an undurable subscription where the caller stands, since only the consumer knows that."""
        state, request = self._state, self._state.request
        again = state.was_connected
        if not request.durable:
            with state.lock:
                state.queue.drop()  # what were taken from now on would come again
                request = replace(request, place=self._own_place(request.place))
        elif again:
            with state.lock:
                state.queue.note_received()
                received = self._sender.received(state.epoch) if self._sender.reports else None
                epoch = state.epoch
            # Without a level the service doesn't make a deleted subscription again.
            request = replace(request, isolation_level=None, received=received, epoch=epoch)
        try:
            subscribed = link.open(request)
        except InvalidArgumentError:
            if again and self._topic_now() != state.topic.topic_id:  # whose partitions have other ids
                raise self._made_anew() from None
            raise
        if again:
            self._check_same(subscribed)
        return request, subscribed

    def adopt(self, link: ConsumerLink, request: SubscribeRequest, subscribed: Subscribed) -> None:
        """Begin in the subscription's current epoch where it stands."""
        state, again = self._state, self._state.was_connected
        topic, payload = subscribed.topic, deserialize_schema(subscribed.topic.topic.schema)
        ids = subscribed.subscription_id, subscribed.consumer_id
        state.origin = Origin(self._receiver, state.topic_name.short, payload, *ids)
        state.topic = SubscribedTopic(
            topic.topic.topic_id, message_schema(payload), {view.partition_id: view.index for view in topic.partitions}
        )
        state.level = subscribed.isolation_level
        self._sender.subscription_id, self._sender.consumer_id = subscribed.subscription_id, subscribed.consumer_id
        state.late = self._sender.pending.ranges(subscribed.epoch)
        options = state.options
        state.plain = options.acknowledge_timeout is None and options.max_redeliveries is None and not state.late
        state.epoch = subscribed.epoch
        state.redeliveries.forget_before(state.epoch + 1)  # all that isn't acknowledged comes again
        state.queue.drop(subscribed.messages)
        state.queue.in_hand.clear()
        state.queue.is_shared = not request.type.in_order
        self._sender.reports = request.counts or not request.type.in_order
        if not request.durable:
            self._note_losses(subscribed, request.place.messages, again=again)
        link.flow(state.epoch, state.queue_size)
        state.news.tell()

    def _own_place(self, first: Place) -> Place:
        """Return how far the caller is; at first, where it wants to begin.

        Partitions that it doesn't know were added while it was away, and begin at their start.
        """
        cursors = self._state.queue.cursors()
        return replace(first, where=EARLIEST, messages=cursors) if self._state.was_connected else first

    def _check_same(self, subscribed: Subscribed) -> None:
        """Raise if this isn't the subscription any more to which the consumer was connected."""
        state = self._state
        other = state.request.durable and subscribed.subscription_id != state.origin.subscription_id
        if other or subscribed.topic.topic.topic_id != state.topic.topic_id:
            raise self._made_anew()
        if subscribed.isolation_level != state.level:
            raise SubscriptionIsolationMismatchError(
                f"Subscription {state.request.name!r} was changed to {subscribed.isolation_level} while the connection"
                f" was lost; the consumer has read it as {state.level}.",
                "Subscribe anew if that was meant.",
            )

    def _made_anew(self) -> SubscriptionNotFoundError:
        name, topic = self._state.request.name, self._state.topic_name.short
        return SubscriptionNotFoundError(
            f"Subscription {name!r} of topic {topic!r}, or the topic, was deleted and made anew while the connection"
            " was lost.",
            "Subscribe anew if that was meant.",
        )

    def _topic_now(self) -> int:
        [view] = self._access.metadata.get_view([self._state.topic_name]).topics
        return view.topic.topic_id

    def _note_losses(self, subscribed: Subscribed, wanted: Mapping[int, MessageId], *, again: bool) -> None:
        """Have told what was trimmed before it could be read; only the consumer itself knows how far it had got.

        Where one begins that lies before the start, that isn't a loss, but said.
        """
        state = self._state
        for view in subscribed.topic.partitions:
            start, low = wanted.get(view.partition_id), view.bounds.log_start
            if start is None and again and view.trimmed_end.ledger_id:
                start = MessageId(0, 0)  # it was added meanwhile, and all of it is wanted
            if start is None or start.position >= low or view.lost_nothing(start.position):
                continue
            if not again:
                _log.warning(
                    "topic %s, partition %d: nothing can begin at %s, which was trimmed; it begins at %s",
                    state.topic_name.short, view.index, start, low,
                )  # fmt: skip
                continue
            gap = (MessageRange(key_of(start), message_key(low)),)
            of = PositionRange(start.position, low)
            state.queue.put(Delivery(state.epoch, view.partition_id, of, gap, 0, 0, 0, False, None))

    # What comes due

    def do_what_is_due(self) -> None:
        """Connect again, send acknowledgements, have messages redelivered; the consumer's own thread calls it."""
        self._link.keep(self)

    def do_other_work(self) -> None:
        """Send acknowledgements and request redeliveries; in order, leave these to the next receive call."""
        state = self._state
        self._sender.send()
        if state.letters:
            self._dead_letters.send_kept()
        with state.lock:
            now, due = time.monotonic(), state.redeliveries.next_due
            if state.request.type.in_order and due is not None and due <= now:
                state.have_again()
                return
            again = state.redeliveries.take_due(now, state.epoch)
            if (due := state.redeliveries.next_due) is not None:
                self._thread.due(due)
            link, epoch = self._link.current, state.epoch
        if not again:
            return
        try:
            if link is None:
                raise not_connected()
            link.redeliver(epoch, parts_of(again))
            with state.lock:
                for batch, row in again:
                    batch.settle([row])  # a later delivery of the message has a batch of its own
        except BaseException:
            with state.lock:
                for batch, row in again:
                    state.redeliveries.refuse(batch, row, 0.0)
            raise
