"""Messages as consumers get them, and what of a partition each of them acknowledges."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.client.reading.columns import METADATA_COLUMNS
from txn_source.metadata.stub.consumer_stream import Delivery
from txn_source.model.errors import InvalidArgumentError, MessageUnreadableError
from txn_source.model.message_ranges import MessageRange, index_of, message_key, position_of
from txn_source.model.position import MessageId, Position
from txn_source.model.transaction import TxnId
from txn_source.storage.schema import RAW_SCHEMA

if TYPE_CHECKING:
    from txn_source.client.consuming.consumer import Consumer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEDGER_SHIFT = _INDEX_BITS = 32
_METADATA = (
    "__ledger_id",
    "__entry_id",
    "__batch_index",
    "__publish_time",
    "__event_time",
    "__properties",
    "__txn_id",
)
IntArray = npt.NDArray[np.int64]


def message_schema(payload: pa.Schema) -> pa.Schema:
    """Return the columns that messages are made of."""
    return pa.schema([*payload, *(METADATA_COLUMNS[name] for name in _METADATA)])


@dataclass(frozen=True, slots=True)
class Origin:
    """Where messages come from: the subscription, and the consumer that got them, which they don't keep alive."""

    consumer: weakref.ref[Consumer]
    topic: str
    payload: pa.Schema
    subscription_id: int
    consumer_id: int


class MessageBatch:
    """Messages of one partition that were delivered together, in order; what ``receive_batch`` returns.

    ``data`` has the payload columns and ``__ledger_id, __entry_id, __batch_index, __publish_time, __event_time,
    __properties, __txn_id``. It is acknowledged as a message is.
    """

    __slots__ = ("_cover", "_damaged", "_hidden", "_unsound", "_values", "data", "delivery", "origin", "partition")

    def __init__(self, origin: Origin, delivery: Delivery, partition: int, data: pa.RecordBatch, cover: _Cover) -> None:
        self.origin = origin
        self.delivery = delivery
        self.partition = partition
        self.data = data
        self._cover = cover
        self._values: list[Any] | None = None
        self._damaged: dict[int, str] | None = None
        self._unsound: dict[int, str] | None = None
        self._hidden: dict[int, str] = {}

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {self.topic}-partition-{self.partition}>"

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.origin.topic

    @property
    def consumer(self) -> Consumer:
        """Who received them."""
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
            self._values, self._hidden = _shown(data, self.damaged())
        bad = self._hidden
        return self._values[: min((row for row in bad if row >= start), default=len(self))] if bad else self._values

    def damaged(self) -> dict[int, str]:
        """Return the rows whose values have malformed buffers, with the reason: they point beyond what was stored."""
        if self._damaged is None:
            self._damaged = _damaged(self.data.select(self.origin.payload.names))
        return self._damaged

    def unsound(self) -> dict[int, str]:
        """Return the rows that Arrow can't have: those that are damaged, and those with malformed properties."""
        if self._unsound is None:
            properties = self.data.select(["__properties"])
            none = properties.column(0).null_count == len(self)
            self._unsound = self.damaged() if none else self.damaged() | _damaged(properties)
        return self._unsound

    def sound(self, start: int) -> int:
        """Return the first row from a row on that Arrow can't have, or how many rows there are."""
        bad = self.unsound()
        return min((row for row in bad if row >= start), default=len(self)) if bad else len(self)

    def unreadable(self, row: int) -> MessageUnreadableError:
        """Return the error for a row that can't be shown."""
        return UnreadableMessage(self, row, self.delivery.redeliveries).error()

    def ranges(self, rows: Sequence[int] | None = None) -> Iterator[MessageRange]:
        """Yield what rows (None: all) acknowledge, neighbours in one."""
        taken = np.arange(len(self)) if rows is None else np.unique(np.asarray(rows, np.int64))
        if not len(taken):
            return
        c = self._cover
        inner = (
            (np.diff(taken) == 1)
            & (c.end_positions[taken[:-1]] == c.start_positions[taken[1:]])
            & (c.end_indexes[taken[:-1]] == c.start_indexes[taken[1:]])
        )
        edges = np.concatenate(([0], np.flatnonzero(~inner) + 1, [len(taken)])).tolist()
        for first, last in pairwise(edges):
            yield MessageRange(self.start(int(taken[first])), self.end(int(taken[last - 1])), last - first)

    def head(self, messages: int) -> MessageBatch:
        """Return so many messages from the start, all if there are fewer."""
        return self.part(0, messages)

    def part(self, first: int, last: int) -> MessageBatch:
        """Return the messages of rows ``[first, last)``."""
        c = self._cover
        cover = _Cover(*(a[first:last] for a in (c.start_positions, c.start_indexes, c.end_positions, c.end_indexes)))
        return MessageBatch(self.origin, self.delivery, self.partition, self.data.slice(first, last - first), cover)

    def place(self, row: int) -> int:
        """Return a message's own place, ``message_key``."""
        ledger_id, entry_id, index = (self.data.column(name)[row].as_py() for name in _METADATA[:3])
        return message_key(Position(ledger_id, entry_id), index)

    def start(self, row: int) -> int:
        """Return where a message's range begins, ``message_key``, inclusive."""
        return int(self._cover.start_positions[row]) << _INDEX_BITS | int(self._cover.start_indexes[row])

    def end(self, row: int) -> int:
        """Return where a message's range ends, ``message_key``, exclusive."""
        return self._cover.end(row)


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
        """The key of a raw topic's message."""
        return self._cell("key") if self._batch.origin.payload is RAW_SCHEMA else None

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
            if column == "__properties":
                _check_memory(batch.data.column(column).slice(row, 1))
            return batch.data.column(column)[row].as_py()
        except (ValueError, OverflowError, LookupError, pa.ArrowException) as error:
            raise self._unreadable(f"Its {column} can't be shown: {_reason(error)}.") from error

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


