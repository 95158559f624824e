"""Producers: messages are gathered, written to segments, synced, and only then registered.

Whatever is raised in the middle, an interrupt on any line included, leaves a state from which the next call goes on. A
group (``group.py``) leaves the queue only when it is registered, or after its loss was noted; steps are single
assignments, and what must change together is changed under a note that says how to undo it.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections import deque
from types import TracebackType
from typing import Any

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.transaction import Transaction, handle_of
from txn_source.client.writing.batch_buffer import Buffer, as_bytes, entry_sized
from txn_source.client.writing.batching import Batching
from txn_source.client.writing.group import Group, Receipt
from txn_source.client.writing.key_routing import route
from txn_source.client.writing.linger import Linger, tell_at_exit
from txn_source.client.writing.losses import Losses
from txn_source.client.writing.open_segments import OpenSegments
from txn_source.client.writing.routed_batch import RoutedBatch
from txn_source.client.writing.sent_ids import MessageIds
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
from txn_source.storage.forks import InheritedLock, belongs_to_process
from txn_source.storage.schema import KEY, RAW_SCHEMA, conform, deserialize_schema

_MAX_REMEMBERED_IDS = 1_000_000
_POISON = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow raises of data that it can't write."""

_log = logging.getLogger(__name__)


@guarded(but=("send",), also=("_attend", "_drain", "_new_group", "_new_buffer"))
class Producer:
    """Sends messages to one topic. Thread-safe; a context manager that flushes and closes.

    A message is acknowledged when ``flush`` (or the commit of its transaction) returns. Messages with a key go to the
    partition that the key's hash names; those without stay on one partition until the next write, then move on.

    A call that was interrupted can be repeated: nothing is lost or doubled. ``send`` and ``send_batch`` that were
    interrupted have taken nothing, unless the interrupt came just as they returned; ``flush`` returns an id for each
    message that was taken. A producer belongs to the process that opened it: in a fork its calls are refused. One that
    is dropped lives until its messages are written; what can't be is told by a ResourceWarning, and at the program's
    end by the log.
    """

    _closed = True  # of the class: until it is open, however early that was interrupted

    def __init__(
        self,
        access: Access,
        topic: TopicName,
        transactional_id: str | None = None,
        name: str | None = None,
        batching: Batching | None = None,
    ) -> None:
        self._stub = stub = access.metadata
        batching = batching or Batching()
        self._linger_s = batching.linger_s
        self._max_messages = batching.max_messages
        self._max_bytes = batching.max_bytes
        self._identity, view = stub.open_producer(topic, transactional_id, name)
        self.topic = topic.short
        self.name = self._identity.name
        self._partitions = len(view.partitions)
        self._segments = OpenSegments(access.root, view, self._identity.producer_id)
        self._payload = deserialize_schema(view.topic.schema)
        self._lock: threading.RLock | InheritedLock = threading.RLock()
        self._queue: deque[Group] = deque()
        """All groups that aren't registered, in the order in which they began."""
        self._groups: dict[Any, Group] = {}
        """Those of them that take messages, by what ``send`` was given as transaction."""
        self._staging: Group | None = None
        """The group that takes, or took, batches; if that was interrupted they are taken back."""
        self._losses = Losses(self.name)
        self._alarm = False
        """Something is to be done before more is taken: limits are reached, or an error is to be raised."""
        self._receipts: deque[Receipt] = deque()
        self._remembered = 0
        self._turn = 0
        self._last: Group | None = None
        self._sequence = 0
        self._waiting_messages = 0
        self._waiting_bytes = 0
        self._due = 0.0
        self._sticky = self._identity.producer_id % self._partitions
        self._inherited = False
        self._linger = Linger(f"txnlog-{self.name}")
        belongs_to_process(self)
        tell_at_exit(self)
        self._closed = False

    def __del__(self) -> None:
        if not self._closed:
            if (unsaid := self._unsaid()) is not None:
                warnings.warn(f"Producer {self.name!r} was dropped: {unsaid}", ResourceWarning, 2, self)
            self._linger.stop()

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
            if self._alarm:
                self._attend()
            if partition is None:
                if key is None or self._partitions == 1:
                    partition = self._sticky
                else:
                    partition = partition_of(as_bytes("key", key) or b"", self._partitions)
            try:
                group = self._groups.get(txn)
                if group is None:
                    group = self._new_group(txn)
                buffer = group.buffers.get(partition)
                if buffer is None:
                    buffer = self._new_buffer(group, partition)
            except TypeError as error:  # neither can be a key
                raise translated(error, "send()") from error
            if group is not self._last or group.runs[-1][0] is not buffer:
                self._begin_run(group, buffer)
            if not self._waiting_messages:
                self._start_lingering()
            size = buffer.add(value, key, properties, event_time)  # taken; what follows may be missed
            self._waiting_messages += 1
            self._waiting_bytes += size
            if self._waiting_messages >= self._max_messages or self._waiting_bytes >= self._max_bytes:
                self._write_soon()

    def send_batch(
        self,
        batch: pa.RecordBatch | pa.Table,
        txn: Transaction | TxnId | str | None = None,
        partition: int | None = None,
    ) -> None:
        """Take many messages, a row each, without copying where the types are the topic's.

        The columns are the topic's, in any order; optional are ``__event_time``, ``__properties`` and, for a typed
        topic, ``__key`` (binary or text, routes the row). Rows without a key go to one partition together, those of
        a batch that is larger than an entry (65,536 rows or 16 MiB) entry by entry to one after the other. A batch
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
            if self._alarm:
                self._attend()
            group = self._groups.get(txn) or self._new_group(txn)
            routed = [self._routed(b, partition) for b in fitted]
            for target in {target for each in routed for target, _ in each.parts}:
                group.buffers.get(target) or self._new_buffer(group, target)
            if not self._waiting_messages:
                self._start_lingering()
            self._last = None
            self._staging = group
            self._alarm = True
            turn = self._turn
            self._turn += sum(len(each.runs) for each in routed)
            self._waiting_messages += sum(b.num_rows for b in fitted)
            self._waiting_bytes += sum(b.nbytes for b in fitted)
            group.take(routed, turn)
            if self._is_full():
                self._write_soon()

    def flush(self) -> MessageIds:
        """Write and register all that was sent; return the ids of what was acknowledged since the last flush.

        The ids are in the order of sending (of the newest million messages if there were more). If the service can't
        be reached, call it again: nothing is stored twice.
        """
        with self._lock:
            self._drain()
            self._losses.raise_next()
            self._check_open()
            parts = list(self._receipts)
            ids = MessageIds.join(*zip(*parts, strict=True)) if parts else MessageIds.none()
            self._receipts, self._remembered = deque(), 0
            return ids

    def close(self) -> None:
        """Flush and close; harmless when it is closed, and in a fork.

        If it raises while messages still wait (the service can't be reached, or it was interrupted) the producer stays
        open: close it again.
        """
        if self._inherited:
            return
        with self._lock:
            try:
                if not self._closed:
                    self._drain()
                    self._losses.raise_next()
            finally:  # nothing is left to be done, also if what was left is lost
                if not self._queue and not self._losses.untold:
                    self._alarm = self._closed = True
                    self._segments.close()
        if self._closed:
            self._linger.stop()
            self._linger.join()

    def inherited(self) -> None:
        """Take notice that this is a fork of the process that opened it."""
        self._inherited = True
        self._lock = InheritedLock(f"Producer {self.name!r}")

    # For transactions

    def _drain_for(self, txn: TxnId) -> None:
        """Return when all messages of a transaction are registered; else raise why not, also if ``flush`` has said so
        before: with some of them lost it can only be aborted."""
        with self._lock:
            self._drain()
            self._losses.raise_of(txn)
            if self._losses.unavailable is not None and any(group.txn == txn for group in self._queue):
                raise self._losses.unavailable

    def _discard(self, txn: TxnId) -> None:
        """Forget what wasn't registered yet of a transaction that is going to be aborted."""
        with self._lock:
            self._roll_back()
            self._groups = {key: group for key, group in self._groups.items() if group.txn != txn}
            self._queue = deque(group for group in self._queue if group.txn != txn)
            self._losses.forget(txn)

    # Gathering

    def _attend(self) -> None:
        """Do what has to be done before anything is taken, or raise why nothing can be taken."""
        self._roll_back()
        if self._is_full():
            self._drain()
        self._losses.raise_next()
        self._check_open()
        self._alarm = False

    def _new_group(self, txn: Transaction | TxnId | str | None) -> Group:
        group = Group(None)
        if txn is not None:
            group = Group(txn.id if isinstance(txn, Transaction) else TxnId.parse(txn))
            handle = txn if isinstance(txn, Transaction) else handle_of(self._stub, TxnId.parse(txn))
            if handle is not None:
                handle._join(self)  # its commit waits for what is sent here
        self._queue.append(group)
        self._groups[txn] = group
        return group

    def _new_buffer(self, group: Group, partition: int) -> Buffer:
        if not isinstance(partition, int) or not 0 <= partition < self._partitions:
            raise TopicNotFoundError(
                f"Topic {self.topic!r} has no partition {partition!r}.",
                f"Its partitions are 0 to {self._partitions - 1}.",
            )
        buffer = group.buffers[partition] = Buffer(self._payload, partition)
        return buffer

    def _begin_run(self, group: Group, buffer: Buffer) -> None:
        self._turn += 1
        group.runs.append((buffer, buffer.messages, self._turn))
        self._last = group

    def _routed(self, batch: pa.RecordBatch, partition: int | None) -> RoutedBatch:
        key_column = "key" if self._payload is RAW_SCHEMA else KEY.name
        keys = batch.column(key_column) if key_column in batch.schema.names else None
        if KEY.name in batch.schema.names:
            batch = batch.drop_columns([KEY.name])
        if partition is None and keys is not None and self._partitions > 1 and keys.null_count < len(keys):
            return RoutedBatch.of(batch, route(keys, self._partitions, self._sticky))
        if partition is None and self._partitions > 1:
            return RoutedBatch.spread(entry_sized(batch), self._sticky, self._partitions)
        return RoutedBatch.whole(batch, self._sticky if partition is None else partition)

    def _roll_back(self) -> None:
        """Undo what an interrupted ``send_batch`` has taken."""
        if self._staging is not None:
            self._last = None
            self._staging.roll_back()
            self._staging = None

    def _start_lingering(self) -> None:
        self._due = time.monotonic() + self._linger_s
        self._linger.wake(self)

    def _is_full(self) -> bool:
        return self._waiting_messages >= self._max_messages or self._waiting_bytes >= self._max_bytes

    def _write_soon(self) -> None:
        """Have what was gathered written by the thread, or by the next call, whichever comes first.

        Not by this one: it has taken its messages, and an interrupt now would make it look as if it hadn't.
        """
        self._alarm = True
        self._linger.wake(self)

    def _write_if_due(self) -> float | None:
        """Write what has waited long enough; return in how many seconds to look again, None: when woken."""
        with self._lock:
            if self._closed or not (self._waiting_messages or any(g.messages for g in self._groups.values())):
                return None
            left = self._due - time.monotonic()
            if left > 0 and not self._is_full():
                return min(left, threading.TIMEOUT_MAX)
            try:
                self._drain()
            except Exception:  # no error of ours: those are kept for the next call
                _log.warning("what producer %s has gathered waits for the next flush", self.name, exc_info=True)
            return None

    # Writing

    def _drain(self) -> None:
        """Write and register everything. What fails for good is noted in ``_losses``; what couldn't be registered for
        now stays, and is registered next time."""
        self._roll_back()
        self._bury()
        if any(group.messages for group in self._groups.values()):
            self._sticky = (self._sticky + 1) % self._partitions
        self._groups = {}  # first: what is sent from here on begins new groups
        self._losses.unavailable = None
        for group in list(self._queue):
            if group.cut is None:
                self._cut(group)
        self._write([group for group in self._queue if group.entries is None])
        self._register_all()
        self._waiting_messages = self._waiting_bytes = 0

    def _cut(self, group: Group) -> None:
        """Give a group's messages their entries and sequences. What Arrow can't take is lost; the rest isn't."""
        cut = []
        sequence = self._sequence
        try:
            for partition, buffer in group.buffers.items():
                for batch in buffer.entries():
                    cut.append((partition, sequence, batch))
                    sequence += batch.num_rows
        except MemoryError:
            raise
        except _POISON as error:
            self._lose(group, _unfit(error))
            return
        if not cut:
            self._queue.remove(group)
            return
        self._sequence = sequence  # first: an interrupt may leave numbers out, but never give one twice
        group.cut = cut
        for buffer in group.buffers.values():
            buffer.clear()

    def _write(self, groups: list[Group]) -> None:
        """Write the groups' bytes and sync them once for each segment; if that fails, find out for which."""
        try:
            self._segments.store(groups)
        except MemoryError:
            raise
        except (TxnLogError, *_POISON) as error:
            self._segments.close()
            if len(groups) > 1:
                for group in groups:
                    self._write([group])
                return
            self._lose(groups[0], error if isinstance(error, TxnLogError) else _unfit(error))

    def _register_all(self) -> None:
        while self._queue:
            group = self._queue[0]
            if group.receipt is None:
                try:
                    positions = self._register(group)
                except UnavailableError as error:
                    self._losses.unavailable = error
                    self._alarm = True
                    return
                except TxnLogError as error:
                    self._lose(group, error)
                    continue
                self._segments.follow(group, positions)
                group.receipt = group.receipt_of(positions)
            self._remember(group.receipt)
            self._queue.popleft()

    def _register(self, group: Group) -> list[Position]:
        assert group.entries is not None
        try:
            return self._stub.append(self._identity, group.txn, group.entries)
        except StaleSegmentError:  # we kept a segment open while its ledgers were offloaded or trimmed
            group.entries = None  # none of them was registered, so other ones may be sent
            self._segments.close()
            self._segments.store([group])
            return self._stub.append(self._identity, group.txn, group.entries or [])

    def _remember(self, receipt: Receipt) -> None:
        if self._receipts and self._receipts[-1] is receipt:
            return  # an interrupt came before the group left the queue
        self._receipts.append(receipt)
        self._remembered += len(receipt[0])
        while self._remembered > _MAX_REMEMBERED_IDS and len(self._receipts) > 1:
            self._remembered -= len(self._receipts.popleft()[0])

    def _lose(self, group: Group, error: TxnLogError) -> None:
        group.failed = error  # from here on it is lost, and is never stored by a later try
        self._bury()

    def _bury(self) -> None:
        """Note what failed groups have lost, and let go of them."""
        for group, error in [(g, g.failed) for g in self._queue if g.failed is not None]:
            self._alarm = True
            self._losses.note(group.txn, error, group.messages)
            self._queue.remove(group)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgumentError(f"The producer {self.name!r} is closed.", "Open a new one.")

    def _unsaid(self) -> str | None:
        """Return what nobody will hear of if this producer goes now; None: nothing."""
        if self._closed or self._inherited:
            return None
        waiting = sum(group.messages for group in list(self._queue))
        said = [str(error) for error in list(self._losses.untold.values())]
        if waiting:
            said.insert(
                0, f"{waiting:,} messages to topic {self.topic!r} were not flushed and are lost. Close it first."
            )
        return " ".join(said) or None


def _unfit(error: Exception) -> SchemaMismatchError:
    return SchemaMismatchError(f"Messages that were sent can't be stored: {error}.", "Send them in smaller parts.")
