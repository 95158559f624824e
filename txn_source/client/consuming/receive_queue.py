"""What was delivered to a consumer and waits to be taken, and how far its caller has got.

An iterator that failed is never asked again: what is left of its delivery is read anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from txn_source.client.consuming.messages import MessageBatch
from txn_source.metadata.stub.conversation import Delivery
from txn_source.model.errors import DataLossError, TxnLogError
from txn_source.model.message_ranges import MessageRange, key_of, message_id_of, message_key
from txn_source.model.position import MessageId, PositionRange

Read = Callable[[Delivery], Iterator[MessageBatch | MessageRange]]


@dataclass(frozen=True, slots=True)
class Loss:
    """A range of a partition's positions that was trimmed before the caller received its messages."""

    partition_id: int
    range: PositionRange


class ReceiveQueue:
    """Deliveries in the order in which they came. Bytes are read when the caller gets there. Its owner locks."""

    def __init__(self) -> None:
        self._queue: deque[Delivery] = deque()
        self._delivery: Delivery | None = None  # the one that is being read
        self._reading: Iterator[MessageBatch | MessageRange] | None = None
        self._failed = False  # True while the iterator works, so that it stays so if that raises
        self._reached = 0  # up to here the delivery was read, ``message_key``
        self._points: dict[int, int] = {}
        self._last: dict[int, MessageBatch] = {}
        self._lost: Loss | None = None  # found and not raised yet; the next delivery may extend it
        self.in_hand: dict[MessageBatch, int] = {}
        """Batches of a shared subscription's connection with unacknowledged rows, and how many rows of each the caller
        has received, from the first on; ``note_received`` updates the current batch."""
        self.is_shared = False
        self.epoch = -1
        """That of the newest batch."""
        self._came_from: set[int] = set()  # the partitions whose batches came in that epoch
        self._dropped: tuple[MessageBatch, int] | None = None  # the batch and row that were current at the last drop
        self._most_in_hand = 16
        self.batch: MessageBatch | None = None
        """The current one, of which the rows before ``row`` were taken."""
        self.row = self.counted = 0
        """Rows of the current batch before ``counted`` were counted before their redelivery."""
        self.values: Sequence[Any] = ()
        """The values of the current batch's first rows; those of the others are not known yet, or can't be shown."""
        self.taken = 0
        """Permits of the deliveries that are done with, until the owner asks for as many more."""

    def put(self, delivery: Delivery) -> None:
        """Take a delivery."""
        self._queue.append(delivery)

    def drop(self, messages: Mapping[int, MessageId] | None = None) -> None:
        """Forget what was delivered; the caller goes on at messages, by partition id, or where it is."""
        self.note_received()
        self._dropped = None if self.batch is None else (self.batch, self.row)
        self._points, self._last = self._places() | _keys(messages or {}), {}
        self._queue.clear()
        self._delivery = self._reading = self._lost = self.batch = None
        self.values, self.row, self.counted, self.taken, self._failed = (), 0, 0, 0, False

    def note_received(self) -> None:
        """Update ``in_hand`` with the rows of the current batch that the caller has received."""
        if self.batch is not None and self.batch in self.in_hand:
            self.in_hand[self.batch] = self.row

    def received_in_order(self) -> dict[int, list[MessageRange]]:
        """Return what the caller has received of an ordered subscription, by partition id: all below a place.

        A partition is left out until a batch of it comes in the newest epoch: its place is that of an older one.
        """
        places = {partition_id: key for partition_id, key in self._places().items() if partition_id in self._came_from}
        found = {partition_id: [MessageRange(0, key)] for partition_id, key in places.items() if key}
        batch, row = self._dropped or (None, 0) if self.batch is None else (self.batch, self.row)
        if batch is not None and row:
            partition_id = batch.delivery.partition_id
            if places.get(partition_id) == (batch.start(row) if row < len(batch) else batch.end(row - 1)):
                found[partition_id] = [MessageRange(0, batch.start(0)), *batch.ranges(range(row))]
        return found

    def begin_at(self, messages: Mapping[int, MessageId]) -> None:
        """Note the subscription's next messages, by partition id, until something is taken."""
        self._points.update(_keys(messages))

    def advance(self, read: Read) -> tuple[Delivery, MessageRange] | Loss | bool:
        """Make the next batch the current one and return True; return False if nothing is left.

        Of a wanted range in which nothing is visible the delivery and the range are returned instead: nobody will
        acknowledge its messages. The owner does, and calls ``passed``. A trimmed range is returned as a ``Loss``,
        joined with its neighbours; the next call continues behind it.

        Raises:
            TxnLogError: what comes next can't be read now; the next call tries again.
        """
        while True:
            if self._delivery is None:
                if not self._queue or (self._lost and self._queue[0].partition_id != self._lost.partition_id):
                    return self._told() or False
                self._delivery, self._reading, self._reached, self._failed = self._queue.popleft(), None, 0, False
            delivery = self._delivery
            try:
                found = self._next(delivery, read)
            except DataLossError as error:
                if error.lost is None:
                    raise
                start = error.lost.start if self._lost is None else min(self._lost.range.start, error.lost.start)
                self._reached = max(self._reached, message_key(error.lost.end))
                self._lost = Loss(delivery.partition_id, PositionRange(start, error.lost.end))
                continue
            except TxnLogError:
                if (lost := self._told()) is not None:
                    return lost
                raise
            if found is not None and (lost := self._told()) is not None:
                return lost  # before the batch, which is read again
            if isinstance(found, MessageBatch):
                self._install(delivery, found)
                return True
            if found is not None:
                return delivery, found
            self._finish(delivery)

    def _told(self) -> Loss | None:
        """Return the loss that hasn't been raised yet, and continue behind it."""
        lost = self._lost
        if lost is not None:
            self._points[lost.partition_id] = message_key(lost.range.end)
            self._last.pop(lost.partition_id, None)
            self._lost = None
        return lost

    def passed(self) -> None:
        """Take notice that a range in which nothing is visible was acknowledged."""
        self._failed = False

    def cursors(self) -> dict[int, MessageId]:
        """Return how far the caller is: the next message behind the last one that was taken, by partition id."""
        return {partition_id: message_id_of(key) for partition_id, key in self._places().items()}

    def _places(self) -> dict[int, int]:
        """Return the same as places, ``message_key``."""
        found = dict(self._points)
        for partition_id, batch in self._last.items():
            found[partition_id] = batch.end(len(batch) - 1)
        if self.batch is not None and self.row < len(self.batch):
            found[self.batch.delivery.partition_id] = self.batch.start(self.row)
        return found

    def _next(self, delivery: Delivery, read: Read) -> MessageBatch | MessageRange | None:
        reading = self._reading
        if reading is None or self._failed:
            left = delivery
            if self._failed:
                wanted = (replace(r, start=max(r.start, self._reached)) for r in delivery.wanted)
                left = replace(delivery, wanted=tuple(r for r in wanted if r.start < r.end))
            if not left.wanted:
                return None
            reading = self._reading = read(left)
        self._failed = True
        return next(reading, None)

    def _install(self, delivery: Delivery, batch: MessageBatch) -> None:
        if self.is_shared:
            self._take_in_hand(batch)
        self.batch, self.row, self.counted, self.values = batch, 0, 0, ()
        self._reached, self._failed = batch.end(len(batch) - 1), False
        self._last[delivery.partition_id] = batch
        if delivery.epoch != self.epoch:
            self._came_from.clear()
        self.epoch = delivery.epoch
        self._came_from.add(delivery.partition_id)

    def _take_in_hand(self, batch: MessageBatch) -> None:
        if len(self.in_hand) >= self._most_in_hand:
            left = [b for b in self.in_hand if len(b.acknowledged) < len(b) and b.epoch == batch.epoch]
            self.in_hand = {each: self.in_hand[each] for each in left}
            self._most_in_hand = 2 * len(left) + 16
        self.in_hand[batch] = len(batch)

    def _finish(self, delivery: Delivery) -> None:
        self.taken += delivery.messages
        self._delivery = self._reading = self.batch = None
        self.values, self._failed = (), False


def _keys(messages: Mapping[int, MessageId]) -> dict[int, int]:
    return {partition_id: key_of(at) for partition_id, at in messages.items()}
