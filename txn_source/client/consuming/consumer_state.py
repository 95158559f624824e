"""What the parts of a consumer share: where it is, what waits for its caller, and why it can't go on."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from txn_source.client.consuming.messages import Message, MessageBatch, Origin
from txn_source.client.consuming.options import ConsumerOptions
from txn_source.client.consuming.receive_queue import Loss, ReceiveQueue
from txn_source.client.consuming.redeliveries import Redeliveries
from txn_source.metadata.stub.consumer_stream import SubscribeRequest
from txn_source.model.errors import DataLossError, TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange, MessageRanges
from txn_source.model.position import MessageId
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass
from txn_source.process.waiting import News

_QUEUE, _QUEUE_BY_ROWS = 100_000, 1_000


@dataclass(frozen=True, slots=True)
class SubscribedTopic:
    """The topic that a consumer is connected to; ``partitions`` are the indexes of those it knows, by partition id."""

    topic_id: int
    schema: pa.Schema
    """The columns that messages are made of."""
    partitions: Mapping[int, int]


class ConsumerState:
    """The state of a consumer. ``lock`` guards all of it that changes."""

    def __init__(
        self,
        request: SubscribeRequest,
        options: ConsumerOptions,
        lock: threading.RLock,
        origin: Origin,
    ) -> None:
        self.request = request
        self.options = options
        by_rows = request.counts or not request.type.in_order
        self.queue_size = options.queue_size or (_QUEUE_BY_ROWS if by_rows else _QUEUE)
        self.topic_name = TopicName.parse(request.topic)
        self.lock = lock
        self.news = News()
        """Tells of deliveries, of a new connection, and of the end."""
        self.queue = ReceiveQueue()
        self.redeliveries = Redeliveries()
        self.late: dict[int, MessageRanges] = {}
        """Acknowledged ranges of an older connection's deliveries, by partition id: their redeliveries are skipped."""
        self.letters: dict[tuple[int, int], Message] = {}
        """Messages on their way to the dead-letter topic, by ``MessageBatch.key``; the one that failed last is last."""
        self.epoch = -1
        self.level = IsolationLevel.READ_COMMITTED
        self.origin = origin
        self.topic = SubscribedTopic(-1, pa.schema([]), {})
        """What these are is known from the first connection on."""
        self.plain = False
        """True if ``redeliveries`` needn't hear of a message that is handed out, nor of one that is acknowledged."""
        self.again_due = False
        """True if the next receive call has to request a redelivery in order first."""
        self.refusal: TxnLogError | None = None
        """What every call raises, once the consumer is closed or can't go on."""

    @property
    def was_connected(self) -> bool:
        """True from the first connection on."""
        return self.topic.topic_id >= 0

    def add_partitions(self, indexes: Mapping[int, int], messages: Mapping[int, MessageId]) -> None:
        """Take partitions that were added to the topic, and the subscription's next message of each, by id. Locked.

        Where a seek was faster, what that said of them stays.
        """
        self.topic = replace(self.topic, partitions={**self.topic.partitions, **indexes})
        known = self.queue.cursors()
        self.queue.begin_at({p: at for p, at in messages.items() if p not in known})

    def refuse(self, error: TxnLogError) -> None:
        """Have calls that wait, and all later ones, raise an error; the first one counts."""
        with self.lock:
            self.refusal = self.refusal or error
            self.news.tell()

    def fail(self, error: TxnLogError) -> None:
        """Make all calls raise an error, and drop the delivered messages."""
        with self.lock:
            self.refuse(error)
            self.queue.drop()

    def check_open(self) -> None:
        """Raise the error of a consumer that is closed, or can't go on."""
        if self.refusal is not None:
            raise copy.copy(self.refusal)  # each thread its own: a traceback belongs to one

    def note_late(self, batch: MessageBatch, rows: Sequence[int]) -> None:
        """Note acknowledged rows of an older connection's deliveries. The lock is held."""
        if batch.origin.consumer_id != self.origin.consumer_id and batch.epoch == self.epoch:
            self.plain = False
            of = self.late.setdefault(batch.delivery.partition_id, MessageRanges())
            for item in batch.ranges(rows):
                of.add(item)

    def is_late(self, batch: MessageBatch, row: int) -> bool:
        """True if a message was acknowledged before its redelivery. The lock is held."""
        partition_id = batch.delivery.partition_id
        if (of := self.late.get(partition_id)) is None:
            return False
        item = MessageRange(batch.start(row), batch.end(row))
        if self.request.type.in_order and item.start >= of.end:
            del self.late[partition_id]  # messages come in order, so no other one is
            return False
        return of.covers(item)

    def next_rows(self, batch: MessageBatch, row: int) -> tuple[int, int]:
        """Return the next readable, unacknowledged rows, ``[first, last)``; first is the batch's length if none is."""
        if not self.late:
            return row, batch.sound(row)
        while row < len(batch) and self.is_late(batch, row):
            row += 1
        until = batch.sound(row)
        return row, next((other for other in range(row, until) if self.is_late(batch, other)), until)

    def lost(self, loss: Loss) -> DataLossError:
        """Return the error of messages that were trimmed before they were received."""
        partition = self.topic.partitions.get(loss.partition_id, "that is gone")
        error = DataLossError(
            f"Messages in {loss.range} of topic {self.topic_name.short!r}, partition {partition}, were trimmed before"
            " they were received.",
            "Go on: the next call gives what lies behind them. A longer retention keeps more; a durable subscription"
            " keeps what it hasn't acknowledged, unless the retention ends it.",
        )
        error.lost = loss.range
        return error

    def have_again(self) -> None:
        """Let the next receive call begin with a redelivery in order. The lock is held."""
        self.again_due, self.queue.values = True, ()
        self.news.tell()

    def follow_epoch(self, epoch: int) -> None:
        """Go to an epoch unless it is in a newer one; what was handed out before needs no redelivery. Locked."""
        self.late = self.late if epoch <= self.epoch else {}
        self.epoch = max(self.epoch, epoch)
        self.redeliveries.forget_before(self.epoch)

    def wait(self, ticket: threading.Lock, deadline: float | None) -> bool:
        """Wait until there is news; return False when the deadline (monotonic seconds) has passed."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            self.news.wait(ticket, 0.0)
            return False
        self.news.wait(ticket, left)
        return True
