"""Producers: messages are taken, written to segments, synced, and only then registered.

Messages wait in the outbox (``outbox.py``), in parcels (``parcel.py``), until a flush, the time that they may linger,
or a full batch sends them down the pipeline (``pipeline.py``). Changes happen behind the rim (``process/rim.py``), but
for ``send``, which takes a message in one step.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.writing.batch_buffer import Buffer, as_bytes
from txn_source.client.writing.batching import Batching
from txn_source.client.writing.copy_keeper import CopyKeeper
from txn_source.client.writing.entry_files import EntryFiles, open_files
from txn_source.client.writing.linger import Linger, report_at_exit
from txn_source.client.writing.losses import Losses
from txn_source.client.writing.message_ids import MessageIds, Receipts
from txn_source.client.writing.outbox import Outbox
from txn_source.client.writing.parcel import Owner, Parcel
from txn_source.client.writing.partitions import Partitions
from txn_source.client.writing.pipeline import Pipeline
from txn_source.client.writing.tabular import Tabular, batches_of
from txn_source.client.writing.transaction import Transaction, handle_of
from txn_source.model.door import guarded, translated
from txn_source.model.errors import (
    FailedError,
    InvalidArgumentError,
    TopicNotFoundError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.routing import partition_of
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId
from txn_source.model.units import is_whole
from txn_source.process import forks
from txn_source.process.rim import Rim, changing
from txn_source.process.shield import held
from txn_source.storage.schema import conform, deserialize_schema

_MAX_OPEN_SEGMENTS = 128

_FOR_OBJECTS = Batching(max_messages=65_536, max_bytes=8 << 20)
"""On an object store each write is a request."""
_BUSY_S = 0.01
"""The linger thread looks again so long after it found that another thread uses the producer."""
_FAILED = "Messages that flush() or commit() confirmed are stored; later ones may be stored or not."
_log = logging.getLogger(__name__)


@guarded(but=("send",), also=("_attend", "_write_full", "_new_parcel", "_new_buffer"))
class Producer:
    """Sends messages to one topic. Thread-safe; a context manager that flushes and closes.

    A message is acknowledged when ``flush`` (or the commit of its transaction) returns. Messages with a key go to the
    partition that the key's hash names; those without stay on one partition until the next write, then move on. Of
    partitions that are added to the topic it learns with its next write; what is sent after that goes there, too.

    Messages that can't be stored now (the service is away, a disk is full) are kept: call ``flush`` again. The first
    Ctrl-C takes effect after the call; an interrupted ``send`` has taken its message or not. Another exception in the
    middle of a call (a second Ctrl-C, MemoryError) fails the producer: each later call raises FAILED. Then confirmed
    messages are stored, and later ones may be stored or not. A forked child can't use the producer. A dropped producer
    lives until its messages are written; a ResourceWarning, or the log at the program's end, reports the lost ones.
    """

    _closed = True  # of the class: until it is open, however early that was interrupted

    def __init__(
        self,
        access: Access,
        topic: TopicName,
        transactional_id: str | None = None,
        name: str | None = None,
        batching: Batching | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open a producer; ``clock`` returns seconds that only go up, by which messages linger."""
        self._stub = access.metadata
        self._adapts = batching is None
        batching = batching or (_FOR_OBJECTS if access.segments.is_remote else Batching())
        opened, view = access.metadata.open_producer(topic, transactional_id, name)
        self.topic = topic.short
        self.name = opened.name
        partitions = len(view.partitions)
        payload = deserialize_schema(view.topic.schema)
        outbox = self._outbox = Outbox(payload, partitions, opened.producer_id % partitions, batching)
        self._rim = Rim(f"Producer {self.name!r}", _FAILED)
        self._lock, self._process = self._rim.lock, self._rim.process
        self._losses = Losses(self.name)
        self._topic, self._topic_id = topic, view.topic.topic_id
        me, known = weakref.ref(self), Partitions(view)

        def files() -> EntryFiles:
            return open_files(access, view.topic, known, opened.producer_id, _MAX_OPEN_SEGMENTS, then=then)

        def then() -> None:
            _look_at(me())

        def failed(_: FailedError) -> None:
            outbox.alarm = True
            then()  # so that the thread lets go of the producer

        self._rim.then = failed

        copies = CopyKeeper(access, topic, files)
        self._pipeline = Pipeline(access.metadata, opened, files(), known, outbox, self._losses, copies, self._rim)
        self._linger = Linger(f"txnlog-{self.name}", batching.linger_s, clock)
        report_at_exit(self)
        self._closed = False

    def __del__(self) -> None:
        if not self._closed:
            if (unreported := self._unreported()) is not None:
                warnings.warn(f"Producer {self.name!r} was dropped: {unreported}", ResourceWarning, 2, self)
            self._linger.stop()

    def __repr__(self) -> str:
        return f"<Producer {self.name} of {self._topic.short}>"

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
        if self._process is not forks.this_process:
            self._rim.check()
        with self._lock:
            outbox = self._outbox
            if outbox.alarm:
                self._attend()
            if partition is None:
                if key is None or outbox.partitions == 1:
                    partition = outbox.sticky
                else:
                    partition = partition_of(as_bytes("key", key) or b"", outbox.partitions)
            elif type(partition) is not int:
                self._check_number(partition)
            try:
                parcel = outbox.parcels.get(txn)
                if parcel is None:
                    parcel = self._new_parcel(txn)
                buffer = parcel.buffers.get(partition)
                if buffer is None:
                    buffer = self._new_buffer(parcel, partition)
            except TypeError as error:  # neither can be a key
                raise translated(error, "send()") from error
            if parcel is not outbox.last or parcel.runs[-1][0] is not buffer:
                outbox.begin_run(parcel, buffer)
            if not outbox.waiting_messages:
                outbox.lingers = True
                self._linger.start(self)
            size = buffer.add(value, key, properties, event_time)  # taken; what follows may be missed
            outbox.waiting_messages += 1
            outbox.waiting_bytes += size
            # Not by ``full``: each message would pay for that call.
            if outbox.waiting_messages >= outbox.max_messages or outbox.waiting_bytes >= outbox.max_bytes:
                self._write_full()

    def send_batch(
        self,
        batch: Tabular,
        txn: Transaction | TxnId | str | None = None,
        partition: int | None = None,
    ) -> None:
        """Take many messages, a row each, without copying where the types are the topic's.

        The batch is a pyarrow.RecordBatch or Table, a DataFrame of pandas (without its index) or Polars, or whatever
        else gives Arrow's stream.

        The columns are the topic's, in any order; optional are ``__event_time``, ``__properties`` and, for a typed
        topic, ``__key`` (binary or text). Rows without a key go to one partition together, those of
        a batch that is larger than an entry (65,536 rows or 16 MiB) entry by entry to one after the other. A batch
        that doesn't fit is refused whole.

        Raises:
            SchemaMismatchError: names the field, what was expected and what came.
        """
        self._rim.check()
        batches = [batch] if isinstance(batch, pa.RecordBatch) else batches_of(batch)
        outbox = self._outbox
        fitted = [conform(b, outbox.payload) for b in batches if b.num_rows]
        with self._lock:
            if outbox.alarm:
                self._attend()
            parcel = outbox.parcels.get(txn) or self._new_parcel(txn)
            if partition is not None:
                self._check_number(partition)
            routed = [outbox.routed(b, partition) for b in fitted]
            for target in {target for each in routed for target, _ in each.parts}:
                parcel.buffers.get(target) or self._new_buffer(parcel, target)
            if not outbox.waiting_messages:
                outbox.lingers = True
                self._linger.start(self)
            size = sum(b.nbytes for b in fitted)
            if sum(len(each.parts) for each in routed) == 1:
                outbox.take(parcel, routed, size)  # in one step, as by ``send``
            else:
                with self._rim.changes():
                    outbox.take(parcel, routed, size)
            if outbox.full:
                self._write_full()

    @changing
    def flush(self) -> MessageIds:
        """Write and register all that was sent; return the ids of what was acknowledged since the last flush.

        The ids are in the order of sending (of the newest million messages if there were more).

        Raises:
            UnavailableError, StorageWriteError: the messages can't be stored now. They are kept; call ``flush`` again.
            TxnLogError: messages are lost, since their topic, producer or transaction has ended.
        """
        self._drain()
        self._losses.raise_next()
        self._check_open()
        receipts, self._pipeline.receipts = self._pipeline.receipts, Receipts()
        return receipts.ids()

    def close(self) -> None:
        """Flush and close; harmless when it is closed, and in a fork.

        The producer stays open if messages still wait: they can't be stored now, or the commit of their transaction
        went unanswered. Then ``close`` raises; call it again.
        """
        if self._rim.inherited:
            return
        with held():
            was_open = not self._closed
            try:
                if was_open:
                    self._store_all()
            finally:
                self._close_if_done()
            if was_open and self._closed:
                with suppress(TxnLogError):  # else it is idle some day, and its leftovers are garbage then
                    self._stub.close_producer(self._pipeline.producer)

    def _close_if_done(self) -> None:
        """Close, unless messages or unreported errors are left."""
        with self._lock:
            waits = self._outbox.queue or self._pipeline.lent or self._losses.unreported
            if self._rim.failure is not None or not waits:
                self._outbox.alarm = self._closed = True
                self._pipeline.close()
        if self._closed:
            self._linger.stop()
            self._linger.join()

    @changing
    def _store_all(self) -> None:
        self._drain()
        self._losses.raise_next()
        self._check_answered()

    # Taking

    @changing
    def _attend(self) -> None:
        """Do what has to be done before anything is taken, or raise why nothing can be taken."""
        if self._outbox.full or self._outbox.holds_too_much:
            self._pipeline.store(wait=False)
        self._losses.raise_next()
        self._check_open()
        if self._outbox.topic_partitions > self._outbox.partitions:
            with suppress(TxnLogError):  # it goes on with those it knows, and is told again after the next write
                self._learn_partitions()
        self._outbox.alarm = False

    def _new_parcel(self, txn: Transaction | TxnId | str | None) -> Parcel:
        owner: Owner = txn if isinstance(txn, Transaction) or txn is None else TxnId.parse(txn)
        if isinstance(owner, TxnId):
            owner = handle_of(self._stub, owner) or owner
        if isinstance(owner, Transaction):
            owner._join(self._pipeline, self)  # its commit waits for what is sent here
        parcel = Parcel(owner)
        self._outbox.begin(txn, parcel)
        return parcel

    def _learn_partitions(self) -> None:
        """Look up the partitions that were added to the topic, and route to them from now on."""
        [view] = self._stub.get_view([self._topic]).topics
        if view.topic.topic_id == self._topic_id:  # else the topic was made anew, and the next write is refused
            self._pipeline.partitions.add(view)
            self._outbox.partitions = len(view.partitions)  # the last step

    def _new_buffer(self, parcel: Parcel, partition: int) -> Buffer:
        partitions = self._outbox.partitions
        if partition >= partitions:
            self._learn_partitions()  # it may have been added
            partitions = self._outbox.partitions
        if not 0 <= partition < partitions:
            raise self._no_partition(partition)
        buffer = parcel.buffers[partition] = Buffer(self._outbox.payload, partition)
        return buffer

    def _check_number(self, partition: Any) -> None:
        """Raise TOPIC_NOT_FOUND for what is no number: 1.0 and True are 1 to a dict, and would be taken for it."""
        if not is_whole(partition):
            raise self._no_partition(partition)

    def _no_partition(self, partition: Any) -> TopicNotFoundError:
        last = self._outbox.partitions - 1
        return TopicNotFoundError(
            f"Topic {self.topic!r} has no partition {partition!r:.80}.", f"Its partitions are 0 to {last}."
        )

    # Writing

    @changing
    def _write_full(self) -> None:
        """Write a full batch. The next call raises its error, since this one has taken its messages."""
        self._pipeline.store(wait=False)
        self._adapt()

    def _drain(self) -> None:
        """Write and register everything."""
        self._pipeline.store()
        self._adapt()

    def _adapt(self) -> None:
        if self._adapts:
            self._linger.least_s = self._pipeline.files.linger_s

    def _write_if_due(self) -> float | None:
        """Write what has waited long enough; return in how many seconds to look again, None: when woken."""
        if self._rim.failure is not None:
            return None
        outbox, linger = self._outbox, self._linger
        arrived = self._pipeline.has_arrived
        if not outbox.lingers and not arrived:
            return self._pipeline.next_look_s
        if (left := linger.left) > 0 and not outbox.full and not arrived:
            return min(left, threading.TIMEOUT_MAX)
        if not self._lock.acquire(blocking=outbox.full):
            return _BUSY_S  # whoever has it may be writing all this
        try:
            if self._rim.failure is not None:
                return None
            if arrived and not self._closed:
                self._pipeline.settle()
            if self._closed or not (outbox.waiting_messages or outbox.some):
                outbox.lingers = False
                return self._pipeline.next_look_s
            if (left := linger.left) > 0 and not outbox.full:  # others have begun to wait
                return min(left, threading.TIMEOUT_MAX)
            self._pipeline.store(wait=False)
            self._adapt()
        except BaseException as error:  # no error of ours: those are kept for the next call
            self._rim.fail(error)
            _log.warning("producer %s has failed", self.name, exc_info=True)
        finally:
            self._lock.release()
        return None if self._rim.failure is not None else self._pipeline.next_look_s

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgumentError(f"The producer {self.name!r} is closed.", "Open a new one.")

    def _check_answered(self) -> None:
        """Raise if there are messages of which only their transaction can find out what came of them."""
        if unanswered := self._pipeline.lent:
            raise UnavailableError(
                f"The commit of a transaction had no answer, so {unanswered:,} messages of producer {self.name!r} may"
                " be stored, or may not.",
                "Call commit() or abort() of that transaction again, or drop it if it has failed; then close this.",
            )

    def _unreported(self) -> str | None:
        """Return what nobody will hear of if this producer goes now; None: nothing."""
        if self._closed or self._rim.inherited or self._rim.failure is not None:
            return None
        unanswered = self._pipeline.lent
        waiting = sum(parcel.messages for parcel in list(self._outbox.queue))
        said = [str(error) for error in list(self._losses.unreported.values())]
        if waiting:
            said.insert(
                0, f"{waiting:,} messages to topic {self.topic!r} were not flushed and are lost. Close it first."
            )
        if unanswered:
            said.append(
                f"Whether {unanswered:,} messages to topic {self.topic!r} are stored isn't known: the commit of their"
                " transaction had no answer. Call commit() or abort() again."
            )
        return " ".join(said) or None


def _look_at(producer: Producer | None) -> None:
    """Have the thread of a producer, if that is still there, look at what is safe now."""
    if producer is not None:
        producer._linger.wake(producer)
