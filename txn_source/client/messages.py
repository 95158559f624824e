"""Messages as consumers get them, and what of a partition each of them acknowledges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.client.columns import METADATA_COLUMNS
from txn_source.metadata.consumer_link import Delivery
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.message_ranges import MessageRange, index_of, message_key, position_of
from txn_source.model.position import MessageId, Position
from txn_source.model.transaction import TxnId
from txn_source.storage.schema import RAW_SCHEMA

if TYPE_CHECKING:
    from txn_source.client.consumer import Consumer

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
    """Where messages come from: the subscription, the consumer that got them, and in which epoch."""

    consumer: Consumer
    topic: str
    payload: pa.Schema
    subscription_id: int
    consumer_id: int


class MessageBatch:
    """Messages of one partition that were delivered together, in order; what ``receive_batch`` returns.

    ``data`` has the payload columns and ``__ledger_id, __entry_id, __batch_index, __publish_time, __event_time,
    __properties, __txn_id``. It is acknowledged as a message is.
    """

    __slots__ = ("_cover", "_values", "data", "delivery", "origin", "partition")

    def __init__(self, origin: Origin, delivery: Delivery, partition: int, data: pa.RecordBatch, cover: _Cover) -> None:
        self.origin = origin
        self.delivery = delivery
        self.partition = partition
        self.data = data
        self._cover = cover
        self._values: list[Any] | None = None

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
        return self.origin.consumer

    @property
    def epoch(self) -> int:
        """The subscription's epoch in which they were delivered."""
        return self.delivery.epoch

    @property
    def values(self) -> list[Any]:
        """The value of each message."""
        if self._values is None:
            if self.origin.payload is RAW_SCHEMA:
                self._values = self.data.column("value").to_pylist()
            else:
                self._values = self.data.select(self.origin.payload.names).to_pylist()
        return self._values

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

    def tail(self, row: int) -> MessageBatch:
        """Return the messages from a row on."""
        c = self._cover
        cover = _Cover(c.start_positions[row:], c.start_indexes[row:], c.end_positions[row:], c.end_indexes[row:])
        return MessageBatch(self.origin, self.delivery, self.partition, self.data.slice(row), cover)

    def head(self, messages: int) -> MessageBatch:
        """Return so many messages from the start, all if there are fewer."""
        c = self._cover
        cover = _Cover(*(a[:messages] for a in (c.start_positions, c.start_indexes, c.end_positions, c.end_indexes)))
        return MessageBatch(self.origin, self.delivery, self.partition, self.data.slice(0, messages), cover)

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
        return self._batch.data.column(column)[self._row].as_py()

    def _time(self, column: str) -> datetime | None:
        micros = self._batch.data.column(column)[self._row].value
        return None if micros is None else _EPOCH + timedelta(microseconds=micros)


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
