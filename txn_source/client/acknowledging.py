"""How a consumer acknowledges: gathered, sent together, or with a transaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from txn_source.client.acknowledgements import PendingAcknowledgements, consumed
from txn_source.client.consumer_options import ConsumerOptions
from txn_source.client.messages import Message, MessageBatch, Origin, rows_of
from txn_source.client.redeliveries import Redeliveries
from txn_source.metadata.consumer_link import ConsumerLink, Delivery
from txn_source.metadata.subscriptions import Acknowledgement
from txn_source.model.errors import InvalidArgumentError, UnavailableError
from txn_source.model.message_ranges import MessageRange
from txn_source.model.subscription import SubscriptionType

_PENDING_MAX = 10_000
"""So many messages are sent without waiting for more."""


class Acknowledging:
    """Part of ``Consumer``."""

    subscription: str
    type: SubscriptionType
    _condition: threading.Condition
    _sending: threading.Lock
    _options: ConsumerOptions
    _pending: PendingAcknowledgements
    _redeliveries: Redeliveries
    _origin: Origin
    _link: ConsumerLink | None
    _plain: bool
    _closed: bool

    def _due(self, at: float) -> None:
        raise NotImplementedError

    def acknowledge(self, message: Message | MessageBatch) -> None:
        """Say that a message, or a batch, has been processed; it is sent with others after a moment.

        What was acknowledged before a crash and not yet sent is delivered once more: at least once. Acknowledging twice
        is harmless; so is a message from before a seek: the service ignores it and counts it.
        """
        if isinstance(message, Message):
            batch, row = message._batch, message._row
            self._check_mine(batch)
            with self._condition:
                self._pending.add_row(batch, row)
                if not self._plain:
                    self._redeliveries.acknowledged(batch, row)
                if self._pending.count == 1:
                    self._due(time.monotonic() + self._options.acknowledge_interval)
                elif self._pending.count == _PENDING_MAX:
                    self._due(0.0)
            return
        batch, _ = rows_of(message)
        self._check_mine(batch)
        with self._condition:
            for item in batch.ranges():
                self._add_range(batch.delivery, item)

    def acknowledge_cumulative(self, message: Message | MessageBatch) -> None:
        """Acknowledge a message and all before it in its partition; not on a shared subscription."""
        if not self.type.in_order:
            raise InvalidArgumentError(
                f"Subscription {self.subscription!r} is shared: what comes before a message went to others, too.",
                "Acknowledge the messages themselves.",
            )
        batch, rows = rows_of(message)
        self._check_mine(batch)
        with self._condition:
            partition_id, end = batch.delivery.partition_id, batch.end(rows[-1])
            self._pending.add_up_to(batch.epoch, partition_id, end)
            self._redeliveries.acknowledged_up_to(partition_id, end)
            self._due(time.monotonic() + self._options.acknowledge_interval)

    def negative_acknowledge(self, message: Message | MessageBatch) -> None:
        """Have a message, or a batch, delivered again after ``negative_acknowledge_delay``.

        Of an exclusive or failover subscription all that isn't acknowledged then comes again, in order and in a new
        epoch.
        """
        batch, rows = rows_of(message)
        self._check_mine(batch)
        with self._condition:
            due = time.monotonic() + self._options.negative_acknowledge_delay
            for row in rows:
                self._redeliveries.refuse(batch, row, due)
            self._due(due)

    def flush(self) -> None:
        """Send the acknowledgements made so far; when it returns they are stored."""
        with self._sending:
            self._send_acknowledgements()

    def _check_mine(self, batch: MessageBatch) -> None:
        if batch.origin.subscription_id != self._origin.subscription_id:
            raise InvalidArgumentError(
                f"The message comes from another subscription of topic {batch.topic!r} than {self.subscription!r}.",
                "Acknowledge it with the consumer that received it.",
            )

    def _add_range(self, delivery: Delivery, item: MessageRange) -> None:
        self._pending.add_range(delivery.epoch, delivery.partition_id, item)
        self._due(time.monotonic() + self._options.acknowledge_interval)

    def _send_acknowledgements(self) -> None:
        with self._condition:
            parts = self._pending.take()
            link, origin = self._link, self._origin
        try:
            for epoch in list(parts):
                if link is None:
                    raise not_connected()
                link.acknowledge(
                    Acknowledgement(origin.subscription_id, origin.consumer_id, epoch, tuple(parts[epoch]))
                )
                del parts[epoch]
        except UnavailableError:
            with self._condition:  # they are sent when the consumer is connected again
                self._pending.put_back(parts)
            raise

    # Transactions

    def _consumed(self, batches: Mapping[MessageBatch, list[int]]) -> list[Acknowledgement]:
        """Return what a transaction acknowledges, for the service."""
        return consumed(self._origin.subscription_id, batches)

    def _committed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        """Take notice that a transaction has acknowledged messages: they need not be delivered again."""
        with self._condition:
            for batch, rows in batches.items():
                for row in rows:
                    self._redeliveries.acknowledged(batch, row)

    def _not_consumed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        """Have what an aborted transaction consumed delivered again."""
        with self._condition:
            if self._closed:
                return
            for batch, rows in batches.items():
                for row in rows:
                    self._redeliveries.refuse(batch, row, 0.0)
            self._due(0.0)


def not_connected() -> UnavailableError:
    """Return the error of what needs a connection while there is none."""
    return UnavailableError("The consumer isn't connected at the moment.", "It connects again by itself.")