def _shown(data: pa.Array | pa.RecordBatch, damaged: dict[int, str]) -> tuple[list[Any], dict[int, str]]:
    """Return the rows as Python has them, None for those that it can't have, and the reasons for these."""
    if not damaged:
        try:
            return data.to_pylist(), {}
        except (ValueError, OverflowError, LookupError, pa.ArrowException):
            pass
    values, hidden = [], dict(damaged)
    for row in range(len(data) if isinstance(data, pa.Array) else data.num_rows):
        value = None
        if row not in damaged:
            try:
                [value] = data.slice(row, 1).to_pylist()
            except (ValueError, OverflowError, LookupError, pa.ArrowException) as error:
                hidden[row] = _reason(error)
        values.append(value)
    return values, hidden


def _damaged(data: pa.RecordBatch) -> dict[int, str]:
    """Return the rows whose buffers are malformed, with the reason.

    Whether text is UTF-8 is no matter of its buffers: it shows when the text is made.
    """
    found: dict[int, str] = {}
    for name, column in zip(data.schema.names, data.columns, strict=True):
        try:
            _check_memory(column)
        except pa.ArrowException as whole:
            before = len(found)
            for row in range(len(column)):
                try:
                    _check_memory(column.slice(row, 1))
                except pa.ArrowException as error:
                    found.setdefault(row, f"column {name}: {_reason(error)}")
            if len(found) == before:  # the damage is in none of them alone
                found |= {row: f"column {name}: {_reason(whole)}" for row in range(len(column))}
    return found


def _check_memory(column: pa.Array) -> None:
    """Raise pyarrow's error if a column, which may be a slice, points beyond its data; other rows don't matter."""
    column.validate()
    kind = column.type
    if column.null_count == len(column):
        return
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            _check_memory(column.field(number))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = column.offsets.to_numpy()
        parts = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
        _check_offsets(offsets, len(parts[0]))
        for part in parts:
            _check_memory(part.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
    elif kind in _WITH_OFFSETS:
        _, ends, data = column.buffers()
        offsets = np.frombuffer(ends, _WITH_OFFSETS[kind])[column.offset : column.offset + len(column) + 1]
        _check_offsets(offsets, 0 if data is None else data.size)


def _check_offsets(offsets: npt.NDArray[np.signedinteger[Any]], size: int) -> None:
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise pa.ArrowInvalid(f"an offset lies beyond its data, which ends at {size}")


_WITH_OFFSETS = {pa.binary(): np.int32, pa.string(): np.int32, pa.large_binary(): np.int64, pa.large_string(): np.int64}


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".")


