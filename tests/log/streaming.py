"""Reading streams as Spark does: offsets travel as JSON text, and a batch is what lies between two of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from txn_source import IsolationLevel, Log, Producer
from txn_source.client.places import parse_side
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.own_log import DESCRIPTION, OwnLog
from txn_source.client.streaming.own_guard import own_stream
from txn_source.model.position import LATEST
from txn_source.reading.limits import StreamLimits
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream import Stream
from txn_source.reading.stream_offset import StreamOffset

Row = dict[str, Any]
COLUMNS = ("__topic", "__partition", "__ledger_id", "__entry_id", "__batch_index", "__txn_id", "__txn_status", "value")


def stream_of(
    log: Log,
    topics: Sequence[str] | str = "t",
    *,
    pattern: str | None = None,
    start: Any = "earliest",
    level: str = "read_committed",
    clock: Callable[[], float] = lambda: 0.0,
    limits: StreamLimits | None = None,
    **request: Any,
) -> Stream[Any]:
    """Open a stream; ``start`` is what ``startingOffsets`` means, or a datetime."""
    selection = Selection(pattern=pattern) if pattern is not None else Selection.of(topics)
    asked = ReadRequest(IsolationLevel.parse(level), parse_side(start, LATEST), **request)
    return own_stream(log.access, selection, asked, limits or StreamLimits(), clock)


def as_text(offset: StreamOffset) -> str:
    """Write an offset as a checkpoint holds it."""
    return json.dumps(DESCRIPTION.offsets.to_json(offset))


def reread(offset: StreamOffset) -> StreamOffset:
    """Return an offset after a way through a checkpoint."""
    return DESCRIPTION.offsets.from_json(json.loads(as_text(offset)))


def rows_between(log: Log, stream: Stream[Any], start: StreamOffset, end: StreamOffset) -> list[Row]:
    """Read one batch, in the order of topic, partition and position."""
    planned = stream.plan(reread(start), reread(end))
    if not planned.tasks:
        return []
    schema = select_columns(planned.payload, COLUMNS)
    reader = planned.reader(OwnLog(log.access), schema)
    found = [row for batch in reader.read(planned.parts) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: [row[name] for name in COLUMNS[:5]])


class Follower:
    """A query: it goes from batch to batch, and can begin again from what its checkpoint holds."""

    def __init__(self, log: Log, stream: Stream[Any]) -> None:
        self.log = log
        self.stream = stream
        self.at = stream.initial()
        self.batches: list[tuple[StreamOffset, StreamOffset, list[Row]]] = []

    def next(self) -> list[Row] | None:
        """Read the next batch; None if there is nothing to read yet."""
        start = reread(self.at)
        end = self.stream.latest(start)
        if end is start:
            return None
        rows = rows_between(self.log, self.stream, start, end)
        self.batches.append((start, end, rows))
        self.at = reread(end)
        return rows

    def values(self) -> list[bytes] | None:
        """Read the next batch's values."""
        rows = self.next()
        return None if rows is None else [row["value"] for row in rows]

    def drain(self, most: int = 1000) -> Iterator[list[Row]]:
        """Read batches until there is nothing more to read; fail if there are too many of them."""
        for _ in range(most):
            rows = self.next()
            if rows is None:
                return
            yield rows
        raise AssertionError(f"after {most} batches there is still something to read")

    def all_values(self) -> list[bytes]:
        """Read everything that is left."""
        return [row["value"] for rows in self.drain() for row in rows]

    def replay(self, stream: Stream[Any] | None = None) -> None:
        """Read every batch again, with another stream if one is given: the rows must be those of the first time."""
        for start, end, rows in self.batches:
            assert rows_between(self.log, stream or self.stream, start, end) == rows


def transfer(log: Log, producer: Producer, name: str, partitions: Sequence[int] = (0, 1)) -> None:
    """Commit a transaction with an entry on each partition."""
    with log.begin_transaction() as transaction:
        for partition in partitions:
            producer.send(name, partition=partition, txn=transaction)


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    """Return values that differ."""
    return [f"{prefix}{number}".encode() for number in range(count)]
