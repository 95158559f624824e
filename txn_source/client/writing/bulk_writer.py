"""Writing files that nothing refers to yet: what a task of a job does. The job's driver registers them in one call.

A key picks the partition as it does for a producer, so that jobs and producers agree. Rows without one go to one
partition for each entry, and the next one goes to the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.hot_roots import delete_everywhere
from txn_source.client.writing.batch_buffer import ENTRY_MAX_BYTES, ENTRY_MAX_ROWS, entry_sized
from txn_source.client.writing.entry_files import open_files
from txn_source.client.writing.partitions import Partitions
from txn_source.client.writing.routing import group, route
from txn_source.client.writing.uploads import placed
from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.errors import InvalidArgumentError, StorageWriteError, TxnLogError
from txn_source.model.spark_commit import TopicBatch, joined_content
from txn_source.model.topic_name import TopicName
from txn_source.process.rim import Rim, changing
from txn_source.storage.arrays import numbers_or, truths_in
from txn_source.storage.schema import KEY, RAW_SCHEMA, conform, deserialize_schema
from txn_source.storage.segment import SegmentName

PARTITION = pa.field("__partition", pa.int32())
"""Picks a row's partition itself, if it isn't null."""
_MAX_OPEN_SEGMENTS = 64
_MAX_WAITING_BYTES = 256 << 20
"""Of rows that wait for their entry to be full, over all partitions: a task's memory must not grow with these."""
_NAME = "task"


