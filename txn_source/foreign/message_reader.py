"""Messages of a log that others wrote, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any

import pyarrow as pa

from txn_source.model.door import guarded
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import MessageId
from txn_source.reading.follow import Follower

_POLL_S = 0.2
_NOT_PAYLOAD = ("topic", "partition", "offset", "timestamp", "timestampType", "headers", "key")


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """A message.

    ``message_id`` is Kafka's offset, or Pulsar's id; ``value`` bytes, or the columns of a typed one. ``headers`` are
    Kafka's, in order; ``properties`` Pulsar's, or the headers' last values as texts. ``publish_time`` is Kafka's
    timestamp.
    """

    topic: str
    partition: int
    message_id: int | MessageId
    key: Any
    value: Any
    publish_time: datetime | None
    event_time: datetime | None
    properties: dict[str, str]
    headers: tuple[tuple[str, bytes | None], ...]
    txn_id: str | None


@guarded(but=("__iter__",))
class ForeignReader:
    """Reads a topic from anywhere on, partition after partition; iterating yields messages without end.

    Nothing is kept of it anywhere. What is added while it reads comes when it looks again.
    """

    def __init__(self, topic: str, follow: Callable[[Any], Follower[Any]], start: Any) -> None:
        """Read from ``start`` on; ``follow`` makes a place in the topic."""
        self._topic = topic
        self._follow = follow
        self._rows = self._read(follow(start))
        self._next: ForeignMessage | None = None

    def __enter__(self) -> ForeignReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ForeignReader of {self._topic}>"

    def __iter__(self) -> Iterator[ForeignMessage]:
        while True:
            message = self.read_next()
            assert message is not None
            yield message

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    def read_next(self, timeout: float | None = None) -> ForeignMessage | None:
        """Return the next message, or None if none comes within so many seconds; None waits without end."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._next is None:
            self._next = next(self._rows)
            left = _POLL_S if until is None else until - time.monotonic()
            if self._next is None and left <= 0:
                return None
            if self._next is None:
                time.sleep(min(_POLL_S, left))
        message, self._next = self._next, None
        return message

    def has_message_available(self) -> bool:
        """True if there is a message to read now, as the level sees it."""
        if self._next is None:
            self._next = next(self._rows)
        return self._next is not None

    def seek(self, to: Any) -> None:
        """Go on elsewhere: whatever ``ReadOnlyLog.reader`` takes as its start."""
        self._rows, self._next = self._read(self._follow(to)), None

    def close(self) -> None:
        """Let go of what was read ahead; then nothing can be read any more."""
        self._rows, self._next = _closed(), None

    def _read(self, place: Follower[Any]) -> Iterator[ForeignMessage | None]:
        """Yield messages without end, and None each time that there is no more."""
        while True:
            for batch in place.read():
                yield from _messages(batch)
            yield None


def _closed() -> Iterator[ForeignMessage | None]:
    raise InvalidArgumentError("The reader is closed.", "Open another one.")
    yield None


def _messages(batch: pa.RecordBatch) -> Iterator[ForeignMessage]:
    for row in batch.to_pylist():
        headers = tuple((header["key"], header["value"]) for header in row.get("headers") or ())
        properties = {name: "" if value is None else value.decode(errors="replace") for name, value in headers}
        value = row.get("value")
        if "value" not in row:
            value = {n: v for n, v in row.items() if n not in _NOT_PAYLOAD and not n.startswith("__")}
        at: int | MessageId = row["offset"] if "offset" in row else _id(row)
        yield ForeignMessage(
            row["topic"] if "topic" in row else row["__topic"],
            row["partition"] if "partition" in row else row["__partition"],
            at,
            row.get("key"),
            value,
            row["timestamp"] if "timestamp" in row else row["__publish_time"],
            row.get("__event_time"),
            dict(row["__properties"] or ()) if "__properties" in row else properties,
            headers,
            row.get("__txn_id"),
        )


def _id(row: dict[str, Any]) -> MessageId:
    return MessageId(row["__ledger_id"], row["__entry_id"], max(row["__batch_index"], 0))
