"""Acknowledgements that wait to be sent, joined to ranges when they are, and sending them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from txn_source.client.consuming.link import Link
from txn_source.client.consuming.messages import MessageBatch
from txn_source.client.consuming.receive_queue import ReceiveQueue
from txn_source.model.acknowledgement import Acknowledged, Acknowledgement
from txn_source.model.errors import TxnLogError
from txn_source.model.message_ranges import MessageRange, MessageRanges

_Key = tuple[int, int]
"""Epoch and partition id."""


@dataclass(slots=True)
class _Gathered:
    """What was acknowledged since the last time that it was sent."""

    rows: dict[MessageBatch, list[int]] = field(default_factory=dict)
    ranges: dict[_Key, list[MessageRange]] = field(default_factory=dict)
    up_to: dict[_Key, int] = field(default_factory=dict)

    def by_epoch(self) -> list[Unsent]:
        """Return all of it, the oldest epoch first; rows that are neighbours in one range."""
        ranges = {key: list(items) for key, items in self.ranges.items()}
        for batch, taken in self.rows.items():
            batch.settle(taken)
            ranges.setdefault((batch.epoch, batch.delivery.partition_id), []).extend(batch.ranges(taken))
        found: dict[int, list[Acknowledged]] = {}
        for epoch, partition_id in sorted(ranges.keys() | self.up_to.keys()):
            items = tuple(ranges.get((epoch, partition_id), ()))
            found.setdefault(epoch, []).append(Acknowledged(partition_id, items, self.up_to.get((epoch, partition_id))))
        return [Unsent(epoch, tuple(parts)) for epoch, parts in found.items()]


@dataclass(frozen=True, slots=True, eq=False)
class Unsent:
    """Acknowledgements of one epoch that are sent together."""

    epoch: int
    parts: tuple[Acknowledged, ...]


class PendingAcknowledgements:
    """What a consumer has acknowledged and the service hasn't stored yet. Its owner locks.

    It is kept until the service has answered. Sending twice is harmless, so nothing is lost by an exception in between.
    """

    def __init__(self) -> None:
        self._gathered = _Gathered()
        self._unsent: tuple[Unsent, ...] = ()
        self.count = 0
        """So many single messages were gathered since the last ``unsent``."""

    def add_row(self, batch: MessageBatch, row: int) -> None:
        """Take one message."""
        rows = self._gathered.rows.get(batch)
        if rows is None:
            self._gathered.rows[batch] = [row]
        else:
            rows.append(row)
        self.count += 1

    def rows_of(self, batch: MessageBatch) -> Sequence[int]:
        """Return the rows of a batch that were gathered since the last ``unsent``."""
        return self._gathered.rows.get(batch, ())

    def add_range(self, epoch: int, partition_id: int, item: MessageRange) -> None:
        """Take a range."""
        self._gathered.ranges.setdefault((epoch, partition_id), []).append(item)

    def add_up_to(self, epoch: int, partition_id: int, end: int) -> None:
        """Take everything below a place."""
        up_to, key = self._gathered.up_to, (epoch, partition_id)
        up_to[key] = max(end, up_to.get(key, 0))

    def ranges(self, epoch: int) -> dict[int, MessageRanges]:
        """Return the ranges of an epoch that the service hasn't stored yet, by partition id."""
        found: dict[int, MessageRanges] = {}
        for part in (part for unsent in self.unsent() if unsent.epoch == epoch for part in unsent.parts):
            of = found.setdefault(part.partition_id, MessageRanges())
            for item in (*part.ranges, *([MessageRange(0, part.up_to)] if part.up_to is not None else [])):
                of.add(item)
        return found

    def unsent(self) -> tuple[Unsent, ...]:
        """Return all that is to be sent, in order; it stays until ``sent``."""
        found = self._gathered.by_epoch()
        if found:
            self._unsent, self._gathered, self.count = (*self._unsent, *found), _Gathered(), 0
        return self._unsent

    def sent(self, item: Unsent) -> None:
        """Forget what the service has stored."""
        self._unsent = tuple(other for other in self._unsent if other is not item)


class AcknowledgementSender:
    """Sends what a consumer has acknowledged. It outlives the consumer until its thread has ended."""

    def __init__(self, link: Link, queue: ReceiveQueue, lock: threading.RLock) -> None:
        """Take the connection, the queue of its deliveries, and the lock that guards both and ``pending``."""
        self.pending = PendingAcknowledgements()
        self.subscription_id = self.consumer_id = -1
        self.reports = False
        """True if the consumer reports received ranges to the service."""
        self.hopeless = False
        """True if nothing that is left can be sent any more."""
        self.sending = threading.Lock()
        """Keeps two threads from sending at once."""
        self._link = link
        self._queue = queue
        self._lock = lock

    def send(self) -> None:
        """Send what has been acknowledged; when it returns it is stored.

        Raises:
            UnavailableError: there is no connection, or it was lost; what wasn't stored stays pending.
        """
        with self.sending:
            with self._lock:
                unsent = self.pending.unsent()
                conversation = self._link.conversation if unsent else None
            for item in unsent:
                assert conversation is not None
                conversation.acknowledge(
                    Acknowledgement(self.subscription_id, self.consumer_id, item.epoch, item.parts)
                )
                with self._lock:
                    self.pending.sent(item)

    def received(self, epoch: int) -> list[Acknowledged]:
        """Return the ranges that the caller received on this connection in an epoch. Locked.

        Of a shared subscription those that it acknowledged are left out.
        """
        if epoch != self._queue.epoch:
            return []
        if not self._queue.is_shared:
            in_order = self._queue.received_in_order()
            return [Acknowledged(partition_id, tuple(ranges)) for partition_id, ranges in in_order.items()]
        found: dict[int, list[MessageRange]] = {}
        for batch, rows in self._queue.in_hand.items():
            if (batch.epoch, batch.origin.consumer_id) == (epoch, self.consumer_id):
                left = [row for row in range(rows) if row not in batch.acknowledged]
                found.setdefault(batch.delivery.partition_id, []).extend(batch.ranges(left) if left else ())
        return [Acknowledged(partition_id, tuple(ranges)) for partition_id, ranges in found.items() if ranges]

    def finish(self) -> None:
        """Send the last acknowledgements, report the received messages, and disconnect."""
        try:
            if not self.hopeless:
                self.send()
                self._leave()
        finally:
            self._link.close()

    def _leave(self) -> None:
        with self._lock:
            self._queue.note_received()
            conversation, epoch = self._link.current, self._queue.epoch
            parts = self.received(epoch)
        if conversation is None or not self.reports:
            return
        with suppress(TxnLogError):  # an older service refuses this
            conversation.leave(max(0, epoch), parts)


def consumed(subscription_id: int, batches: Mapping[MessageBatch, Sequence[int]]) -> list[Acknowledgement]:
    """Return what a transaction acknowledges of a subscription: rows of batches.

    Each carries the consumer and the epoch of the delivery: after a reconnect or a seek it is refused.
    """
    found: dict[_Key, dict[int, list[MessageRange]]] = {}
    for batch, rows in batches.items():
        of = found.setdefault((batch.origin.consumer_id, batch.epoch), {})
        of.setdefault(batch.delivery.partition_id, []).extend(batch.ranges(rows))
    return [
        Acknowledgement(
            subscription_id,
            consumer_id,
            epoch,
            tuple(Acknowledged(partition_id, tuple(items)) for partition_id, items in sorted(parts.items())),
        )
        for (consumer_id, epoch), parts in found.items()
    ]
