"""How a consumer is connected: what it hears, how it connects again, and what it does when something comes due."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from txn_source.client.consuming.messages import Origin, message_schema
from txn_source.client.consuming.redeliveries import parts_of
from txn_source.client.consuming.seeking import Seeking
from txn_source.client.consuming.upkeep import not_connected
from txn_source.metadata.stub.consumer_stream import ConsumerLink, Delivery, Subscribed
from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    SubscriptionIsolationMismatchError,
    SubscriptionNotFoundError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.message_ranges import MessageRange, index_of, message_key, position_of
from txn_source.model.position import PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.storage.schema import deserialize_schema

if TYPE_CHECKING:
    from txn_source.client.consuming.consumer import Consumer

_log = logging.getLogger(__name__)
_MAX_BACKOFF_S = 2.0


class Connecting(Seeking):
    """Part of ``Consumer``."""

    def on_delivery(self, ear: object, delivery: Delivery) -> None:
        """Take a delivery into the queue, unless it is of an older epoch or connection."""
        with self._lock:
            if delivery.epoch == self._epoch and ear is self._ear and self._refusal is None:
                self._inbox.put(delivery)
                self._news.tell()

    def on_epoch_change(self, ear: object, epoch: int) -> None:
        """Begin anew in an epoch, which a seek here or elsewhere has begun, unless an older connection says so."""
        with self._lock:
            if epoch < self._epoch or ear is not self._ear or self._upkeep.link is None:
                return
            self._redeliver_nothing_older(epoch)
            self._inbox.drop()
            self._origin = replace(self._origin)  # what calls return that were struck before is dropped, too
            self._upkeep.link.flow(epoch, self._queue_size)

    def on_end(self, link: ConsumerLink, error: TxnLogError) -> None:
        """Connect again after a lost connection; tell the caller of anything else."""
        with self._lock:
            if link is not self._upkeep.link or self._refusal is not None:
                return
            self._upkeep.link = None
            if not isinstance(error, UnavailableError):
                self._refuse(error)
                return
            _log.warning("consumer %s lost its connection and connects again: %s", self._request.consumer_name, error)
            self._upkeep.due(time.monotonic() + self._retry_s)

    def _open(self) -> None:
        """Connect, and begin in the subscription's current epoch where it stands."""
        ear = _Ear(weakref.ref(cast("Consumer", self)))
        link = ConsumerLink(self._stub.transport, ear, self._stub.transport.timeout_s)
        request = self._request
        again = self._topic_id >= 0
        if not request.durable:
            with self._lock:
                if again:
                    self._settle()
                self._inbox.drop()  # what were taken from now on would come again
                request = replace(request, points=self._inbox.stand() or request.points)
        if request.durable and again:
            request = replace(request, isolation_level=None)  # one that was deleted isn't made again
        try:
            subscribed = link.open(request)
            if again:
                self._check_same(subscribed)
            with self._lock:
                if self._refusal is None:
                    self._adopt(subscribed)
                    self._upkeep.link, self._ear = link, ear
                    self._inbox.drop(subscribed.points)
                    if not request.durable:
                        self._note_losses(subscribed, request.points, again=again)
                    link.release()
                    link.flow(self._epoch, self._queue_size)
                    self._retry_s, self._astray = 0.0, False
                    self._news.tell()
                    return
        except InvalidArgumentError:
            link.close()
            if again and self._topic_now() != self._topic_id:  # whose partitions have other ids
                raise self._made_anew() from None
            raise
        except BaseException:
            link.close()
            raise
        link.close()

    def _adopt(self, subscribed: Subscribed) -> None:
        topic = subscribed.topic
        payload = deserialize_schema(topic.topic.schema)
        self._topic_id = topic.topic.topic_id
        self._schema = message_schema(payload)
        self._partitions = {view.partition_id: view.index for view in topic.partitions}
        self._level = subscribed.isolation_level
        # A reader's stays the same until it seeks: what a struck call returns after this still belongs where it stands.
        if self._request.durable or self._upkeep.consumer_id < 0:
            itself = weakref.ref(cast("Consumer", self))
            self._origin = Origin(itself, self.topic, payload, subscribed.subscription_id, subscribed.consumer_id)
        self._upkeep.subscription_id, self._upkeep.consumer_id = subscribed.subscription_id, subscribed.consumer_id
        self._plain = self._options.acknowledge_timeout is None and self._options.max_redeliveries is None
        self._epoch = subscribed.epoch
        self._redeliveries.forget_before(self._epoch + 1)  # all that isn't acknowledged comes again

    def _check_same(self, subscribed: Subscribed) -> None:
        """Raise if this isn't the subscription any more to which the consumer was connected."""
        durable, name = self._request.durable, self.subscription
        other = durable and subscribed.subscription_id != self._origin.subscription_id
        if other or subscribed.topic.topic.topic_id != self._topic_id:
            raise self._made_anew()
        if subscribed.isolation_level != self._level:
            raise SubscriptionIsolationMismatchError(
                f"Subscription {name!r} was changed to {subscribed.isolation_level} while the connection was lost;"
                f" the consumer has read it as {self._level}.",
                "Subscribe anew if that was meant.",
            )

    def _made_anew(self) -> SubscriptionNotFoundError:
        return SubscriptionNotFoundError(
            f"Subscription {self.subscription!r} of topic {self.topic!r}, or the topic, was deleted and made anew while"
            " the connection was lost.",
            "Subscribe anew if that was meant.",
        )

    def _topic_now(self) -> int:
        [view] = self._stub.get_view([TopicName.parse(self._request.topic)]).topics
        return view.topic.topic_id

    def _note_losses(self, subscribed: Subscribed, wanted: Mapping[int, int], *, again: bool) -> None:
        """Have told what was trimmed before it could be read; only the consumer itself knows how far it had got.

        Where one begins that lies before the start, that isn't a loss, but said.
        """
        for view in subscribed.topic.partitions:
            start, low = wanted.get(view.partition_id), view.bounds.log_start
            if start is None or position_of(start) >= low or view.lost_nothing(position_of(start)):
                continue
            if not again:
                _log.warning(
                    "topic %s, partition %d: nothing can begin at %s:%d, which was trimmed; it begins at %s",
                    self.topic, view.index, position_of(start), index_of(start), low,
                )  # fmt: skip
                continue
            gap = (MessageRange(start, message_key(low)),)
            of = PositionRange(position_of(start), low)
            self._inbox.put(Delivery(self._epoch, view.partition_id, of, gap, 0, 0, 0, None))

    # What comes due

    def do_what_is_due(self) -> None:
        """Connect again, send acknowledgements, have messages redelivered; the consumer's own thread calls it."""
        if self._refusal is not None:
            return
        try:
            with self._lock:
                astray, link = self._astray, self._upkeep.link
                if astray:
                    self._upkeep.link = self._ear = None
            if astray and link is not None:
                link.close()
            if astray or link is None:
                self._connect_again()
            else:
                self._send_what_is_due()
        except UnavailableError:
            self._upkeep.due(time.monotonic() + max(0.1, self._retry_s))
        except TxnLogError as error:
            self._refuse(error)
        except BaseException as error:  # the caller must hear of it: this thread does what nobody else does
            what = f"The consumer's upkeep failed with {type(error).__name__}: {error}."
            self._refuse(InternalError(what, "Please report it, and subscribe again."))

    def _connect_again(self) -> None:
        try:
            self._open()
        except UnavailableError:
            self._retry_s = min(_MAX_BACKOFF_S, max(0.1, self._retry_s * 2))
            raise
        self._upkeep.wake()

    def _send_what_is_due(self) -> None:
        self._upkeep.send()
        with self._lock:
            again = self._redeliveries.take_due(time.monotonic(), self._epoch)
            if (due := self._redeliveries.next_due) is not None:
                self._upkeep.due(due)
            link, epoch = self._upkeep.link, self._epoch
        if not again:
            return
        if self.type.in_order:
            with self._lock:
                self._redeliveries.count(again)
                self._plain = False
            self._begin_epoch(self._redeliver_due)
            return
        try:
            if link is None:
                raise not_connected()
            link.redeliver(epoch, parts_of(again))
        except BaseException:
            with self._lock:
                for batch, row in again:
                    self._redeliveries.refuse(batch, row, 0.0)
            raise


class _Ear:
    """A consumer, as its connection hears for it: without keeping it alive."""

    def __init__(self, consumer: weakref.ref[Consumer]) -> None:
        self._consumer = consumer

    def on_delivery(self, delivery: Delivery) -> None:
        if (consumer := self._consumer()) is not None:
            consumer.on_delivery(self, delivery)

    def on_epoch_change(self, epoch: int, active: bool) -> None:
        if (consumer := self._consumer()) is not None:
            consumer.on_epoch_change(self, epoch)

    def on_end(self, link: ConsumerLink, error: TxnLogError) -> None:
        if (consumer := self._consumer()) is not None:
            consumer.on_end(link, error)
