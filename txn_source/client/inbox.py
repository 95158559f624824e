"""What was delivered to a consumer and waits to be taken, and how far its caller has got."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from txn_source.client.messages import MessageBatch
from txn_source.metadata.consumer_link import Delivery
from txn_source.model.errors import TxnLogError
from txn_source.model.message_ranges import MessageRange

Read = Callable[[Delivery], Iterator[MessageBatch | MessageRange]]


class Inbox:
    """Deliveries in the order in which they came. Bytes are read when the caller gets there. Its owner locks."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._queue: deque[Delivery] = deque()
        self._delivery: Delivery | None = None
        self._reading: Iterator[MessageBatch | MessageRange] | None = None
        self._points: dict[int, int] = {}
        self._last: dict[int, MessageBatch] = {}
        self.batch: MessageBatch | None = None
        """The current one, of which the rows before ``row`` were taken."""
        self.row = 0
        self.taken = 0
        """Permits of the deliveries that are done with, until the owner asks for as many more."""

    def put(self, delivery: Delivery) -> None:
        """Take a delivery."""
        self._queue.append(delivery)

    def drop(self, points: Mapping[int, int] | None = None) -> None:
        """Forget what was delivered; the caller goes on at places (``message_key`` by partition id), or where it is."""
        self._points = self.stand() | dict(points or {})
        self._last = {}
        self._queue.clear()
        self._delivery = self._reading = self.batch = None
        self.row = self.taken = 0

    def begin_at(self, points: Mapping[int, int]) -> None:
        """Note where the subscription stands (``message_key`` by partition id) until something is taken."""
        self._points.update(points)

    def advance(self) -> tuple[Delivery, MessageRange] | bool:
        """Make the next batch the current one and return True; return False if nothing is left.

        Of a wanted range in which nothing is visible the delivery and the range are returned instead: nobody will
        acknowledge its messages.
        """
        while True:
            if self._reading is not None and self._delivery is not None:
                found = self._next(self._reading, self._delivery)
                if isinstance(found, MessageBatch):
                    self.batch, self.row = found, 0
                    self._last[found.delivery.partition_id] = found
                    return True
                if found is not None:
                    return self._delivery, found
                self.taken += self._delivery.messages
                self._delivery = self._reading = self.batch = None
            if not self._queue:
                return False
            self._delivery = self._queue.popleft()
            self._reading = self._read(self._delivery)

    def _next(
        self, reading: Iterator[MessageBatch | MessageRange], delivery: Delivery
    ) -> MessageBatch | MessageRange | None:
        try:
            return next(reading, None)
        except TxnLogError:  # what is left of the delivery is read again by the next call
            reached = self.stand().get(delivery.partition_id, 0)
            left = [replace(r, start=max(r.start, reached)) for r in delivery.wanted if r.end > reached]
            self._queue.appendleft(replace(delivery, wanted=tuple(left)))
            self._delivery = self._reading = self.batch = None
            raise

    def stand(self) -> dict[int, int]:
        """Return the place behind the last message that was taken, by partition id."""
        found = dict(self._points)
        for partition_id, batch in self._last.items():
            if batch is self.batch and self.row < len(batch):
                found[partition_id] = batch.start(self.row)
            else:
                found[partition_id] = batch.end(len(batch) - 1)
        return found
