"""How a consumer acknowledges: gathered, sent together, or with a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from txn_source.client.consuming.acknowledgements import consumed
from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.dead_letters import DeadLetters
from txn_source.client.consuming.messages import Message, MessageBatch, rows_of
from txn_source.client.consuming.redeliveries import parts_of
from txn_source.metadata.stub.conversation import Delivery
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.message_ranges import MessageRange

_PENDING_MAX = 10_000
"""So many messages are sent without waiting for more."""


class Acknowledging:
    """Takes acknowledgements and refusals of a consumer's caller, and does with them what is due: its ``DueWork``."""

    def __init__(self, state: ConsumerState, dead_letters: DeadLetters) -> None:
        self._state = state
        self._dead_letters = dead_letters
        self._lock = state.lock
        self._options = state.options
        self._thread = state.thread
        self._sender = state.sender
        self._pending = state.sender.pending

    def do_what_is_due(self) -> None:
        """Connect again, send acknowledgements, have messages redelivered; the consumer's own thread calls it."""
        self._state.link.keep(self._state, self._do_what_needs_a_connection)

    def _do_what_needs_a_connection(self) -> None:
        """Send acknowledgements and request redeliveries; in order, leave these to the next receive call."""
        state = self._state
        self._sender.send()
        if state.letters:
            self._dead_letters.send_kept()
        with self._lock:
            now, due = time.monotonic(), state.redeliveries.next_due
            if state.given.type.in_order and due is not None and due <= now:
                state.have_again()
                return
            again = state.redeliveries.take_due(now, state.epoch)
            if (due := state.redeliveries.next_due) is not None:
                self._thread.due(due)
            epoch = state.epoch
        if not again:
            return
        try:
            state.link.conversation.redeliver(epoch, parts_of(again))
            with self._lock:
                for batch, row in again:
                    batch.settle([row])  # a later delivery of the message has a batch of its own
        except BaseException:
            with self._lock:
                for batch, row in again:
                    state.redeliveries.refuse(batch, row, 0.0)
            raise

    def acknowledge(self, message: Message | MessageBatch) -> None:
        """Gather a message, or a batch; see ``Consumer.acknowledge``."""
        if isinstance(message, Message):
            batch, row = message._batch, message._row
            self._check_mine(batch)
            with self._lock:
                count = self._pending.count
                if not count:  # first: it must not stay behind if this call is interrupted and made again
                    self._thread.due(time.monotonic() + self._options.acknowledge_interval)
                elif count == _PENDING_MAX:
                    self._thread.due(0.0)
                self._pending.add_row(batch, row)
                if batch.origin is not self._state.origin:
                    self._state.note_late(batch, [row])
                if not self._state.plain:
                    self._state.redeliveries.acknowledged(batch, row)
            return
        batch, rows = rows_of(message)
        self._check_mine(batch)
        with self._lock:
            for item in batch.ranges():
                self.add_range(batch.delivery, item)
            batch.settle(rows)
            self._state.note_late(batch, rows)
            if not self._state.plain:
                for row in rows:
                    self._state.redeliveries.acknowledged(batch, row)

    def acknowledge_cumulative(self, message: Message | MessageBatch) -> None:
        """Gather a message and all before it in its partition; see ``Consumer.acknowledge_cumulative``."""
        state = self._state
        if not state.given.type.in_order:
            raise InvalidArgumentError(
                f"Subscription {state.given.name!r} is shared: what comes before a message went to others, too.",
                "Acknowledge the messages themselves.",
            )
        batch, rows = rows_of(message)
        self._check_mine(batch)
        if not rows:
            return
        with self._lock:
            partition_id, end = batch.delivery.partition_id, batch.end(rows[-1])
            self._thread.due(time.monotonic() + self._options.acknowledge_interval)
            up_to = end
            # A dead letter's own transaction acknowledges it.
            for gap in sorted(self._letters(partition_id, batch.epoch), reverse=True):
                if gap.start < end:
                    self.add_range(batch.delivery, MessageRange(min(gap.end, up_to), up_to))
                    up_to = gap.start
            self._pending.add_up_to(batch.epoch, partition_id, up_to)
            state.redeliveries.acknowledged_up_to(batch.epoch, partition_id, up_to)

    def _letters(self, partition_id: int, epoch: int) -> Iterator[MessageRange]:
        """Yield the ranges of a partition's unsent dead letters."""
        for message in self._state.letters.values():
            if (message._batch.delivery.partition_id, message.epoch) == (partition_id, epoch):
                yield from message._batch.ranges([message._row])

    def negative_acknowledge(self, message: Message | MessageBatch) -> None:
        """Have a message, or a batch, delivered again after a delay; see ``Consumer.negative_acknowledge``."""
        batch, rows = rows_of(message)
        self._check_mine(batch)
        with self._lock:
            self._refuse(batch, rows, self._options.negative_acknowledge_delay)

    def _refuse(self, batch: MessageBatch, rows: Sequence[int], after_s: float) -> None:
        """Schedule a redelivery of rows, except acknowledged ones and those of an older epoch or connection. Locked."""
        state, due = self._state, time.monotonic() + after_s
        if (batch.epoch, batch.origin.consumer_id) != (state.epoch, state.origin.consumer_id):
            return  # the service redelivers these by itself
        state.plain = False  # an acknowledgement takes it back
        self._thread.due(due)
        taken = {*batch.promised, *self._pending.rows_of(batch)}
        for row in rows:
            if row not in taken and not (state.letters and batch.key(row) in state.letters):
                state.redeliveries.refuse(batch, row, due)
        if after_s <= 0 and state.given.type.in_order:
            state.have_again()

    def takes_due(self) -> bool:
        """Take the messages that are due for a redelivery in order, and count them; return False if there are none."""
        state = self._state
        with self._lock:
            state.again_due = False
            again = state.redeliveries.take_due(time.monotonic(), state.epoch)
            if not state.given.counts:
                state.redeliveries.count(again)
            if (due := state.redeliveries.next_due) is not None:
                self._thread.due(due)
        return bool(again)

    def add_range(self, delivery: Delivery, item: MessageRange) -> None:
        """Gather a range of a delivery. The lock is held."""
        self._thread.due(time.monotonic() + self._options.acknowledge_interval)
        self._pending.add_range(delivery.epoch, delivery.partition_id, item)

    def flush(self) -> None:
        """Send what was gathered; when it returns it is stored."""
        self._state.check_open()
        self._sender.send()

    # Transactions

    def consumed(self, batches: Mapping[MessageBatch, list[int]]) -> list[Acknowledgement]:
        """Return what a transaction acknowledges, for the service."""
        return consumed(self._state.origin.subscription_id, batches)

    def expect(self, batch: MessageBatch, rows: Sequence[int], until: float) -> None:
        """Note rows that a transaction acknowledges; they are redelivered unless it is ``committed`` by a time."""
        with self._lock:
            batch.promised.update(rows)
            self._state.plain = False
            self._thread.due(until)
            for row in rows:
                self._state.redeliveries.promise(batch, row, until)

    def committed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        """Take notice that a transaction has acknowledged messages: they need not be delivered again."""
        with self._lock:
            for batch, rows in batches.items():
                batch.settle(rows)
                batch.promised.difference_update(rows)
                for row in rows:
                    self._state.redeliveries.acknowledged(batch, row)

    def not_consumed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        """Have what an aborted transaction consumed delivered again."""
        with self._lock:
            if self._state.refusal is not None:
                return
            for batch, rows in batches.items():
                batch.promised.difference_update(rows)
                self._refuse(batch, rows, 0.0)

    def _check_mine(self, batch: MessageBatch) -> None:
        state = self._state
        if state.refusal is not None:
            state.check_open()
        if batch.origin.subscription_id != state.origin.subscription_id:
            raise InvalidArgumentError(
                f"The message comes from another subscription of topic {batch.topic!r} than {state.given.name!r}.",
                "Acknowledge it with the consumer that received it.",
            )
