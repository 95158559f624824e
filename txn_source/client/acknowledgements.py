"""Acknowledgements that wait to be sent, joined to ranges when they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txn_source.client.messages import MessageBatch
from txn_source.metadata.subscriptions import Acknowledged, Acknowledgement
from txn_source.model.message_ranges import MessageRange

_Key = tuple[int, int]
"""Epoch and partition id."""


class PendingAcknowledgements:
    """What a consumer has acknowledged and not sent yet. Its owner locks."""

    def __init__(self) -> None:
        self._rows: dict[MessageBatch, list[int]] = {}
        self._ranges: dict[_Key, list[MessageRange]] = {}
        self._up_to: dict[_Key, int] = {}
        self.count = 0
        """So many single messages wait."""

    def add_row(self, batch: MessageBatch, row: int) -> None:
        """Take one message."""
        rows = self._rows.get(batch)
        if rows is None:
            self._rows[batch] = [row]
        else:
            rows.append(row)
        self.count += 1

    def add_range(self, epoch: int, partition_id: int, item: MessageRange) -> None:
        """Take a range."""
        self._ranges.setdefault((epoch, partition_id), []).append(item)

    def add_up_to(self, epoch: int, partition_id: int, end: int) -> None:
        """Take everything below a place."""
        key = (epoch, partition_id)
        self._up_to[key] = max(end, self._up_to.get(key, 0))

    def take(self) -> dict[int, list[Acknowledged]]:
        """Return all of it, by epoch, the oldest first, and forget it."""
        rows, self._rows = self._rows, {}
        ranges, self._ranges = self._ranges, {}
        up_to, self._up_to = self._up_to, {}
        self.count = 0
        for batch, taken in rows.items():
            ranges.setdefault((batch.epoch, batch.delivery.partition_id), []).extend(batch.ranges(taken))
        found: dict[int, list[Acknowledged]] = {}
        for epoch, partition_id in sorted(ranges.keys() | up_to.keys()):
            items = tuple(ranges.get((epoch, partition_id), ()))
            found.setdefault(epoch, []).append(Acknowledged(partition_id, items, up_to.get((epoch, partition_id))))
        return found

    def put_back(self, unsent: Mapping[int, Sequence[Acknowledged]]) -> None:
        """Take what couldn't be sent."""
        for epoch, parts in unsent.items():
            for part in parts:
                for item in part.ranges:
                    self.add_range(epoch, part.partition_id, item)
                if part.up_to is not None:
                    self.add_up_to(epoch, part.partition_id, part.up_to)


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