@dataclass(slots=True)
class _Waiting:
    """Rows of one partition and schema that will be one entry."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


class BulkWriter:
    """Writes rows to segments of one topic. Nothing of it exists until the entries that it returns are registered.

    A writer may have lost rows in a failed call, so each later call raises FAILED: ``discard`` it. A forked child can't
    use it.
    """

    def __init__(self, access: Access, topic: TopicName, turn: int = 0) -> None:
        """Prepare to write.

        Args:
            access: the way to the log.
            topic: its name.
            turn: where rows without a key begin, so that not all tasks begin with the same partition.
        """
        self._writer, self._view = access.metadata.open_producer(topic, None, _NAME)
        self._access = access
        self._payload = deserialize_schema(self._view.topic.schema)
        self._turn = turn
        self._waiting: dict[tuple[int, tuple[str, ...]], _Waiting] = {}
        self._waiting_bytes = 0
        self._paths: list[str] = []
        of = self._view.topic, Partitions(self._view), self._writer.producer_id
        self._files = open_files(access, *of, _MAX_OPEN_SEGMENTS, self._paths.append)
        self._entries: list[NewEntry] = []
        self._rim = Rim(f"A writer to topic {topic.short!r}", "Rows may be missing.")

    @property
    def payload(self) -> pa.Schema:
        """The topic's payload columns."""
        return self._payload

    @property
    def waiting_bytes(self) -> int:
        """How much is held in memory until an entry is full."""
        return self._waiting_bytes

    @changing
    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch: the topic's columns, and ``__event_time``, ``__properties``, ``__partition`` and, for a typed
        topic, ``__key`` where they are wanted.

        Raises:
            SchemaMismatchError: it doesn't fit the topic.
            StorageWriteError: it can't be written.
        """
        batch = conform(batch, self._payload, (PARTITION,))
        targets = self._targets(batch)
        if PARTITION.name in batch.schema.names:
            batch = batch.drop_columns([PARTITION.name])
        with self._rim.only_whole():
            if targets is None:
                for piece in entry_sized(batch):
                    self._add(self._turn % len(self._view.partitions), piece)
            else:
                for target, rows in group(targets):
                    for piece in entry_sized(batch.take(rows)):  # copied: a slice would keep the whole batch
                        self._add(target, piece)

    @changing
    def finish(self, owner: OpenedProducer | None = None) -> TopicBatch:
        """Write what is left, make all of it safe, and return what is to be registered."""
        with self._rim.only_whole():
            try:
                self._make_safe()
            finally:
                self._files.close()
        return TopicBatch(self._view.topic.name, self._view.topic.topic_id, tuple(self._entries), owner)

    def discard(self) -> None:
        """Remove the files again: the task failed, and nobody will ever register them. Harmless in a fork."""
        if self._rim.inherited:
            return
        self._files.close()
        for path in self._paths:
            delete_everywhere(self._access, path)
        with suppress(TxnLogError):
            self._access.metadata.close_producer(self._writer)

    def _make_safe(self) -> None:
        for key in list(self._waiting):
            self._write(key)
        upload = self._files.start()
        self._entries = placed(self._entries, upload.wait())
        if self._lack_copies():
            self._entries = placed(self._entries, upload.complete())
        if self._lack_copies():
            raise StorageWriteError(
                f"What was written to topic {self._view.topic.name.short!r} has too few copies: not all roots of the"
                " policy hot_copies could be written.",
                "Run it again when they can; `txnlog roots list` tells which can't.",
            )

    def _lack_copies(self) -> bool:
        return any(self._files.copies.lacks(entry.roots) for entry in self._entries)

    def _targets(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        """Return the partition of each row; None: they may go anywhere together."""
        count = len(self._view.partitions)
        key_name = "key" if self._payload is RAW_SCHEMA else KEY.name
        keys = batch.column(key_name) if key_name in batch.schema.names else None
        targets = None
        if count > 1 and keys is not None and keys.null_count < len(keys):
            targets = route(keys, count, self._turn % count)
        if PARTITION.name in batch.schema.names and batch.column(PARTITION.name).null_count < len(batch):
            rest = targets if targets is not None else np.full(len(batch), self._turn % count)
            targets = self._chosen(batch.column(PARTITION.name), rest)
        return targets

    def _chosen(self, column: pa.Array, rest: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the partitions that a column asks for, and those of ``rest`` where it is null."""
        count = len(self._view.partitions)
        given = truths_in(column.is_valid())
        chosen = numbers_or(column, 0).astype(np.int64)
        wrong = chosen[given & ((chosen < 0) | (chosen >= count))]
        if len(wrong):
            raise InvalidArgumentError(
                f"Column __partition asks for {wrong[0]}, and topic {self._view.topic.name.short!r} has no such one.",
                f"Its partitions are 0 to {count - 1}; drop the column to leave the choice to the key.",
            )
        return np.where(given, chosen, rest)

    def _add(self, partition: int, batch: pa.RecordBatch) -> None:
        key = (partition, tuple(batch.schema.names))
        waiting = self._waiting.setdefault(key, _Waiting())
        if waiting.rows + batch.num_rows > ENTRY_MAX_ROWS or waiting.bytes + batch.nbytes > ENTRY_MAX_BYTES:
            self._write(key)
            waiting = self._waiting[key] = _Waiting()
        waiting.batches.append(batch)
        waiting.rows += batch.num_rows
        waiting.bytes += batch.nbytes
        self._waiting_bytes += batch.nbytes
        while self._waiting_bytes > _MAX_WAITING_BYTES:
            self._write(max(self._waiting, key=lambda key: self._waiting[key].bytes))

    def _write(self, key: tuple[int, tuple[str, ...]]) -> None:
        waiting = self._waiting.pop(key)
        self._waiting_bytes -= waiting.bytes
        if not waiting.rows:
            return
        batch = waiting.batches[0] if len(waiting.batches) == 1 else pa.concat_batches(waiting.batches)
        self._entries.append(self._files.append(key[0], 0, batch))
        self._turn += 1


def give_up(access: Access, batches: Iterable[TopicBatch]) -> None:
    """End the writers of batches that nobody will register: their files are garbage, unless that was done before."""
    names = (SegmentName.parse(path) for batch in batches for path in {entry.segment for entry in batch.entries})
    for writer in {name.producer_id for name in names if name is not None}:
        with suppress(TxnLogError):
            access.metadata.close_producer(OpenedProducer(writer, 0, _NAME))


def join_batches(batches: Iterable[TopicBatch]) -> list[TopicBatch]:
    """Return what tasks wrote, a batch for each topic."""
    found: dict[tuple[TopicName, int], list[TopicBatch]] = {}
    for batch in batches:
        found.setdefault((batch.topic, batch.topic_id), []).append(batch)
    return [
        TopicBatch(
            name,
            topic_id,
            tuple(e for part in parts for e in part.entries),
            parts[0].owner,
            joined_content(part.content for part in parts),
        )
        for (name, topic_id), parts in sorted(found.items())
    ]