def rows_of(received: Message | MessageBatch) -> tuple[MessageBatch, range]:
    """Return the batch that a message lies in, or is, and the rows it stands for; anything else is refused."""
    if isinstance(received, Message):
        return received._batch, range(received._row, received._row + 1)
    if isinstance(received, MessageBatch):
        return received, range(len(received))
    raise InvalidArgumentError(
        f"{received!r:.120} is not a message that a consumer received.", "Give what receive or receive_batch returned."
    )


@dataclass(frozen=True, slots=True)
class _Cover:
    """The range of each message: from its own place to that of the next one that was wanted with it."""

    start_positions: IntArray
    start_indexes: IntArray
    end_positions: IntArray
    end_indexes: IntArray

    def end(self, row: int) -> int:
        """Return where a row's range ends, ``message_key``, exclusive."""
        return int(self.end_positions[row]) << _INDEX_BITS | int(self.end_indexes[row])


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
    wanted = list(delivery.wanted)
    begun = 0  # so many wanted ranges are done with
    carry: int | None = None  # where the last batch's part of the range under way ended
    for batch, following in _with_next(read):
        positions = (batch["__ledger_id"].to_numpy() << _LEDGER_SHIFT) + batch["__entry_id"].to_numpy()
        indexes = batch["__batch_index"].to_numpy().astype(np.int64)
        parts: list[tuple[int, int]] = []
        cover = _Cover(positions.copy(), indexes.copy(), np.empty_like(positions), np.empty_like(indexes))
        while begun < len(wanted):
            item = wanted[begun]
            low, high = (_rows_before(positions, indexes, key) for key in (carry or item.start, item.end))
            done = following is None or high < len(positions) or following >= item.end
            if low < high:
                _fill(cover, low, high, carry or item.start, item.end if done else None)
                parts.append((low, high))
                carry = cover.end(high - 1)
            elif done and carry is None:
                yield MessageRange(item.start, item.end)
            if not done:
                break
            begun, carry = begun + 1, None
        if parts:
            yield _picked(origin, delivery, partition, batch, cover, parts)
    for item in wanted[begun:]:
        yield MessageRange(carry or item.start, item.end)
        carry = None


def _with_next(read: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, int | None]]:
    """Yield each batch with the place of the first message after it."""
    last: pa.RecordBatch | None = None
    for batch in read:
        if not batch.num_rows:
            continue
        if last is not None:
            ledger_id, entry_id, index = (batch[name][0].as_py() for name in _METADATA[:3])
            yield last, message_key(Position(ledger_id, entry_id), index)
        last = batch
    if last is not None:
        yield last, None


def _rows_before(positions: IntArray, indexes: IntArray, key: int) -> int:
    position, index = position_of(key).key, index_of(key)
    first, last = (int(np.searchsorted(positions, position, side)) for side in ("left", "right"))
    return first + int(np.searchsorted(indexes[first:last], index))


def _fill(cover: _Cover, low: int, high: int, start: int, end: int | None) -> None:
    cover.end_positions[low : high - 1] = cover.start_positions[low + 1 : high]
    cover.end_indexes[low : high - 1] = cover.start_indexes[low + 1 : high]
    if end is None:
        end = (int(cover.start_positions[high - 1]) << _INDEX_BITS | int(cover.start_indexes[high - 1])) + 1
    cover.start_positions[low], cover.start_indexes[low] = position_of(start).key, index_of(start)
    cover.end_positions[high - 1], cover.end_indexes[high - 1] = position_of(end).key, index_of(end)


def _picked(
    origin: Origin,
    delivery: Delivery,
    partition: int,
    batch: pa.RecordBatch,
    cover: _Cover,
    parts: Sequence[tuple[int, int]],
) -> MessageBatch:
    if parts != [(0, batch.num_rows)]:
        rows = np.concatenate([np.arange(low, high) for low, high in parts])
        batch = batch.take(pa.array(rows))
        cover = _Cover(
            cover.start_positions[rows], cover.start_indexes[rows], cover.end_positions[rows], cover.end_indexes[rows]
        )
    return MessageBatch(origin, delivery, partition, batch, cover)
