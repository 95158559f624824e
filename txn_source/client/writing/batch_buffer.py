"""Messages of one partition and transaction that wait to be written, and how they become entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa

from txn_source.client.writing.values import TypedColumn
from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError, TxnLogError
from txn_source.storage import schema
from txn_source.storage.arrays import binary_of
from txn_source.storage.schema import EVENT_TIME, KEY, PROPERTIES, RAW_SCHEMA
from txn_source.storage.soundness import FIRST_MICROS, LAST_MICROS

ENTRY_MAX_ROWS = 65_536
"""Spark's Python path is fastest with batches of about this many rows; a larger batch becomes several entries."""
ENTRY_MAX_BYTES = 16 << 20
_JOIN_BELOW_ROWS = 8_192
_ROW_OVERHEAD_BYTES = 16
_SMALL_BYTES = 4096
_CELLS = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Buffer:
    """Rows and batches in the order in which they were sent. Not thread-safe: its producer holds a lock.

    Whatever interrupts a call, it took its messages or it did not: each has one step that counts.
    """

    __slots__ = ("_batches", "_cells", "_columns", "_large_bytes", "_payload", "_raw", "_written", "partition")

    def __init__(self, payload: pa.Schema, partition: int) -> None:
        self.partition = partition
        self._payload = payload
        self._raw = payload is RAW_SCHEMA
        self._columns = () if self._raw else _columns(payload)
        self._batches: list[tuple[int, pa.RecordBatch]] = []
        """With each: how many messages the buffer has up to it, and with it."""
        self._cells: list[Any] = []
        """Value, key, event time and properties of each message, one message after the other."""
        self._large_bytes = 0
        self._written = 0

    @property
    def messages(self) -> int:
        """How many messages it has taken."""
        return self._batched + len(self._cells) // _CELLS

    @property
    def _batched(self) -> int:
        return self._batches[-1][0] if self._batches else self._written

    def add(self, value: Any, key: Any, properties: Any, event_time: Any) -> int:
        """Take one message and return about how many bytes it has; refuse one that doesn't fit before taking it."""
        try:
            if self._raw:
                if type(value) is not bytes:
                    value = as_bytes("value", value)
                size = len(value) + _ROW_OVERHEAD_BYTES if value is not None else _ROW_OVERHEAD_BYTES
            else:
                value, size = self._typed(value)
            if key is not None:
                if type(key) is not bytes:
                    key = as_bytes("key", key)
                size += len(key)
            if event_time is not None:
                event_time = as_micros(event_time)
            if properties is not None:
                properties = as_properties(properties)
                size += sum(len(name.encode()) + len(text.encode()) for name, text in properties)
        except (TxnLogError, MemoryError):
            raise
        except Exception as error:  # what was given has methods of its own, which may raise anything
            raise SchemaMismatchError(
                f"The message can't be taken: {type(error).__name__}: {error}.", "Send bytes, or plain values."
            ) from error
        if size > _SMALL_BYTES:
            if size > schema.MESSAGE_MAX_BYTES:
                raise schema.too_large(size)
            if self._large_bytes + size > ENTRY_MAX_BYTES:
                self._seal_rows()
            self._large_bytes += size
        self._cells.extend((value, key, event_time, properties))
        return size

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch that was fitted to the topic's schema."""
        pieces = entry_sized(batch)
        self._seal_rows()
        self._batches.extend(self._counted(pieces))

    def entries(self) -> Iterator[pa.RecordBatch]:
        """Return the batches to be written, each of them one entry: small neighbours joined, large ones cut."""
        self._seal_rows()
        group: list[pa.RecordBatch] = []
        rows = size = 0
        for _, batch in self._batches:
            joins = (
                group
                and batch.num_rows < _JOIN_BELOW_ROWS
                and rows < _JOIN_BELOW_ROWS
                and size + batch.nbytes <= ENTRY_MAX_BYTES
                and batch.schema.equals(group[0].schema)
            )
            if group and not joins:
                yield pa.concat_batches(group) if len(group) > 1 else group[0]
                group, rows, size = [], 0, 0
            group.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        if group:
            yield pa.concat_batches(group) if len(group) > 1 else group[0]

    def clear(self) -> None:
        """Let go of the messages, which are written; their number stays."""
        self._written, self._batches, self._cells, self._large_bytes = self.messages, [], [], 0

    def _typed(self, value: Any) -> tuple[list[Any], int]:
        if not isinstance(value, Mapping):
            raise SchemaMismatchError(
                f"The message is a {type(value).__name__}, and the topic has typed columns.",
                f"Send a dict with the columns {', '.join(self._payload.names)}.",
            )
        for name in value:
            if name not in self._payload.names:
                raise SchemaMismatchError(
                    f"The message has a column {name!r}, which the topic doesn't have.",
                    f"The topic's columns are {', '.join(self._payload.names)}.",
                )
        row: list[Any] = []
        size = _ROW_OVERHEAD_BYTES
        for column in self._columns:
            kept, bytes_of_it = column.take(value.get(column.name))
            row.append(kept)
            size += bytes_of_it
        return row, size

    def _seal_rows(self) -> None:
        """Make batches of the rows."""
        if not self._cells:
            return
        step = ENTRY_MAX_ROWS * _CELLS  # so many small messages and a few large ones: below Arrow's 2 GiB for a column
        cells = [self._cells[start : start + step] for start in range(0, len(self._cells), step)]
        sealed = [piece for part in cells for piece in entry_sized(self._batch(part))]
        self._batches, self._cells, self._large_bytes = [*self._batches, *self._counted(sealed)], [], 0

    def _counted(self, batches: Sequence[pa.RecordBatch]) -> list[tuple[int, pa.RecordBatch]]:
        counts = accumulate((int(batch.num_rows) for batch in batches), initial=self._batched)
        return list(zip(islice(counts, 1, None), batches, strict=True))

    def _batch(self, cells: list[Any]) -> pa.RecordBatch:
        values, keys, times, properties = (cells[cell::_CELLS] for cell in range(_CELLS))
        if self._raw:
            columns = [binary_of(keys), binary_of(values)]
        else:
            columns = [c.array(list(cells)) for c, cells in zip(self._columns, zip(*values, strict=True), strict=True)]
        fields = list(self._payload)
        beside = ((EVENT_TIME, times), (PROPERTIES, properties), (KEY, [] if self._raw else keys))
        for field, column in beside:
            if column.count(None) < len(column):
                fields.append(field)
                columns.append(pa.array(column, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@lru_cache(maxsize=64)
def _columns(payload: pa.Schema) -> tuple[TypedColumn, ...]:
    return tuple(TypedColumn.of(field) for field in payload)


def as_bytes(what: str, value: Any) -> bytes | None:
    """Return a raw message's key or value as bytes; text is encoded as UTF-8."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SchemaMismatchError(f"The {what} doesn't fit: {error}.", "Send bytes, or valid text.") from None
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise SchemaMismatchError(
        f"The {what} doesn't fit: expected bytes or str, came {type(value).__name__}.",
        "Encode it first." if what == "key" else "Encode it first, or give the topic a schema.",
    )


def as_micros(event_time: Any) -> int:
    """Return an event time in microseconds since the epoch."""
    if isinstance(event_time, datetime) and event_time.tzinfo is not None:
        micros = (event_time - _EPOCH) // timedelta(microseconds=1)  # exact; a float of seconds is not
    elif isinstance(event_time, int) and not isinstance(event_time, bool):
        micros = event_time * 1000
    else:
        raise InvalidArgumentError(
            f"{event_time!r:.80} is not an event time.",
            "Use a datetime with a time zone, or milliseconds since the epoch.",
        )
    if getattr(event_time, "nanosecond", 0):  # pandas has them
        raise InvalidArgumentError(
            f"The event time {event_time!r:.80} is finer than a microsecond.", "Round it before you send it."
        )
    if not FIRST_MICROS <= micros <= LAST_MICROS:
        raise InvalidArgumentError(
            f"The event time {event_time!r:.80} is outside of the years 1 to 9999 (UTC).",
            "Give one that Python can show.",
        )
    return micros


def as_properties(properties: Any) -> list[tuple[str, str]]:
    """Return a message's properties as pairs of text."""
    if isinstance(properties, Mapping):
        pairs = list(properties.items())
        if all(isinstance(text, str) and _encodes(text) for pair in pairs for text in pair):
            return pairs
    raise InvalidArgumentError(f"{properties!r:.80} are not properties.", "Use a dict of str to str.")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def entry_sized(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return a batch in pieces that may each be an entry; none of an empty one."""
    rows = ENTRY_MAX_ROWS
    if batch.nbytes > ENTRY_MAX_BYTES:
        rows = max(1, min(rows, batch.num_rows * ENTRY_MAX_BYTES // batch.nbytes))
    if batch.num_rows <= rows:
        return [batch] if batch.num_rows else []
    # A piece has that size on average only; those that are still too large are cut again.
    return [piece for start in range(0, batch.num_rows, rows) for piece in entry_sized(batch.slice(start, rows))]
