"""What a producer has taken: messages in buffers, buffers in groups, groups in a queue."""

from __future__ import annotations

from collections import deque
from typing import Any

import pyarrow as pa

from txn_source.client.writing.batch_buffer import Buffer, entry_sized
from txn_source.client.writing.batching import Batching
from txn_source.client.writing.group import Group, Owner
from txn_source.client.writing.key_routing import route
from txn_source.client.writing.routed_batch import RoutedBatch
from txn_source.storage.schema import KEY, RAW_SCHEMA


class Gathered:
    """The groups that aren't registered, and how much waits in them. Not thread-safe: its producer holds a lock.

    A group leaves the queue only when it is registered, or after its loss was noted, or with its transaction.
    """

    __slots__ = (
        "_staging",
        "_turn",
        "alarm",
        "groups",
        "last",
        "lingers",
        "max_bytes",
        "max_messages",
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
        self.queue: deque[Group] = deque()
        """All groups that aren't registered, in the order in which they began."""
        self.groups: dict[Any, Group] = {}
        """Those of them that take messages, by what ``send`` was given as transaction."""
        self.last: Group | None = None
        """The group that has the newest run, if messages may go on with it."""
        self.alarm = False
        """Something is to be done before more is taken: limits are reached, or an error is to be raised."""
        self.lingers = False
        """True from before messages begin to wait until they are written: the linger thread asks without the lock."""
        self.waiting_messages = 0
        self.waiting_bytes = 0
        self.max_messages = batching.max_messages
        self.max_bytes = batching.max_bytes
        self._turn = 0
        self._staging: Group | None = None
        """The group that takes, or took, batches; if that was interrupted they are taken back."""

    @property
    def full(self) -> bool:
        """True if so much waits that it is to be written."""
        return self.waiting_messages >= self.max_messages or self.waiting_bytes >= self.max_bytes

    @property
    def some(self) -> bool:
        """True if a group that takes messages has any."""
        return any(group.messages for group in self.groups.values())

    def learn(self, partitions: int) -> None:
        """Take notice of how many partitions the topic has; those that are new are to be looked up."""
        if partitions > self.partitions:
            self.topic_partitions = partitions
            self.alarm = True

    def begin(self, key: Any, group: Group) -> None:
        """Take a new group, which gets what is sent under ``key``."""
        self.queue.append(group)
        self.groups[key] = group

    def begin_run(self, group: Group, buffer: Buffer) -> None:
        """Note that the next messages go to a buffer of a group."""
        self._turn += 1
        group.runs.append((buffer, buffer.messages, self._turn))
        self.last = group

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

    def take(self, group: Group, batches: list[RoutedBatch], size: int) -> None:
        """Take batches of so many bytes, whose buffers are there: all of them or none.

        The alarm is raised first: if it is interrupted, ``roll_back`` comes before anything else is taken.
        """
        self.last = None
        self._staging = group
        self.alarm = True
        turn = self._turn
        self._turn += sum(len(each.runs) for each in batches)
        self.waiting_messages += sum(rows.num_rows for each in batches for _, rows in each.parts)
        self.waiting_bytes += size
        group.take(batches, turn)

    def roll_back(self) -> None:
        """Undo what an interrupted ``take`` has taken."""
        if self._staging is not None:
            self.last = None
            self._staging.roll_back()
            self._staging = None

    def seal(self) -> None:
        """Have what is sent from here on begin new groups, and messages without a key go to the next partition."""
        if self.some:
            self.sticky = (self.sticky + 1) % self.partitions
        self.groups = {}

    def written(self) -> None:
        """Note that nothing waits to be written any more."""
        self.waiting_messages = self.waiting_bytes = 0
        self.lingers = False

    def discard(self, txn: Owner) -> None:
        """Forget the groups of a transaction."""
        self.roll_back()
        self.groups = {key: group for key, group in self.groups.items() if group.txn != txn}
        self.queue = deque(group for group in self.queue if group.txn != txn)
