"""A consumer of a subscription: receives, acknowledges, seeks, and connects again by itself.

Three threads take part: the caller's, which reads the bytes of what was delivered; the link's, which takes deliveries
into the queue; and one that does what comes due (``upkeep.py``) and else sleeps. The caller may be many threads: one
lock guards the queue, and whoever waits looks at the queue again when something has come.

A call that is interrupted puts back what it took. Handlers for that begin with assignments and a call of a C function,
between which CPython takes no notice of signals, so that a second Ctrl-C changes nothing.

The epoch guards all of it. A seek raises the consumer's own epoch and drops its queue before it asks the service; what
arrives with a smaller epoch is dropped. So once ``seek`` has returned nothing from before it is received.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from txn_source.client.access import Access
from txn_source.client.consuming.acknowledging import Acknowledging
from txn_source.client.consuming.connecting import Connecting
from txn_source.client.consuming.dead_letters import bury
from txn_source.client.consuming.messages import Message, MessageBatch, UnreadableMessage, batches_of
from txn_source.client.consuming.options import ConsumerOptions
from txn_source.client.consuming.receive_queue import Inbox
from txn_source.client.consuming.upkeep import Upkeep
from txn_source.client.reading.slice_reader import SliceReader
from txn_source.client.waiting import News
from txn_source.metadata.stub.consumer_stream import (
    AnsweredStub,
    Delivery,
)
from txn_source.model.door import guarded
from txn_source.model.errors import (
    AcknowledgedElsewhereError,
    InternalError,
    InvalidArgumentError,
    MessageUnreadableError,
    StaleEpochError,
    TxnLogError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange
from txn_source.model.packing import Slice
from txn_source.model.subscription import SubscriptionType
from txn_source.model.topic_name import TopicName
from txn_source.storage.forks import belongs_to_process, inherited_error, keep_for_ever

if TYPE_CHECKING:
    from txn_source.client.log import Log

_log = logging.getLogger(__name__)


@guarded(but=("receive", "__iter__"), also=("_hand_out",))
class Consumer(Acknowledging, Connecting):
    """A consumer of one subscription; iterating yields messages as they come, without end.

    Thread-safe: many threads may receive, acknowledge, seek and close at once. Each message goes to one of them. It
    belongs to the process that made it: in a forked child every call but ``close``, which does nothing there, is
    refused. A context manager that sends its acknowledgements and closes; one that its program forgets does so, too.
    """

    def __init__(
        self,
        log: Log,
        topic: TopicName,
        name: str,
        kind: SubscriptionType,
        level: IsolationLevel | None,
        where: str,
        points: Mapping[int, int],
        options: ConsumerOptions,
        *,
        durable: bool = True,
    ) -> None:
        """Subscribe; ``Log.subscribe`` has the arguments' meaning."""
        super().__init__(log, topic, name, kind, level, where, points, options, durable=durable)
        self._upkeep.begin(self)
        belongs_to_process(self)
        try:
            self._open()
        except BaseException:
            self._upkeep.leave()
            self._refuse(_closed(), hopeless=False)
            raise

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
        return self._epoch

    @property
    def isolation_level(self) -> IsolationLevel:
        """The subscription's level."""
        return self._level

    # Receiving

    def receive(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None if none comes within so many seconds; None waits without end.

        Raises:
            MessageUnreadableError: the message can't be shown. It counts as received: the next call goes on behind it,
                and the error's ``message`` can be acknowledged.
            DataLossError: messages were trimmed before they were received; the next call goes on behind them.
            TxnLogError: the subscription is gone, its consumer's place was taken, or the messages can't be read.
        """
        deadline = None if timeout is None else _deadline(timeout)
        taken = 0
        batch: MessageBatch | None = None
        inbox = self._inbox
        try:
            while True:
                with self._lock:
                    values, row = inbox.values, inbox.row
                    if row < len(values):
                        batch = inbox.batch
                        assert batch is not None
                        message = Message(batch, row, values[row], batch.delivery.redeliveries)
                        if self._plain or self._hand_out(message):
                            inbox.row = taken = row + 1
                            return message
                        inbox.row = row + 1
                        continue
                    batch = self._filled()
                    if batch is not None:
                        row = inbox.row
                        inbox.values = batch.shown(row)
                        if row >= len(inbox.values):
                            inbox.row = taken = row + 1
                            raise self._unreadable(batch, row)
                        continue
                    ticket = self._news.expect()
                if not self._wait(ticket, deadline):
                    return None
        except MessageUnreadableError:
            raise
        except BaseException:
            if taken and batch is not None:
                inbox.values = ()  # the next call looks at what was returned
                inbox.returned.append((batch, taken - 1, taken))
            raise

    def receive_batch(self, timeout: float | None = None) -> MessageBatch | None:
        """Return the next messages together, or None if none come within so many seconds.

        They are of one partition, in order. It doesn't move messages to a dead-letter topic, and has no
        acknowledgement time-out.

        Raises:
            MessageUnreadableError: the next message is damaged so that Arrow can't have it; as with ``receive``.
            TxnLogError: as with ``receive``.
        """
        deadline = None if timeout is None else _deadline(timeout)
        taken = row = 0
        batch: MessageBatch | None = None
        inbox = self._inbox
        try:
            while True:
                with self._lock:
                    batch = self._filled()
                    if batch is not None:
                        row = inbox.row
                        end = batch.sound(row)
                        if end == row:
                            inbox.row = taken = row + 1
                            raise self._unreadable(batch, row)
                        found = batch if (row, end) == (0, len(batch)) else batch.part(row, end)
                        inbox.row = taken = end
                        return found
                    ticket = self._news.expect()
                if not self._wait(ticket, deadline):
                    return None
        except MessageUnreadableError:
            raise
        except BaseException:
            if taken and batch is not None:
                inbox.values = ()
                inbox.returned.append((batch, row, taken))
            raise

    def _filled(self) -> MessageBatch | None:
        """Return the current batch, or make the next one that; None if nothing has come. The lock is held."""
        inbox = self._inbox
        if inbox.returned:
            self._settle()
        if inbox.batch is not None and inbox.row < len(inbox.batch):
            return inbox.batch
        while True:
            self._check_open()
            try:
                found = inbox.advance(self._read)
            except (TxnLogError, MemoryError):
                raise
            except Exception as error:
                raise InternalError(
                    f"The messages that come next can't be read ({type(error).__name__}: {error}).",
                    "Please report it; seek goes past them.",
                ) from error
            if inbox.taken * 2 >= self._queue_size and self._upkeep.link is not None:
                self._upkeep.link.flow(self._epoch, inbox.taken)
                inbox.taken = 0
            if found is True:
                return inbox.batch
            if found is False:
                return None
            self._add_range(*found)
            inbox.passed()

    def _read(self, delivery: Delivery) -> Iterator[MessageBatch | MessageRange]:
        partition = self._partitions[delivery.partition_id]
        piece = Slice(self.topic, partition, delivery.partition_id, delivery.range, 0)
        stub = AnsweredStub(self._stub, delivery)
        reader = SliceReader(Access(stub, self._root), self._schema, self._level, delivery.decisions)
        return batches_of(self._origin, delivery, partition, reader.read([piece]))

    def _hand_out(self, message: Message) -> bool:
        """Note that a message goes to the caller; return False for one that goes to the dead-letter topic."""
        batch, row, options = message._batch, message._row, self._options
        if self.type.in_order:
            message.redelivery_count = self._redeliveries.count_of(batch, row)
        limit = options.max_redeliveries
        if limit is not None and message.redelivery_count > limit and self._bury(message):
            return False
        if options.acknowledge_timeout is not None:
            due = time.monotonic() + options.acknowledge_timeout
            self._upkeep.due(due)
            self._redeliveries.hand_out(batch, row, due)
        return True

    def _bury(self, message: Message) -> bool:
        """Move a message to the dead-letter topic; return False for one that has to be handed out instead."""
        options = self._options
        try:
            bury(self._log, message, options.dead_letter_topic or f"{self.topic}-{self.subscription}-DLQ")
        except AcknowledgedElsewhereError:
            pass  # by an earlier call that was interrupted behind its commit
        except StaleEpochError:
            return True  # it comes again, after a seek or a lost connection, and goes there then
        except MessageUnreadableError as error:
            _log.warning(
                "message %s can't go to a dead-letter topic and is received again: %s", error.message_id, error
            )
            return False
        self._redeliveries.buried(message._batch, message._row)
        return True

    def _unreadable(self, batch: MessageBatch, row: int) -> MessageUnreadableError:
        message = UnreadableMessage(batch, row, batch.delivery.redeliveries)
        if self._options.acknowledge_timeout is not None:
            due = time.monotonic() + self._options.acknowledge_timeout
            self._upkeep.due(due)
            self._redeliveries.hand_out(batch, row, due)
        return message.error()

    def messages_left(self) -> int:
        """Return how many messages the level shows behind the last one that the caller got."""
        self._check_open()
        with self._lock:
            self._settle()
            stand = self._inbox.stand()
        return self._stub.count_messages(self._level, stand)

    # The end

    def unsubscribe(self) -> None:
        """Close, and delete the subscription."""
        if self._inherited:
            self._check_open()
        self.close()
        if self._request.durable:
            self._stub.delete_subscription(TopicName.parse(self._request.topic), self.subscription)

    def close(self) -> None:
        """Send the acknowledgements, and disconnect; closing again is harmless.

        Calls that wait in other threads end at once, with the error that the consumer is closed.

        Raises:
            UnavailableError: acknowledgements couldn't be sent; these messages are delivered again.
        """
        if self._inherited:
            return
        with self._lock:
            self._refuse(_closed(), hopeless=False)
            self._inbox.drop()
        self._upkeep.end()

    def inherited(self) -> None:
        """Refuse everything, in a child that was forked; the parent's consumer goes on."""
        keep_for_ever((self._upkeep, self._inbox))  # collecting them could wait for locks that nobody gives back
        self._inherited = True
        self._upkeep = Upkeep(self._upkeep.name)
        self._lock, self._pending = self._upkeep.lock, self._upkeep.pending
        self._inbox, self._news, self._seeking = Inbox(), News(), threading.Lock()
        self._refusal = inherited_error(f"Consumer {self._request.consumer_name!r}")


def _closed() -> TxnLogError:
    return InvalidArgumentError("The consumer is closed.", "Subscribe again.")


def _deadline(timeout: float) -> float | None:
    if not isinstance(timeout, int | float) or math.isnan(timeout):
        raise InvalidArgumentError(f"{timeout!r:.80} is not a timeout.", "Use seconds, or None to wait without end.")
    return None if timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout
