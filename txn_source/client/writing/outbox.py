"""The unregistered messages of a producer: in buffers, these in parcels, these in a queue."""

from __future__ import annotations

from collections import deque
from typing import Any

import pyarrow as pa

from txn_source.client.writing.batch_buffer import Buffer, entry_sized
from txn_source.client.writing.batching import Batching
from txn_source.client.writing.parcel import Owner, Parcel
from txn_source.client.writing.routing import RoutedBatch, route
from txn_source.storage.schema import KEY, RAW_SCHEMA

_MOST_HELD = 4
"""A producer that can't store messages keeps up to this many full batches, then refuses more."""


class Outbox:
    """Unregistered parcels, and the amount that waits in them. Not thread-safe: the producer holds a lock.

    ``send`` adds a message in one step, so an interrupt falls before or after it. A parcel leaves the queue when it is
    registered, when its loss is recorded, or with its aborted transaction.
    """

    __slots__ = (
        "_turn",
        "alarm",
        "last",
        "lingers",
        "max_bytes",
        "max_messages",
        "parcels",
        "partitions",
        "payload",
        "queue",
        "sticky",
        "topic_partitions",
        "waiting_bytes",
        "waiting_messages",
    )

    def __init__(self, payload: pa.Schema, partitions: int, sticky: int, batching: Batching) -> None:
        self.payload = payload
        self.partitions = partitions
        """The number of partitions with known ids; messages are routed to these."""
        self.topic_partitions = partitions
        """The topic's number of partitions in the last answer; larger if partitions were added."""
        self.sticky = sticky
        """The partition for messages without a key, until the next write."""
        self.queue: deque[Parcel] = deque()
        """All unregistered parcels, oldest first."""
        self.parcels: dict[Any, Parcel] = {}
        """The parcels that still take messages, by the ``txn`` argument of ``send``."""
        self.last: Parcel | None = None
        """The parcel with the newest run, if that run may grow."""
        self.alarm = False
        """True if the next ``send`` must first write a full batch, or raise an error."""
        self.lingers = False
        """True while messages wait for the linger thread, which reads it without the lock."""
        self.waiting_messages = 0
        self.waiting_bytes = 0
        self.max_messages = batching.max_messages
        self.max_bytes = batching.max_bytes
        self._turn = 0

    @property
    def full(self) -> bool:
        """True if a full batch waits."""
        return self.waiting_messages >= self.max_messages or self.waiting_bytes >= self.max_bytes

    @property
    def holds_too_much(self) -> bool:
        """True if the parcels that couldn't be stored reach the limit."""
        held = [parcel for parcel in self.queue if parcel.cut is not None]
        messages = sum(parcel.messages for parcel in held)
        size = sum(batch.nbytes for parcel in held for _, _, batch in parcel.cut or ())
        return messages >= _MOST_HELD * self.max_messages or size >= _MOST_HELD * self.max_bytes

    @property
    def some(self) -> bool:
        """True if a parcel that still takes messages has at least one."""
        return any(parcel.messages for parcel in self.parcels.values())

    def learn(self, partitions: int) -> None:
        """Record the topic's number of partitions; the next ``send`` looks up new ones."""
        if partitions > self.partitions:
            self.topic_partitions = partitions
            self.alarm = True

    def begin(self, key: Any, parcel: Parcel) -> None:
        """Add a parcel for the messages that are sent with the transaction ``key``."""
        self.queue.append(parcel)
        self.parcels[key] = parcel

    def begin_run(self, parcel: Parcel, buffer: Buffer) -> None:
        """Begin a run: the next messages go to this buffer."""
        self._turn += 1
        parcel.runs.append((buffer, buffer.messages, self._turn))
        self.last = parcel

    def routed(self, batch: pa.RecordBatch, partition: int | None) -> RoutedBatch:
        """Return a batch with its rows' partitions: the one that is given, or those of the keys, or the sticky one."""
        key_column = "key" if self.payload is RAW_SCHEMA else KEY.name
        keys = batch.column(key_column) if key_column in batch.schema.names else None
        if partition is None and keys is not None and self.partitions > 1 and keys.null_count < len(keys):
            return RoutedBatch.of(batch, route(keys, self.partitions, self.sticky))
        if partition is None and self.partitions > 1:
            return RoutedBatch.spread(entry_sized(batch), self.sticky, self.partitions)
        return RoutedBatch.whole(batch, self.sticky if partition is None else partition)

    def take(self, parcel: Parcel, batches: list[RoutedBatch], size: int) -> None:
        """Add batches of ``size`` bytes to a parcel that has their buffers."""
        self.last = None
        turn = self._turn
        self._turn += sum(len(each.runs) for each in batches)
        self.waiting_messages += sum(rows.num_rows for each in batches for _, rows in each.parts)
        self.waiting_bytes += size
        parcel.take(batches, turn)

    def seal(self) -> None:
        """Close all parcels to new messages; messages without a key move on to the next partition."""
        if self.some:
            self.sticky = (self.sticky + 1) % self.partitions
        self.parcels = {}

    def written(self) -> None:
        """Reset the amount that waits, after a write."""
        self.waiting_messages = self.waiting_bytes = 0
        self.lingers = False

    def discard(self, txn: Owner) -> None:
        """Drop the parcels of a transaction."""
        self.parcels = {key: parcel for key, parcel in self.parcels.items() if parcel.txn != txn}
        self.queue = deque(parcel for parcel in self.queue if parcel.txn != txn)

    def of(self, txn: Owner) -> list[Parcel]:
        """Return the parcels of a transaction."""
        return [parcel for parcel in self.queue if parcel.txn is txn]
