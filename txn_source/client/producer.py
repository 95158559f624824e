"""Producers: messages are gathered, written to segments, synced, and only then registered."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from txn_source.client.buffer import Buffer, as_bytes
from txn_source.client.message_ids import MessageIds
from txn_source.client.routing import route
from txn_source.client.transaction import Transaction
from txn_source.metadata.producers import NewEntry
from txn_source.metadata.stub import MetadataStub
from txn_source.model.door import guarded, translated
from txn_source.model.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    StaleSegmentError,
    TopicNotFoundError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.position import Position
from txn_source.model.routing import partition_of
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId
from txn_source.storage.schema import KEY, RAW_SCHEMA, conform, deserialize_schema
from txn_source.storage.segment import SegmentWriter, segment_path

_MAX_OPEN_SEGMENTS = 128
_MAX_REMEMBERED_IDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Batching:
    """When a producer writes what it has gathered: so long after the first message, or so much of it."""

    linger_s: float = 0.01
    max_messages: int = 10_000
    max_bytes: int = 4 << 20


@dataclass(slots=True)
class _Group:
    """What was gathered under one transaction (None: plain), from ``send`` until it is registered.

    ``runs`` are (buffer, messages, turn) in the order of sending, from which the message ids are put together; turns
    count over all groups of the producer.
    """

    txn: TxnId | None
    buffers: dict[int, Buffer] = field(default_factory=dict)
    runs: list[list[Any]] = field(default_factory=list)
    batches: list[tuple[int, int, pa.RecordBatch]] = field(default_factory=list)
    """Partition, base sequence and messages of each entry, until it is registered."""
    entries: list[NewEntry] | None = None
    """None until the bytes are safe; then only registering is left, and is repeated with these."""


@guarded(but=("send",), also=("_drain", "_new_group", "_new_buffer"))
class Producer:
    """Sends messages to one topic. Thread-safe; a context manager that flushes and closes.

    A message is acknowledged when ``flush`` (or the commit of its transaction) returns. Messages with a key go to the
    partition that the key's hash names; those without stay on one partition until the next write, then move on.
    """

    def __init__(
        self,
        stub: MetadataStub,
        root: Path,
        topic: TopicName,
        transactional_id: str | None = None,
        name: str | None = None,
        batching: Batching | None = None,
    ) -> None:
        self._stub = stub
        self._root = root
        self._batching = batching or Batching()
        self._identity, view = stub.open_producer(topic, transactional_id, name)
        self.topic = topic.short
        self.name = self._identity.name
        self._topic_id = view.topic.topic_id
        self._partitions = view.partitions
        self._ledgers = [p.bounds.log_end.ledger_id for p in view.partitions]
        self._payload = deserialize_schema(view.topic.schema)
        self._lock = threading.RLock()
        self._groups: dict[Any, _Group] = {}
        self._unregistered: deque[_Group] = deque()
        self._segments: dict[tuple[int, tuple[str, ...]], tuple[int, SegmentWriter]] = {}
        self._failures: dict[TxnId | None, TxnLogError] = {}
        self._lost: dict[TxnId, TxnLogError] = {}
        self._ids: deque[tuple[MessageIds, np.ndarray[Any, np.dtype[np.int64]]]] = deque()
        self._turn = 0
        self._last: _Group | None = None
        self._remembered = 0
        self._sequence = 0
        self._waiting_messages = 0
        self._waiting_bytes = 0
        self._sticky = self._identity.producer_id % len(self._partitions)
        self._closed = False
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._linger: threading.Thread | None = None

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TxnLogError as failure:
            if error is None:
                raise
            error.add_note(f"Closing the producer failed too: {failure}")

    def send(
        self,
        value: Any,
        key: bytes | str | None = None,
        properties: dict[str, str] | None = None,
        event_time: Any = None,
        txn: Transaction | TxnId | str | None = None,
        partition: int | None = None,
    ) -> None:
        """Take one message; it is written soon, or at ``flush``.

        Args:
            value: bytes (str is encoded as UTF-8) for a raw topic, a dict of columns for a typed one.
            key: picks the partition; stored too if the topic is raw.
            properties: text to text.
            event_time: a datetime with a time zone, or milliseconds since the epoch.
            txn: the transaction it belongs to; None for a plain message.
            partition: the partition's index, overriding the key.

        Raises:
            SchemaMismatchError: it doesn't fit the topic; it was not taken.
            TxnLogError: what was sent earlier couldn't be stored; this message was not taken either.
        """
        with self._lock:
            if self._failures or self._closed:
                self._raise_failures()
            if partition is None:
                if key is None or len(self._partitions) == 1:
                    partition = self._sticky
                else:
                    partition = partition_of(as_bytes("key", key) or b"", len(self._partitions))
            try:
                group = self._groups.get(txn)
                if group is None:
                    group = self._new_group(txn)
                buffer = group.buffers.get(partition)
                if buffer is None:
                    buffer = self._new_buffer(group, partition)
            except TypeError as error:  # neither can be a key
                raise translated(error, "send()") from error
            size = buffer.add(value, key, properties, event_time)
            runs = group.runs
            if group is self._last and runs[-1][0] is buffer:
                runs[-1][1] += 1
            else:
                self._add_run(group, buffer, 1)
            if not self._waiting_messages:
                self._start_lingering()
            self._waiting_messages += 1
            self._waiting_bytes += size
            if self._waiting_messages >= self._batching.max_messages or self._waiting_bytes >= self._batching.max_bytes:
                self._drain()

    def send_batch(
        self,
        batch: pa.RecordBatch | pa.Table,
        txn: Transaction | TxnId | str | None = None,
        partition: int | None = None,
    ) -> None:
        """Take many messages, a row each, without copying where the types are the topic's.

        The columns are the topic's, in any order; optional are ``__event_time``, ``__properties`` and, for a typed
        topic, ``__key`` (binary or text, routes the row). Rows without a key go to one partition together. A batch
        that doesn't fit is refused whole.

        Raises:
            SchemaMismatchError: names the field, what was expected and what came.
        """
        if isinstance(batch, pa.Table):
            batches = batch.to_batches()
        elif isinstance(batch, pa.RecordBatch):
            batches = [batch]
        else:
            raise SchemaMismatchError(
                f"The batch is a {type(batch).__name__}.", "Send a pyarrow.RecordBatch or a pyarrow.Table."
            )
        routing = () if self._payload is RAW_SCHEMA else (KEY,)
        fitted = [conform(b, self._payload, routing) for b in batches if b.num_rows]
        with self._lock:
            if self._failures or self._closed:
                self._raise_failures()
            group = self._groups.get(txn) or self._new_group(txn)
            for b in fitted:
                self._add_batch(group, b, partition)
                if not self._waiting_messages:
                    self._start_lingering()
                self._waiting_messages += b.num_rows
                self._waiting_bytes += b.nbytes
                if (
                    self._waiting_messages >= self._batching.max_messages
                    or self._waiting_bytes >= self._batching.max_bytes
                ):
                    self._drain()
                    group = self._groups.get(txn) or self._new_group(txn)

    def flush(self) -> MessageIds:
        """Write and register all that was sent; return the ids of what was acknowledged since the last flush.

        The ids are in the order of sending (of the newest million messages if there were more). If the service can't
        be reached, call it again: nothing is stored twice.
        """
        with self._lock:
            self._drain()
            self._raise_failures()
            ids = MessageIds.join(*zip(*self._ids, strict=True)) if self._ids else MessageIds.none()
            self._ids.clear()
            self._remembered = 0
            return ids

    def close(self) -> None:
        """Flush and close; harmless when it is closed."""
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self._closed = True
            self._stop.set()
            self._wake.set()
            if self._linger is not None and self._linger is not threading.current_thread():
                self._linger.join()
            with self._lock:
                self._close_segments()

    # For transactions

    def _drain_for(self, txn: TxnId) -> None:
        """Write all, and raise what went wrong with one transaction's messages, also if ``flush`` has said so before:
        with some of them lost it can only be aborted."""
        with self._lock:
            self._drain()
            failure = self._failures.pop(txn, None) or self._lost.get(txn)
            if failure is not None:
                raise failure

    def _discard(self, txn: TxnId) -> None:
        """Forget what wasn't registered yet of a transaction that is going to be aborted."""
        with self._lock:
            for key in [key for key, group in self._groups.items() if group.txn == txn]:
                group = self._groups.pop(key)
                self._waiting_messages -= sum(b.messages for b in group.buffers.values())
            self._unregistered = deque(g for g in self._unregistered if g.txn != txn)
            self._failures.pop(txn, None)
            self._lost.pop(txn, None)

    # Gathering

    def _new_group(self, txn: Transaction | TxnId | str | None) -> _Group:
        if txn is None:
            group = _Group(None)
        elif isinstance(txn, Transaction):
            txn._join(self)
            group = _Group(txn.id)
        else:
            group = _Group(TxnId.parse(txn))
        self._groups[txn] = group
        return group

    def _new_buffer(self, group: _Group, partition: int) -> Buffer:
        if not isinstance(partition, int) or not 0 <= partition < len(self._partitions):
            raise TopicNotFoundError(
                f"Topic {self.topic!r} has no partition {partition!r}.",
                f"Its partitions are 0 to {len(self._partitions) - 1}.",
            )
        buffer = group.buffers[partition] = Buffer(self._payload, partition)
        return buffer

    def _add_batch(self, group: _Group, batch: pa.RecordBatch, partition: int | None) -> None:
        key_column = "key" if self._payload is RAW_SCHEMA else KEY.name
        keys = batch.column(key_column) if key_column in batch.schema.names else None
        if KEY.name in batch.schema.names:
            batch = batch.drop_columns([KEY.name])
        if partition is None and keys is not None and len(self._partitions) > 1 and keys.null_count < len(keys):
            routed = route(keys, len(self._partitions), self._sticky)
            for target in np.unique(routed):
                rows = pa.array(np.flatnonzero(routed == target))
                self._buffer(group, int(target)).add_batch(batch.take(rows))
            edges = np.flatnonzero(np.diff(routed, prepend=-1))
            for start, end in zip(edges, [*edges[1:], len(routed)], strict=True):
                self._add_run(group, group.buffers[int(routed[start])], int(end - start))
            return
        buffer = self._buffer(group, self._sticky if partition is None else partition)
        buffer.add_batch(batch)
        self._add_run(group, buffer, batch.num_rows)

    def _add_run(self, group: _Group, buffer: Buffer, messages: int) -> None:
        group.runs.append([buffer, messages, self._turn])
        self._turn += 1
        self._last = group

    def _buffer(self, group: _Group, partition: int) -> Buffer:
        return group.buffers.get(partition) or self._new_buffer(group, partition)

    def _start_lingering(self) -> None:
        self._wake.set()
        if self._linger is None:
            self._linger = threading.Thread(target=self._linger_loop, name=f"txnlog-{self.name}", daemon=True)
            self._linger.start()

    def _linger_loop(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            if self._stop.wait(self._batching.linger_s):
                return
            with self._lock:
                if self._waiting_messages and not self._closed:
                    self._drain()

    # Writing

    def _drain(self) -> None:
        """Write and register everything. What fails for good is dropped and remembered in ``_failures``; what
        couldn't be registered for now stays and is registered next time."""
        groups = [g for g in self._groups.values() if g.runs]
        self._groups.clear()
        self._failures = {t: e for t, e in self._failures.items() if not isinstance(e, UnavailableError)}
        self._waiting_messages = self._waiting_bytes = 0
        if groups:
            self._sticky = (self._sticky + 1) % len(self._partitions)
        try:
            self._write(groups)
        except TxnLogError as error:
            for group in groups:
                self._drop(group, error)
        while self._unregistered:
            group = self._unregistered[0]
            assert group.entries is not None
            try:
                positions = self._register(group)
            except UnavailableError as error:
                for waiting in self._unregistered:
                    self._failures[waiting.txn] = error
                return
            except TxnLogError as error:
                self._drop(group, error)
                self._unregistered.popleft()
                continue
            self._unregistered.popleft()
            self._registered(group, positions)

    def _drop(self, group: _Group, error: TxnLogError) -> None:
        self._failures[group.txn] = error
        if group.txn is not None:
            self._lost[group.txn] = error

    def _register(self, group: _Group) -> list[Position]:
        assert group.entries is not None
        try:
            return self._stub.append(self._identity, group.txn, group.entries)
        except StaleSegmentError:  # we kept a segment open while its ledgers were offloaded or trimmed
            self._close_segments()
            self._store([group])
            return self._stub.append(self._identity, group.txn, group.entries)

    def _write(self, groups: list[_Group]) -> None:
        """Write the groups' bytes and sync them once for each segment; they then wait to be registered."""
        for group in groups:
            for partition, buffer in group.buffers.items():
                for batch in buffer.entries():
                    group.batches.append((partition, self._sequence, batch))
                    self._sequence += batch.num_rows
                buffer.clear()
        self._store(groups)
        self._unregistered.extend(groups)

    def _store(self, groups: list[_Group]) -> None:
        touched: dict[int, SegmentWriter] = {}
        try:
            for group in groups:
                group.entries = []
                for partition, sequence, batch in group.batches:
                    segment = self._segment(partition, batch.schema)
                    touched[id(segment)] = segment
                    stored = segment.append(batch)
                    group.entries.append(
                        NewEntry(
                            self._partitions[partition].partition_id,
                            sequence,
                            batch.num_rows,
                            segment.path,
                            stored.offset,
                            stored.length,
                            stored.crc32c,
                        )
                    )
            for segment in touched.values():
                if not segment.closed:
                    segment.sync()
        except TxnLogError:
            self._close_segments()
            raise

    def _segment(self, partition: int, schema: pa.Schema) -> SegmentWriter:
        key = (partition, tuple(schema.names))
        ledger_id = self._ledgers[partition]
        found = self._segments.get(key)
        if found is not None:
            if found[0] == ledger_id:
                return found[1]
            found[1].close()
        elif len(self._segments) >= _MAX_OPEN_SEGMENTS:
            _, oldest = self._segments.pop(next(iter(self._segments)))
            oldest.sync()  # it may have been written to just now
            oldest.close()
        path = segment_path(self._topic_id, partition, ledger_id, self._identity.producer_id)
        segment = SegmentWriter(self._root, path, schema)
        self._segments[key] = (ledger_id, segment)
        return segment

    def _registered(self, group: _Group, positions: Sequence[Position]) -> None:
        assert group.entries is not None
        keys = np.array([p.key for p in positions], dtype=np.int64)
        counts = np.array([e.messages for e in group.entries], dtype=np.int64)
        owners = np.array([e.partition_id for e in group.entries], dtype=np.int64)
        by_partition = {}
        for partition in group.buffers:
            mine = owners == self._partitions[partition].partition_id
            if not mine.any():
                continue
            by_partition[partition] = (np.repeat(keys[mine], counts[mine]), _indexes(counts[mine]))
            self._ledgers[partition] = Position.from_key(int(keys[mine][-1])).ledger_id
        sent = np.repeat([run[0].partition for run in group.runs], [run[1] for run in group.runs])
        order = np.argsort(sent, kind="stable")
        all_keys = np.empty(len(sent), np.int64)
        all_indexes = np.empty(len(sent), np.int32)
        all_keys[order] = np.concatenate([by_partition[p][0] for p in sorted(by_partition)])
        all_indexes[order] = np.concatenate([by_partition[p][1] for p in sorted(by_partition)])
        turns = np.repeat([run[2] for run in group.runs], [run[1] for run in group.runs])
        self._ids.append((MessageIds(all_keys, all_indexes), turns))
        self._remembered += len(all_keys)
        while self._remembered > _MAX_REMEMBERED_IDS and len(self._ids) > 1:
            self._remembered -= len(self._ids.popleft()[0])

    def _raise_failures(self) -> None:
        if self._failures:
            failures, self._failures = list(self._failures.values()), {}
            raise failures[0]
        if self._closed:
            raise InvalidArgumentError(f"The producer {self.name!r} is closed.", "Open a new one.")

    def _close_segments(self) -> None:
        for _, segment in self._segments.values():
            segment.close()
        self._segments.clear()


def _indexes(counts: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return 0..count-1 for each count, one after the other."""
    total = int(counts.sum())
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    indexes: np.ndarray[Any, np.dtype[np.int32]] = (np.arange(total, dtype=np.int64) - starts).astype(np.int32)
    return indexes
