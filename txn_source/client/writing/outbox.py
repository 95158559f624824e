"""What a producer has taken and isn't registered: messages in buffers, buffers in parcels, parcels in a queue."""

from __future__ import annotations

from collections import deque
from typing import Any

import pyarrow as pa

from txn_source.client.writing.batch_buffer import Buffer, entry_sized
from txn_source.client.writing.batching import Batching
from txn_source.client.writing.parcel import Owner, Parcel
from txn_source.client.writing.routing import RoutedBatch, route
from txn_source.model.errors import FailedError
from txn_source.storage.schema import KEY, RAW_SCHEMA

_MOST_HELD = 4
"""So many full batches are kept while they can't be stored; then nothing more is taken."""


class Outbox:
    """The parcels that aren't registered, and how much waits in them. Not thread-safe: its producer holds a lock.

    What ``send`` adds is one step for each message, so an interrupt falls before it or after it. A parcel leaves the
    queue only when it is registered, or after its loss was noted, or with its transaction.
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
        """How many messages are routed to; their ids are known."""
        self.topic_partitions = partitions
        """How many the topic has, as the service said last: more, if some were added."""
        self.sticky = sticky
        """The partition of messages without a key, until the next write."""
        self.queue: deque[Parcel] = deque()
        """All parcels that aren't registered, in the order in which they began."""
        self.parcels: dict[Any, Parcel] = {}
        """Those of them that take messages, by what ``send`` was given as transaction."""
        self.last: Parcel | None = None
        """The parcel that has the newest run, if messages may go on with it."""
        self.alarm = False
        """Something is to be done before more is taken: limits are reached, or an error is to be raised."""
        self.lingers = False
        """True from before messages begin to wait until they are written: the linger thread asks without the lock."""
        self.waiting_messages = 0
        self.waiting_bytes = 0
        self.max_messages = batching.max_messages
        self.max_bytes = batching.max_bytes
        self._turn = 0

    @property
    def full(self) -> bool:
        """True if so much waits that it is to be written."""
        return self.waiting_messages >= self.max_messages or self.waiting_bytes >= self.max_bytes

    @property
    def holds_too_much(self) -> bool:
        """True if so much couldn't be stored that nothing more is to be taken."""
        held = [parcel for parcel in self.queue if parcel.cut is not None]
        messages = sum(parcel.messages for parcel in held)
        size = sum(batch.nbytes for parcel in held for _, _, batch in parcel.cut or ())
        return messages >= _MOST_HELD * self.max_messages or size >= _MOST_HELD * self.max_bytes

    @property
    def some(self) -> bool:
        """True if a parcel that takes messages has any."""
        return any(parcel.messages for parcel in self.parcels.values())

    def ring(self, failure: FailedError) -> None:
        """Have whoever sends the next message look at what has happened to the producer."""
        self.alarm = True

    def learn(self, partitions: int) -> None:
        """Take notice of how many partitions the topic has; those that are new are to be looked up."""
        if partitions > self.partitions:
            self.topic_partitions = partitions
            self.alarm = True

    def begin(self, key: Any, parcel: Parcel) -> None:
        """Take a new parcel, which gets what is sent under ``key``."""
        self.queue.append(parcel)
        self.parcels[key] = parcel

    def begin_run(self, parcel: Parcel, buffer: Buffer) -> None:
        """Note that the next messages go to a buffer of a parcel."""
        self._turn += 1
        parcel.runs.append((buffer, buffer.messages, self._turn))
        self.last = parcel

    def routed(self, batch: pa.RecordBatch, partition: int | None) -> RoutedBatch:
        """Return a batch with its rows' partitions: the one that is given, or those of the keys, or the sticky one."""
        key_column = "key" if self.payload is RAW_SCHEMA else KEY.name
        keys = batch.column(key_column) if key_column in batch.schema.names else None
        if KEY.name in batch.schema.names:
            batch = batch.drop_columns([KEY.name])
        if partition is None and keys is not None and self.partitions > 1 and keys.null_count < len(keys):
            return RoutedBatch.of(batch, route(keys, self.partitions, self.sticky))
        if partition is None and self.partitions > 1:
            return RoutedBatch.spread(entry_sized(batch), self.sticky, self.partitions)
        return RoutedBatch.whole(batch, self.sticky if partition is None else partition)

    def take(self, parcel: Parcel, batches: list[RoutedBatch], size: int) -> None:
        """Take batches of so many bytes, whose buffers are there."""
        self.last = None
        turn = self._turn
        self._turn += sum(len(each.runs) for each in batches)
        self.waiting_messages += sum(rows.num_rows for each in batches for _, rows in each.parts)
        self.waiting_bytes += size
        parcel.take(batches, turn)

    def seal(self) -> None:
        """Have what is sent from here on begin new parcels, and messages without a key go to the next partition."""
        if self.some:
            self.sticky = (self.sticky + 1) % self.partitions
        self.parcels = {}

    def written(self) -> None:
        """Note that all was written that could be."""
        self.waiting_messages = self.waiting_bytes = 0
        self.lingers = False

    def discard(self, txn: Owner) -> None:
        """Forget the parcels of a transaction."""
        self.parcels = {key: parcel for key, parcel in self.parcels.items() if parcel.txn != txn}
        self.queue = deque(parcel for parcel in self.queue if parcel.txn != txn)
