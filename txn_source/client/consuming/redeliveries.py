"""Messages that are to be delivered again: what was refused, and what nobody acknowledged in time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from txn_source.client.consuming.messages import MessageBatch
from txn_source.model.acknowledgement import Acknowledged

_Row = tuple[MessageBatch, int]
_Key = tuple[int, int]
"""``MessageBatch.key``."""


class Redeliveries:
    """What becomes due for a redelivery, and when (monotonic seconds). Its owner locks."""

    def __init__(self) -> None:
        self._refused: dict[_Key, tuple[float, MessageBatch, int]] = {}
        self._handed_out: dict[_Row, float] = {}  # the first one is due first
        self._promised: dict[_Row, float] = {}
        self._counts: dict[_Key, int] = {}
        self._up_to: dict[
            tuple[int, int], int
        ] = {}  # by epoch and partition id: all that ends at or below was acknowledged

    @property
    def next_due(self) -> float | None:
        """When the next one is due; None if none is."""
        refused = (due for due, _, _ in self._refused.values())
        return min((*refused, *islice(self._handed_out.values(), 1), *self._promised.values()), default=None)

    def refuse(self, batch: MessageBatch, row: int, due: float) -> None:
        """Schedule a message's redelivery, unless it was acknowledged."""
        up_to = self._up_to.get((batch.epoch, batch.delivery.partition_id), 0)
        if row not in batch.acknowledged and batch.end(row) > up_to:
            self._handed_out.pop((batch, row), None)
            self._refused[batch.key(row)] = due, batch, row

    def hand_out(self, batch: MessageBatch, row: int, due: float) -> None:
        """Take a message that has to be acknowledged in time."""
        self._handed_out[batch, row] = due

    def promise(self, batch: MessageBatch, row: int, due: float) -> None:
        """Schedule the redelivery of a message for the deadline of the transaction that acknowledges it."""
        self.take_back(batch, row)
        self._promised[batch, row] = due

    def acknowledged(self, batch: MessageBatch, row: int) -> None:
        """Forget a message that was acknowledged."""
        self.take_back(batch, row)
        if self._counts:
            self.forget_count(batch, row)

    def take_back(self, batch: MessageBatch, row: int) -> None:
        """Cancel a message's redelivery."""
        self._handed_out.pop((batch, row), None)
        self._promised.pop((batch, row), None)
        if self._refused:
            self._refused.pop(batch.key(row), None)

    def acknowledged_up_to(self, epoch: int, partition_id: int, end: int) -> None:
        """Forget the messages of a partition that end at or below a place."""
        for batch, row in list(self._handed_out):
            if batch.delivery.partition_id == partition_id and batch.end(row) <= end:
                del self._handed_out[batch, row]
        for of_partition, place in list(self._counts):
            if of_partition == partition_id and place < end:
                del self._counts[of_partition, place]
        for (of_partition, place), (_, batch, row) in list(self._refused.items()):
            if of_partition == partition_id and batch.end(row) <= end:
                del self._refused[of_partition, place]
        self._up_to[epoch, partition_id] = max(end, self._up_to.get((epoch, partition_id), 0))

    def take_due(self, now: float, epoch: int) -> list[_Row]:
        """Return those that are due, and forget them; of older epochs all are forgotten."""
        found = [(batch, row) for due, batch, row in self._refused.values() if due <= now and batch.epoch == epoch]
        self._refused = {key: of for key, of in self._refused.items() if of[0] > now and of[1].epoch == epoch}
        late = [key for waiting in (self._handed_out, self._promised) for key, due in waiting.items() if due <= now]
        for key in late:
            self._handed_out.pop(key, None)
            self._promised.pop(key, None)
        return found + [key for key in late if key[0].epoch == epoch]

    def forget_before(self, epoch: int) -> None:
        """Forget what was delivered in older epochs: it comes again anyway."""
        self._refused = {key: of for key, of in self._refused.items() if of[1].epoch >= epoch}
        self._up_to = {key: end for key, end in self._up_to.items() if key[0] >= epoch}
        self._handed_out = {key: due for key, due in self._handed_out.items() if key[0].epoch >= epoch}
        self._promised = {key: due for key, due in self._promised.items() if key[0].epoch >= epoch}

    def count(self, rows: Iterable[_Row]) -> None:
        """Count one more redelivery of each; the service counts for shared subscriptions only."""
        for key in {batch.key(row) for batch, row in rows}:
            self._counts[key] = self._counts.get(key, 0) + 1

    def count_of(self, batch: MessageBatch, row: int) -> int:
        """Return how often a message was delivered again."""
        return self._counts.get(batch.key(row), 0) if self._counts else 0

    def forget_count(self, batch: MessageBatch, row: int) -> None:
        """Forget the count of a message that doesn't come again."""
        self._counts.pop(batch.key(row), None)


def parts_of(rows: Sequence[_Row]) -> list[Acknowledged]:
    """Return messages by partition, each a range of its own."""
    return [Acknowledged(batch.delivery.partition_id, tuple(batch.ranges([row]))) for batch, row in rows]
