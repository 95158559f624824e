"""Messages of one partition and transaction that wait to be written, and how they become entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError
from txn_source.storage.schema import EVENT_TIME, PROPERTIES, RAW_SCHEMA, stored_schema

ENTRY_MAX_ROWS = 65_536
"""Spark's Python path is fastest with batches of about this many rows; a larger batch becomes several entries."""
ENTRY_MAX_BYTES = 16 << 20
_JOIN_BELOW_ROWS = 8_192
_ROW_OVERHEAD_BYTES = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Buffer:
    """Rows and batches in the order in which they were sent. Not thread-safe: its producer holds a lock."""

    __slots__ = (
        "_batches",
        "_event_times",
        "_keys",
        "_payload",
        "_properties",
        "_raw",
        "_values",
        "messages",
        "partition",
    )

    def __init__(self, payload: pa.Schema, partition: int) -> None:
        self.partition = partition
        self.messages = 0
        self._payload = payload
        self._raw = payload is RAW_SCHEMA
        self._batches: list[pa.RecordBatch] = []
        self._clear_rows()

    def add(self, value: Any, key: Any, properties: Any, event_time: Any) -> int:
        """Take one message and return about how many bytes it has; refuse one that doesn't fit before taking it."""
        if self._raw:
            if type(value) is not bytes:
                value = as_bytes("value", value)
            size = len(value) + _ROW_OVERHEAD_BYTES if value is not None else _ROW_OVERHEAD_BYTES
            if key is not None:
                if type(key) is not bytes:
                    key = as_bytes("key", key)
                size += len(key)
        else:
            value, size = self._typed(value)
        if event_time is not None:
            event_time = as_micros(event_time)
        if properties is not None:
            properties = as_properties(properties)
            size += sum(len(name) + len(text) for name, text in properties)
        self._values.append(value)
        self._keys.append(key)
        if event_time is not None or self._event_times:
            self._event_times.extend([None] * (len(self._values) - 1 - len(self._event_times)))
            self._event_times.append(event_time)
        if properties is not None or self._properties:
            self._properties.extend([None] * (len(self._values) - 1 - len(self._properties)))
            self._properties.append(properties)
        self.messages += 1
        return size

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch that was fitted to the topic's schema."""
        self._seal_rows()
        self._batches.extend(entry_sized(batch))
        self.messages += batch.num_rows

    def entries(self) -> Iterator[pa.RecordBatch]:
        """Return the batches to be written, each of them one entry: small neighbours joined, large ones cut."""
        self._seal_rows()
        group: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in self._batches:
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
        self._batches = []

    def _typed(self, value: Any) -> tuple[Any, int]:
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
        row = dict(value)
        size = _ROW_OVERHEAD_BYTES
        for field in self._payload:
            given = value.get(field.name)
            if given is None and not field.nullable:
                raise SchemaMismatchError(
                    f"Column {field.name!r} doesn't fit: expected {field.type} and no null, came none.",
                    "Give it a value.",
                )
            try:
                alone = pa.array([given], field.type)
                scalar = alone[0]
                _check_nested(given, field.type)
                if _exact(field.type) and scalar.as_py() != given:
                    raise ValueError("Arrow would cut it off")
                size += len(given) if isinstance(given, str | bytes) else 8
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                came = f"{type(given).__name__} {given!r:.80}"
                raise SchemaMismatchError(
                    f"Column {field.name!r} doesn't fit: expected {field.type}, came {came}.",
                    "Convert it before you send it.",
                ) from None
            if given is not None and pa.types.is_nested(field.type):
                row[field.name] = alone  # lists and dicts can change before they are written
        return row, size

    def _seal_rows(self) -> None:
        if not self._values:
            return
        event_time, properties = bool(self._event_times), bool(self._properties)
        schema = stored_schema(self._payload, event_time=event_time, properties=properties)
        if self._raw:
            columns = [_binary(self._keys), _binary(self._values)]
        else:
            columns = [self._column(field) for field in self._payload]
        if event_time:
            columns.append(pa.array(self._event_times, EVENT_TIME.type))
        if properties:
            columns.append(pa.array(self._properties, PROPERTIES.type))
        self._batches.extend(entry_sized(pa.RecordBatch.from_arrays(columns, schema=schema)))
        self._clear_rows()

    def _column(self, field: pa.Field) -> pa.Array:
        values = [row.get(field.name) for row in self._values]
        if not pa.types.is_nested(field.type):
            return pa.array(values, field.type)
        null = pa.array([None], field.type)
        return pa.concat_arrays([null if value is None else value for value in values])

    def _clear_rows(self) -> None:
        self._values: list[Any] = []
        self._keys: list[Any] = []
        self._event_times: list[int | None] = []
        self._properties: list[list[tuple[str, str]] | None] = []


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
        "Encode it first, or give the topic a schema.",
    )


def as_micros(event_time: Any) -> int:
    """Return an event time in microseconds since the epoch."""
    if isinstance(event_time, datetime) and event_time.tzinfo is not None:
        return (event_time - _EPOCH) // timedelta(microseconds=1)  # exact; a float of seconds is not
    if isinstance(event_time, int) and not isinstance(event_time, bool) and abs(event_time) < 1 << 53:
        return event_time * 1000
    raise InvalidArgumentError(
        f"{event_time!r} is not an event time.", "Use a datetime with a time zone, or milliseconds since the epoch."
    )


def as_properties(properties: Any) -> list[tuple[str, str]]:
    """Return a message's properties as pairs of text."""
    if isinstance(properties, Mapping):
        pairs = list(properties.items())
        if all(isinstance(text, str) and _encodes(text) for pair in pairs for text in pair):
            return pairs
    raise InvalidArgumentError(f"{properties!r:.80} are not properties.", "Use a dict of str to str.")


def _check_nested(given: Any, t: pa.DataType) -> None:
    """Raise ValueError where Arrow would bend a value inside a list, struct or map without a word."""
    if given is None or not pa.types.is_nested(t):
        return
    parts: list[tuple[Any, pa.DataType]]
    if pa.types.is_struct(t):
        fields = dict(given)
        if not fields.keys() <= {field.name for field in t}:
            raise ValueError("a field that the struct doesn't have")
        parts = [(fields.get(field.name), field.type) for field in t]
    elif pa.types.is_map(t):
        pairs = list(given.items()) if isinstance(given, Mapping) else list(given)
        parts = [(k, t.key_type) for k, _ in pairs] + [(v, t.item_type) for _, v in pairs]
    else:
        if isinstance(given, str | bytes):
            raise ValueError("one text for a list of them")
        parts = [(item, t.value_type) for item in given]
    for value, part in parts:
        scalar = pa.scalar(value, part)
        if _exact(part) and scalar.as_py() != value:
            raise ValueError("Arrow would cut it off")
        _check_nested(value, part)


def _exact(wanted: pa.DataType) -> bool:
    """Return whether Arrow would quietly cut off what doesn't fit the type: 1.5 to 1, a moment to its day."""
    return bool(pa.types.is_integer(wanted) or pa.types.is_date(wanted))


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _binary(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.binary())


def entry_sized(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return a batch in pieces that may each be an entry; none of an empty one."""
    rows = ENTRY_MAX_ROWS
    if batch.nbytes > ENTRY_MAX_BYTES:
        rows = max(1, min(rows, batch.num_rows * ENTRY_MAX_BYTES // batch.nbytes))
    if batch.num_rows <= rows:
        return [batch] if batch.num_rows else []
    # A piece has that size on average only; those that are still too large are cut again.
    return [piece for start in range(0, batch.num_rows, rows) for piece in entry_sized(batch.slice(start, rows))]
