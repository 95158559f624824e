"""A consumer of a subscription: receives, acknowledges, seeks, and connects again by itself.

Its parts share the ``ConsumerState``, which has the ``Link`` to the service, the queue and the ``DueThread``:
``Acknowledging``; ``EpochChanges`` (seeks, redeliveries); ``Counting``; and ``DeadLetters``. None of them holds the
consumer, so that one that its program forgets goes at once.

Three threads take part: the caller's, which reads the bytes of what was delivered; the link's, which takes deliveries
into the queue; and the ``DueThread``, which does what comes due and else sleeps. The caller may be many threads: one
lock guards the state, and whoever waits looks at the queue again when something has come.

The epoch guards all of it. A seek raises the consumer's own epoch and drops its queue before it asks the service; what
arrives with a smaller epoch is dropped. So once ``seek`` has returned nothing from before it is received.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType

from txn_source.client.access import Access
from txn_source.client.consuming.acknowledging import Acknowledging
from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.counting import Counting
from txn_source.client.consuming.dead_letters import DeadLetters, SendDeadLetter, check_dead_letters
from txn_source.client.consuming.epoch_changes import EpochChanges
from txn_source.client.consuming.messages import (
    Message,
    MessageBatch,
    Receiver,
    UnreadableMessage,
    batches_of,
)
from txn_source.client.consuming.options import ConsumerOptions
from txn_source.client.consuming.receive_queue import Loss
from txn_source.client.places import GivenPlace, Sought
from txn_source.client.reading.slice_reader import SliceReader
from txn_source.metadata.stub.conversation import AnsweredStub, Delivery, SubscribeRequest
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.door import guarded
from txn_source.model.errors import InternalError, InvalidArgumentError, MessageUnreadableError, TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange
from txn_source.model.packing import Slice
from txn_source.model.topic_name import TopicName
from txn_source.model.units import is_number
from txn_source.process import forks
from txn_source.process.rim import Rim
from txn_source.process.shield import held

_FAILED = "Close it: close() sends the acknowledgements, and all other messages are redelivered."


@guarded(but=("receive", "acknowledge", "__iter__"), also=("_hand_out",))
class Consumer:
    """A consumer of one subscription; iterating yields messages as they come, without end.

    Thread-safe: many threads may receive, acknowledge, seek and close at once. Each message goes to one of them. It
    belongs to the process that made it: in a forked child every call but ``close``, which does nothing there, is
    refused. A context manager that sends its acknowledgements and closes; one that its program forgets does so, too.
    """

    def __init__(
        self,
        access: Access,
        request: SubscribeRequest,
        options: ConsumerOptions,
        send_dead_letter: SendDeadLetter | None,
    ) -> None:
        """Subscribe; ``Log.subscribe`` does so for its callers.

        Args:
            access: the log.
            request: what is subscribed to, and how.
            options: how the consumer behaves.
            send_dead_letter: is called, in the caller's thread, with a message that was delivered too often. None: a
                reader's, to which nothing is delivered again.
        """
        self.topic = TopicName.parse(request.topic).short
        self.subscription = request.name
        self.type = request.type
        self._access = access
        self._options, self._request = options, request
        self._send_dead_letter = send_dead_letter
        self._assemble()
        if options.max_redeliveries is not None and send_dead_letter is not None:
            check_dead_letters(access.metadata, self._state)
        self._thread.begin(self._acknowledging, self._state.sender.finish)
        forks.keep_in_children(self)  # collecting its parts could wait for locks that nobody gives back
        try:
            self._link.connect(self._state)
        except BaseException:
            self._thread.leave()
            self._state.refuse(_closed())
            raise

    def _assemble(self) -> None:
        """Make the parts."""
        access, request, options = self._access, self._request, self._options
        itself: weakref.ref[Receiver] = weakref.ref(self)
        self._rim = Rim(f"Consumer {request.consumer_name!r}", _FAILED)
        self._lock, self._process = self._rim.lock, self._rim.process
        state = self._state = ConsumerState(access, request, options, self._lock, itself)
        self._rim.then = state.fail
        self._queue, self._thread, self._link = state.queue, state.thread, state.link
        self._dead_letters = DeadLetters(state, self._send_dead_letter)
        self._acknowledging = Acknowledging(state, self._dead_letters)
        self._epochs = EpochChanges(access, state, self._acknowledging)
        self._counting = Counting(state)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        return iter(self.receive, None)  # no generator: that would end with the first error, and lose what it was given

    def __repr__(self) -> str:
        return f"<Consumer {self._request.consumer_name} of {self.topic}/{self.subscription}>"

    @property
    def epoch(self) -> int:
        """The subscription's epoch that this consumer is in."""
        return self._state.epoch

    @property
    def isolation_level(self) -> IsolationLevel:
        """The subscription's level."""
        return self._state.level

    # Receiving

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None if none comes within ``timeout`` seconds; None waits without end.

        Raises:
            MessageUnreadableError: the message can't be shown. It counts as received: the next call goes on behind it,
                and the error's ``message`` can be acknowledged.
            DataLossError: messages were trimmed before they were received; the next call goes on behind them.
            SegmentUnreadableError: no copy of the messages can be read now; the next call tries again.
            SubscriptionNotFoundError: the subscription is gone, or was made anew.
            TxnLogError: the consumer is closed, or its place was taken.
        """
        if self._process is not forks.this_process:
            self._rim.check()
        deadline = None if timeout is None else _deadline(timeout)
        taken = 0
        batch: MessageBatch | None = None
        ticket: threading.Lock | None = None
        state, queue = self._state, self._queue
        try:
            while True:
                with self._lock:
                    values, row = queue.values, queue.row
                    if row < len(values):
                        batch = queue.batch
                        assert batch is not None
                        if state.plain or not self._is_uncounted(batch, row):
                            message = Message(batch, row, values[row], batch.delivery.redeliveries)
                            if state.plain or self._hand_out(message):
                                queue.row = taken = row + 1
                                return message
                            queue.row = row + 1
                            continue
                    elif not (due := state.again_due) and (batch := self._filled()) is not None:
                        row = queue.row
                        queue.values = batch.shown(row)
                        if row < len(queue.values):
                            continue
                        if not self._is_uncounted(batch, row):
                            queue.row = taken = row + 1
                            raise self._unreadable(batch, row)
                    else:
                        batch, ticket = None, None if due else state.news.expect()
                if not self._prepared(batch, row, row + 1, ticket, deadline):
                    return None
        except MessageUnreadableError:
            raise
        except BaseException as error:
            if taken:
                self._rim.fail(error)  # it never reached the caller
            raise

    def receive_batch(self, timeout: float | None = None) -> MessageBatch | None:
        """Return the next messages together, or None if none come within ``timeout`` seconds; None waits without end.

        They are of one partition, in order. It doesn't move messages to a dead-letter topic, and has no
        acknowledgement time-out.

        Returns:
            A batch whose ``data`` has the payload columns and ``__ledger_id, __entry_id, __batch_index,
            __publish_time, __event_time, __properties, __txn_id`` and, of a typed topic, ``__key``.

        Raises:
            MessageUnreadableError: the next message is damaged so that Arrow can't have it; as with ``receive``.
            TxnLogError: as with ``receive``.
        """
        self._rim.check()
        deadline = None if timeout is None else _deadline(timeout)
        taken = row = end = 0
        batch: MessageBatch | None = None
        ticket: threading.Lock | None = None
        state, queue = self._state, self._queue
        try:
            while True:
                with self._lock:
                    due = state.again_due
                    batch = None if due else self._filled()
                    if batch is not None:
                        row, end = state.next_rows(batch, queue.row)
                        if row == len(batch):
                            queue.row = row
                            continue
                        if not self._counting.needed(batch, max(row, end - 1)):
                            if end == row:
                                queue.row = taken = row + 1
                                raise self._unreadable(batch, row)
                            found = batch if (row, end) == (0, len(batch)) else batch.part(row, end)
                            queue.row = taken = end
                            return found
                    else:
                        ticket = None if due else state.news.expect()
                if not self._prepared(batch, row, max(row + 1, end), ticket, deadline):
                    return None
        except MessageUnreadableError:
            raise
        except BaseException as error:
            if taken:
                self._rim.fail(error)
            raise

    def _is_uncounted(self, batch: MessageBatch, row: int) -> bool:
        """True if a message must be counted before the caller gets it. The lock is held."""
        return self._counting.needed(batch, row) and not self._dead_letters.wants(batch.delivery)

    def _prepared(
        self, batch: MessageBatch | None, row: int, end: int, ticket: threading.Lock | None, deadline: float | None
    ) -> bool:
        """Do what has to come first: count rows of a batch, or wait (None: redeliver what is due).

        Returns False when the deadline has passed.
        """
        if batch is not None:
            with held():
                ticket = self._counting.count(batch, row, end)
        elif ticket is None:
            with held():
                self._epochs.redeliver_due()
        return ticket is None or self._state.wait(ticket, deadline)

    def _filled(self) -> MessageBatch | None:
        """Return the current batch, or make the next one that; None if nothing has come. The lock is held."""
        queue = self._queue
        if queue.batch is not None and queue.row < len(queue.batch):
            return queue.batch
        with self._rim.changes():
            return self._advanced()

    def _advanced(self) -> MessageBatch | None:
        """Make the next batch the current one and return it; None if nothing has come."""
        state, queue = self._state, self._queue
        while True:
            state.check_open()
            try:
                found = queue.advance(self._read)
            except (TxnLogError, MemoryError):
                raise
            except Exception as error:
                raise InternalError(
                    f"The messages that come next can't be read ({type(error).__name__}: {error}).",
                    "Please report it; seek goes past them.",
                ) from error
            if queue.taken * 2 >= state.queue_size and self._link.current is not None:
                self._link.current.flow(state.epoch, queue.taken)
                queue.taken = 0
            if found is True:
                return queue.batch
            if found is False:
                return None
            if isinstance(found, Loss):
                raise state.lost(found)
            self._acknowledging.add_range(*found)
            queue.passed()

    def _read(self, delivery: Delivery) -> Iterator[MessageBatch | MessageRange]:
        state = self._state
        partition = state.topic.partitions[delivery.partition_id]
        piece = Slice(self.topic, partition, delivery.partition_id, delivery.range, 0)
        access = Access(AnsweredStub(self._access.metadata, delivery), self._access.root)
        reader = SliceReader(access, state.topic.schema, state.level, delivery.decisions, checked=False)
        return batches_of(state.origin, delivery, partition, reader.read([piece]))

    def _hand_out(self, message: Message) -> bool:
        """Note that the caller gets a message; return False for a dead letter, and for a message that was acknowledged
        before its redelivery."""
        batch, row = message._batch, message._row
        if self._state.late and self._state.is_late(batch, row):
            return False
        if self.type.in_order and not self._request.counts:
            message.redelivery_count = self._state.redeliveries.count_of(batch, row)
        if self._dead_letters.take(message):
            return False
        self._expect_acknowledgement(batch, row)
        return True

    def _unreadable(self, batch: MessageBatch, row: int) -> MessageUnreadableError:
        message = UnreadableMessage(batch, row, batch.delivery.redeliveries)
        self._expect_acknowledgement(batch, row)
        return message.error()

    def _expect_acknowledgement(self, batch: MessageBatch, row: int) -> None:
        """Have a message delivered again that isn't acknowledged in time."""
        if self._options.acknowledge_timeout is not None:
            due = time.monotonic() + self._options.acknowledge_timeout
            self._thread.due(due)
            self._state.redeliveries.hand_out(batch, row, due)

    def has_more(self) -> bool:
        """True if the level shows a message behind the caller's last one, or such a message was trimmed unread."""
        self._rim.check()
        state, stub = self._state, self._access.metadata
        state.check_open()
        with self._lock:
            cursors = self._queue.cursors()
        if stub.count_messages(state.level, cursors):
            return True
        [topic] = stub.get_view([state.topic_name]).topics
        starts = [
            (cursors[view.partition_id].position, view) for view in topic.partitions if view.partition_id in cursors
        ]
        return any(at < view.bounds.log_start and not view.lost_nothing(at) for at, view in starts)

    # Acknowledging

    def acknowledge(self, message: Message | MessageBatch) -> None:
        """Say that a message, or a batch, has been processed; it is sent with others after ``acknowledge_interval``.

        What was acknowledged before a crash and not yet sent is delivered once more: at least once. Acknowledging twice
        is harmless; so is a message from before a seek: the service ignores it and counts it. That it can't be sent is
        told by ``flush`` and ``close``; it is tried again until then.

        Raises:
            InvalidArgumentError: it is no message of this subscription, or the consumer is closed.
            TxnLogError: the consumer can't go on, as with ``receive``.
        """
        if self._process is not forks.this_process:
            self._rim.check()
        self._acknowledging.acknowledge(message)

    def acknowledge_cumulative(self, message: Message | MessageBatch) -> None:
        """Acknowledge a message and all before it in its partition; not on a shared subscription.

        With several threads that includes what other threads have received and not processed yet: if the process ends
        before they have, these messages don't come again. Then acknowledge the messages themselves. What was delivered
        and no call has returned yet is never included.

        Raises:
            InvalidArgumentError: the subscription is shared; or as with ``acknowledge``.
        """
        self._rim.check()
        self._acknowledging.acknowledge_cumulative(message)

    def negative_acknowledge(self, message: Message | MessageBatch) -> None:
        """Have a message, or a batch, delivered again after ``negative_acknowledge_delay`` seconds.

        Of an exclusive or failover subscription all that isn't acknowledged then comes again, in order and in a new
        epoch; that begins with the next call that receives. An acknowledgement takes it back, and what was acknowledged
        isn't delivered again.

        Raises:
            InvalidArgumentError: as with ``acknowledge``.
        """
        self._rim.check()
        self._acknowledging.negative_acknowledge(message)

    def flush(self) -> None:
        """Send the acknowledgements made so far; when it returns they are stored.

        Raises:
            UnavailableError: there is no connection at the moment. They stay, and are sent when there is one.
        """
        self._rim.check()
        with held():
            self._acknowledging.flush()

    @property
    def _metadata(self) -> MetadataStub:
        return self._access.metadata

    def _expect(self, batch: MessageBatch, rows: Sequence[int], until: float) -> None:
        self._acknowledging.expect(batch, rows, until)

    def _consumed(self, batches: Mapping[MessageBatch, list[int]]) -> list[Acknowledgement]:
        return self._acknowledging.consumed(batches)

    def _committed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        self._acknowledging.committed(batches)

    def _not_consumed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        self._acknowledging.not_consumed(batches)

    # Epochs

    def seek(self, to: GivenPlace) -> Sought:
        """Move the subscription; when it returns nothing from before it is received any more.

        Args:
            to: ``earliest``, ``latest``, a ``MessageId`` or ``Position`` (or its text; that message is the next), a
                datetime (the first message published then or after), or a mapping ``{"orders": {0: "12:40"}}``.
                Partitions that it doesn't name go back to what they have not acknowledged.

        Returns:
            Where it stands now: a mapping from partition to the id of the next message, with the new epoch. A place
            before the start or beyond the end is replaced by the nearest one, with a warning in the log.

        Raises:
            InvalidArgumentError: it is no place in the topic, or the consumer is closed. Nothing was changed.
            UnavailableError: the service couldn't be reached for as long as a call may take. The consumer finds out
                by itself whether it was moved; ``seek`` may be repeated.
            StaleEpochError: others moved the subscription again and again meanwhile.
            SubscriptionNotFoundError: it is gone.
        """
        self._rim.check()
        with held():
            return self._epochs.seek(to)

    def redeliver(self) -> None:
        """Have all that was delivered to this consumer and isn't acknowledged delivered again, now.

        Raises:
            UnavailableError: as with ``seek``, or with ``flush``.
        """
        self._rim.check()
        with held():
            self._epochs.redeliver()

    # The end

    def unsubscribe(self) -> None:
        """Close, and delete the subscription.

        Raises:
            SubscriptionBusyError: it has another consumer.
        """
        self._rim.check()
        self.close()
        if self._request.durable:
            self._access.metadata.delete_subscription(self._state.topic_name, self.subscription)

    def close(self) -> None:
        """Send the acknowledgements, and disconnect; closing again is harmless.

        Calls that wait in other threads end at once, with the error that the consumer is closed.

        Raises:
            UnavailableError: acknowledgements couldn't be sent; these messages are delivered again.
        """
        if self._rim.inherited:
            return
        with held():
            if self._state.letters and self._state.refusal is None:
                self._dead_letters.send_kept(now=True)
            with self._lock:
                self._state.refuse(_closed())
                self._queue.drop()  # and note what was received
            self._thread.end()


def _closed() -> TxnLogError:
    return InvalidArgumentError("The consumer is closed.", "Subscribe again.")


def _deadline(timeout: float) -> float | None:
    if not is_number(timeout):
        raise InvalidArgumentError(f"{timeout!r:.80} is not a timeout.", "Use seconds, or None to wait without end.")
    return None if timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout
