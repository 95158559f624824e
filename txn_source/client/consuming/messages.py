"""Messages as consumers get them, and what of a partition each of them acknowledges."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa

from txn_source.client.consuming.batch_ranges import BatchRanges, place_of, wanted_messages
from txn_source.client.consuming.damage import damaged_rows, reason, shown_values
from txn_source.client.reading.columns import METADATA_COLUMNS
from txn_source.metadata.stub.conversation import Delivery
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.errors import InvalidArgumentError, MessageUnreadableError
from txn_source.model.message_ranges import MessageRange
from txn_source.model.position import MessageId
from txn_source.model.transaction import TxnId
from txn_source.model.units import format_count
from txn_source.storage.schema import KEY, RAW_SCHEMA
from txn_source.storage.untrusted import check_memory

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_METADATA = (
    "__ledger_id",
    "__entry_id",
    "__batch_index",
    "__publish_time",
    "__event_time",
    "__properties",
    "__txn_id",
)


def message_schema(payload: pa.Schema) -> pa.Schema:
    """Return the columns that messages are made of."""
    key = () if payload is RAW_SCHEMA else (KEY,)
    return pa.schema([*payload, *(METADATA_COLUMNS[name] for name in _METADATA), *key])


class Receiver(Protocol):
    """A consumer as its messages, and the transactions that acknowledge them, know it. Its users know ``Consumer``."""

    @property
    def _metadata(self) -> MetadataStub:
        """Its log."""

    def _expect(self, batch: MessageBatch, rows: Sequence[int], until: float) -> None:
        """Note rows that a transaction acknowledges; they are redelivered at its deadline (monotonic seconds)."""

    def _consumed(self, batches: Mapping[MessageBatch, list[int]]) -> list[Acknowledgement]:
        """Return what a commit has to tell the service of rows of batches that a transaction has acknowledged."""

    def _committed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        """Take notice of that commit."""

    def _not_consumed(self, batches: Mapping[MessageBatch, list[int]]) -> None:
        """Take notice of an abort instead: the messages come again."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where messages come from: the subscription, and the consumer that got them, which they don't keep alive.

    A consumer makes another one with each connection.
    """

    consumer: weakref.ref[Receiver]
    topic: str
    payload: pa.Schema
    subscription_id: int
    consumer_id: int


class MessageBatch:
    """Messages of one partition that were delivered together, in order; what ``receive_batch`` returns.

    ``data`` has the payload columns and ``__ledger_id, __entry_id, __batch_index, __publish_time, __event_time,
    __properties, __txn_id`` and, of a typed topic, ``__key``. It is acknowledged as a message is.
    """

    __slots__ = (
        "_damaged",
        "_hidden",
        "_ranges",
        "_unsound",
        "_values",
        "_whole",
        "acknowledged",
        "data",
        "delivery",
        "origin",
        "partition",
        "promised",
    )

    def __init__(
        self, origin: Origin, delivery: Delivery, partition: int, data: pa.RecordBatch, ranges: BatchRanges
    ) -> None:
        self.origin = origin
        self.delivery = delivery
        self.partition = partition
        self.data = data
        self._ranges = ranges
        self.acknowledged: Collection[int] = ()
        """Rows whose acknowledgements were sent, or are on their way."""
        self.promised: set[int] = set()
        """Rows that an open transaction acknowledges."""
        self._whole: tuple[MessageBatch, int] | None = None
        self._values: list[Any] | None = None
        self._damaged: dict[int, str] | None = None
        self._unsound: dict[int, str] | None = None
        self._hidden: dict[int, str] = {}

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def __repr__(self) -> str:
        return f"<{format_count(len(self), 'message')} of {self.topic}-partition-{self.partition}>"

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.origin.topic

    @property
    def consumer(self) -> Receiver:
        """The ``Consumer`` that received them.

        Raises:
            InvalidArgumentError: it was forgotten.
        """
        found = self.origin.consumer()
        if found is None:
            raise InvalidArgumentError(
                f"The consumer that received these messages of topic {self.topic!r} is gone: it was forgotten.",
                "Keep a consumer as long as its messages; they are delivered again to the next one.",
            )
        return found

    @property
    def epoch(self) -> int:
        """The subscription's epoch in which they were delivered."""
        return self.delivery.epoch

    @property
    def values(self) -> list[Any]:
        """The value of each message.

        Raises:
            MessageUnreadableError: one of them can't be shown; ``data`` has them as they are stored.
        """
        found = self.shown()
        if self._hidden:
            raise self.unreadable(min(self._hidden))
        return found

    def shown(self, start: int = 0) -> list[Any]:
        """Return values up to, exclusive, the first one from a row on that can't be shown; a row is its index."""
        if self._values is None:
            payload = self.origin.payload
            data = self.data.column("value") if payload is RAW_SCHEMA else self.data.select(payload.names)
            self._values, self._hidden = shown_values(data, self.damaged())
        bad = self._hidden
        return self._values[: min((row for row in bad if row >= start), default=len(self))] if bad else self._values

    def damaged(self) -> dict[int, str]:
        """Return the rows whose values have malformed buffers, with the reason: they point beyond what was stored."""
        if self._damaged is None:
            self._damaged = damaged_rows(self.data.select(self.origin.payload.names))
        return self._damaged

    def unsound(self) -> dict[int, str]:
        """Return the rows that Arrow can't have: those that are damaged, and those with malformed properties or key."""
        if self._unsound is None:
            self._unsound = dict(self.damaged())
            for name in {"__properties", KEY.name} & {*self.data.schema.names}:
                beside = self.data.select([name])
                if beside.column(0).null_count < len(self):
                    self._unsound |= damaged_rows(beside)
        return self._unsound

    def sound(self, start: int) -> int:
        """Return the first row from a row on that Arrow can't have, or how many rows there are."""
        bad = self.unsound()
        return min((row for row in bad if row >= start), default=len(self)) if bad else len(self)

    def unreadable(self, row: int) -> MessageUnreadableError:
        """Return the error for a row that can't be shown."""
        return UnreadableMessage(self, row, self.delivery.redeliveries).error()

    def ranges(self, rows: Sequence[int] | None = None) -> Iterator[MessageRange]:
        """Return what rows (None: all) acknowledge, neighbours in one, ascending."""
        return self._ranges.joined(rows)

    def settle(self, rows: Sequence[int]) -> None:
        """Note rows as ``acknowledged``."""
        if isinstance(self.acknowledged, set):
            self.acknowledged.update(rows)
        elif self.acknowledged or not isinstance(rows, range):
            self.acknowledged = {*self.acknowledged, *rows}
        else:
            self.acknowledged = rows
        if self._whole is not None:
            whole, first = self._whole
            whole.settle([first + row for row in rows])

    def head(self, messages: int) -> MessageBatch:
        """Return so many messages from the start, all if there are fewer."""
        return self.part(0, messages)

    def part(self, first: int, last: int) -> MessageBatch:
        """Return the messages of rows ``[first, last)``."""
        data = self.data.slice(first, last - first)
        part = MessageBatch(self.origin, self.delivery, self.partition, data, self._ranges.part(first, last))
        part._whole = self, first
        return part

    def key(self, row: int) -> tuple[int, int]:
        """Return the identity of a message in its topic: its partition's id, and its place."""
        return self.delivery.partition_id, self.place(row)

    def place(self, row: int) -> int:
        """Return a message's own place, ``message_key``."""
        return place_of(self.data, row)

    def start(self, row: int) -> int:
        """Return where a message's range begins, ``message_key``, inclusive."""
        return self._ranges.start(row)

    def end(self, row: int) -> int:
        """Return where a message's range ends, ``message_key``, exclusive."""
        return self._ranges.end(row)


class Message:
    """One message. Its attributes are made when they are asked for."""

    __slots__ = ("_batch", "_row", "redelivery_count", "value")

    def __init__(self, batch: MessageBatch, row: int, value: Any, redelivery_count: int) -> None:
        self._batch = batch
        self._row = row
        self.value = value
        """Bytes of a raw topic, a dict of columns of a typed one."""
        self.redelivery_count = redelivery_count
        """How often it was delivered before because it had to be delivered again."""

    def __repr__(self) -> str:
        return f"<Message {self.message_id} of {self.topic}-partition-{self.partition}>"

    @property
    def key(self) -> bytes | None:
        """The key that the producer gave."""
        key: bytes | None = self._cell("key" if self._batch.origin.payload is RAW_SCHEMA else KEY.name)
        return key

    @property
    def properties(self) -> dict[str, str]:
        """What the producer gave, text to text."""
        return dict(self._cell("__properties") or ())

    @property
    def event_time(self) -> datetime | None:
        """When it happened, as the producer said."""
        return self._time("__event_time")

    @property
    def publish_time(self) -> datetime:
        """When the log took it."""
        when = self._time("__publish_time")
        assert when is not None
        return when

    @property
    def message_id(self) -> MessageId:
        """Its place in the log."""
        return MessageId(self._cell("__ledger_id"), self._cell("__entry_id"), self._cell("__batch_index"))

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._batch.topic

    @property
    def partition(self) -> int:
        """The partition's index."""
        return self._batch.partition

    @property
    def txn_id(self) -> TxnId | None:
        """The transaction it belongs to; None for a plain message."""
        text = self._cell("__txn_id")
        return None if text is None else TxnId.parse(text)

    @property
    def epoch(self) -> int:
        """The subscription's epoch in which it was delivered."""
        return self._batch.epoch

    def _cell(self, column: str) -> Any:
        batch, row = self._batch, self._row
        try:
            if column in ("__properties", KEY.name):
                check_memory(batch.data.column(column).slice(row, 1))
            return batch.data.column(column)[row].as_py()
        except (ValueError, OverflowError, LookupError, pa.ArrowException) as error:
            raise self._unreadable(f"Its {column} can't be shown: {reason(error)}.") from error

    def _time(self, column: str) -> datetime | None:
        micros = self._batch.data.column(column)[self._row].value
        try:
            return None if micros is None else _EPOCH + timedelta(microseconds=micros)
        except OverflowError:
            raise self._unreadable(
                f"Its {column} is {micros} us after 1970, beyond Python's years 1 to 9999."
            ) from None

    def _unreadable(self, why: str) -> MessageUnreadableError:
        error = MessageUnreadableError(
            f"Message {self.message_id} of topic {self.topic!r}, partition {self.partition}, can't be shown. {why}",
            "The other messages can: acknowledge this one (the error's attribute message) to step over it.",
        )
        error.message_id, error.message = self.message_id, self
        return error


class UnreadableMessage(Message):
    """A message whose value can't be shown. Its other attributes can, as far as they are sound."""

    __slots__ = ()

    def __init__(self, batch: MessageBatch, row: int, redelivery_count: int) -> None:
        self._batch = batch
        self._row = row
        self.redelivery_count = redelivery_count

    @property
    def value(self) -> Any:
        """Raises the error."""
        raise self.error()

    def error(self) -> MessageUnreadableError:
        """Return the error that says why."""
        self._batch.shown()
        why = self._batch._hidden.get(self._row) or self._batch.unsound().get(self._row, "it is damaged")
        return self._unreadable(f"It is malformed: {why}.")


def rows_of(received: Message | MessageBatch) -> tuple[MessageBatch, range]:
    """Return the batch that a message lies in, or is, and the rows it stands for; anything else is refused."""
    if isinstance(received, Message):
        return received._batch, range(received._row, received._row + 1)
    if isinstance(received, MessageBatch):
        return received, range(len(received))
    raise InvalidArgumentError(
        f"{received!r:.120} is not a message that a consumer received.", "Give what receive or receive_batch returned."
    )


def batches_of(
    origin: Origin, delivery: Delivery, partition: int, read: Iterable[pa.RecordBatch]
) -> Iterator[MessageBatch | MessageRange]:
    """Yield the wanted messages of a delivery, and the wanted ranges in which none is visible.

    Args:
        origin: whose they are.
        delivery: what the service handed out.
        partition: the partition's index.
        read: the delivery's entries as they were read, in order.
    """
    for found in wanted_messages(delivery.wanted, read):
        yield found if isinstance(found, MessageRange) else MessageBatch(origin, delivery, partition, *found)
