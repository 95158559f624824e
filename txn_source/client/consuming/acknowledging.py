"""How a consumer acknowledges: gathered, sent together, or with a transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping

from txn_source.client.consuming.acknowledgements import consumed
from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.messages import Message, MessageBatch, rows_of
from txn_source.metadata.stub.consumer_stream import Delivery
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.door import guarded
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.message_ranges import MessageRange

_PENDING_MAX = 10_000
"""So many messages are sent without waiting for more."""


@guarded(but=("acknowledge",))
class Acknowledging(ConsumerState):
    """Part of ``Consumer``."""

    def acknowledge(self, message: Message | MessageBatch) -> None:
        """Say that a message, or a batch, has been processed; it is sent with others after a moment.

        What was acknowledged before a crash and not yet sent is delivered once more: at least once. Acknowledging twice
        is harmless; so is a message from before a seek: the service ignores it and counts it.
        """
        if isinstance(message, Message):
            batch, row = message._batch, message._row
            self._check_mine(batch)
            with self._lock:
                count = self._pending.count
                if not count:  # first: it must not stay behind if this call is interrupted and made again
                    self._upkeep.due(time.monotonic() + self._options.acknowledge_interval)
                elif count == _PENDING_MAX:
                    self._upkeep.due(0.0)
                self._pending.add_row(batch, row)
                if not self._plain:
                    self._redeliveries.acknowledged(batch, row)
            return
        batch, _ = rows_of(message)
        self._check_mine(batch)
        with self._lock:
            for item in batch.ranges():
                self._add_range(batch.delivery, item)

    def acknowledge_cumulative(self, message: Message | MessageBatch) -> None:
        """Acknowledge a message and all before it in its partition; not on a shared subscription.

        With several threads that includes what other threads have received and not processed yet: if the process ends
        before they have, these messages don't come again. Then acknowledge the messages themselves. What was delivered
        and no call has returned yet is never included.
        """
        if not self.type.in_order:
            raise InvalidArgumentError(
                f"Subscription {self.subscription!r} is shared: what comes before a message went to others, too.",
                "Acknowledge the messages themselves.",
            )
        batch, rows = rows_of(message)
        self._check_mine(batch)
        if not rows:
            return
        with self._lock:
            partition_id, end = batch.delivery.partition_id, batch.end(rows[-1])
            self._upkeep.due(time.monotonic() + self._options.acknowledge_interval)
            up_to = end
            for gap in reversed(self._inbox.held_back(partition_id, batch.epoch)):
                if gap.start < end:  # an interrupted call gave it back: nobody has received it
                    self._add_range(batch.delivery, MessageRange(min(gap.end, up_to), up_to))
                    up_to = gap.start
            self._pending.add_up_to(batch.epoch, partition_id, up_to)
            self._redeliveries.acknowledged_up_to(partition_id, up_to)

    def negative_acknowledge(self, message: Message | MessageBatch) -> None:
        """Have a message, or a batch, delivered again after ``negative_acknowledge_delay``.

        Of an exclusive or failover subscription all that isn't acknowledged then comes again, in order and in a new
        epoch.
        """
        batch, rows = rows_of(message)
        self._check_mine(batch)
        with self._lock:
            due = time.monotonic() + self._options.negative_acknowledge_delay
            self._upkeep.due(due)
            for row in rows:
                self._redeliveries.refuse(batch, row, due)

    def flush(self) -> None:
        """Send the acknowledgements made so far; when it returns they are stored."""
        self._check_open()
        self._upkeep.send()

    def _check_mine(self, batch: MessageBatch) -> None:
        if self._refusal is not None:
            self._check_open()
        if batch.origin.subscription_id != self._origin.subscription_id:
            raise InvalidArgumentError(
                f"The message comes from another subscription of topic {batch.topic!r} than {self.subscription!r}.",
                "Acknowledge it with the consumer that received it.",
            )

    def _add_range(self, delivery: Delivery, item: MessageRange) -> None:
        self._upkeep.due(time.monotonic() + self._options.acknowledge_interval)
        self._pending.add_range(delivery.epoch, delivery.partition_id, item)

    # Transactions

    def _consumed(self, batches: Mapping[MessageBatch, list[int]]) -> list[Acknowledgement]:
        """Return what a transaction acknowledges, for the service."""
        return consumed(self._origin.subscription_id, batches)

    def _committed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        """Take notice that a transaction has acknowledged messages: they need not be delivered again."""
        with self._lock:
            for batch, rows in batches.items():
                for row in rows:
                    self._redeliveries.acknowledged(batch, row)

    def _not_consumed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        """Have what an aborted transaction consumed delivered again."""
        with self._lock:
            if self._refusal is not None:
                return
            for batch, rows in batches.items():
                for row in rows:
                    self._redeliveries.refuse(batch, row, 0.0)
            self._upkeep.due(0.0)
