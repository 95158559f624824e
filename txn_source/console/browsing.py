"""Reading a few messages of a topic, forwards or backwards, with bounds on time and memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from txn_source.client.access import Access
from txn_source.client.reading.footers import TieredPlanning
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import ReadPartition, Source
from txn_source.console.message_rows import Found, Row, is_raw, schema_of
from txn_source.console.values import SHORT
from txn_source.metadata.store.entries_before import Before
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import index_of, message_key, position_of
from txn_source.model.position import Position, PositionRange
from txn_source.reading.request import ReadRequest

READ_MESSAGES = 200_000
READ_BYTES = 128 << 20
READ_S = 1.5
"""A request reads so many messages, so many bytes, or so long, then says how far it is."""
_PIECE_BYTES = 4 << 20
_SEARCHED_AT_ONCE = 5_000
_NEVER_SPLIT = 1 << 60


class Budget:
    """What a request may still read."""

    def __init__(self) -> None:
        self.messages = 0
        self._bytes = 0
        self._until: float | None = None
        self._most_messages, self._most_bytes = READ_MESSAGES, READ_BYTES

    def share(self, among: int) -> None:
        """Leave the first of so many readers, one after another, its part of what is left."""
        self._most_messages = self.messages + max(0, READ_MESSAGES - self.messages) // among
        self._most_bytes = self._bytes + max(0, READ_BYTES - self._bytes) // among

    def take(self, messages: int, of_bytes: int) -> None:
        """Count what was read. Time counts from the first rows on, since connecting to a store may take long."""
        if self._until is None:
            self._until = time.monotonic() + READ_S
        self.messages += messages
        self._bytes += of_bytes

    @property
    def spent(self) -> bool:
        """True if it is used up, or the share of who reads now."""
        over = self.messages >= self._most_messages or self._bytes >= self._most_bytes
        return over or (self._until is not None and time.monotonic() >= self._until)


class Key:
    """What is searched for: a raw topic's key, or, of a typed topic, a value of any column as text."""

    def __init__(self, data: bytes, text: str | None) -> None:
        """``text`` is None for bytes that are none."""
        self._data = data
        self._text = text

    def among(self, batch: pa.RecordBatch, payload: pa.Schema) -> pa.RecordBatch:
        """Return the rows that have the key."""
        if is_raw(payload):
            return batch.filter(self._same(batch.column("key"), self._data, pa.binary()))
        found = pa.nulls(batch.num_rows, pa.bool_())
        for field in payload:
            column = batch.column(field.name)
            if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
                found = pc.or_kleene(found, self._same(column, self._data, pa.large_binary()))
            elif self._text is not None and not pa.types.is_nested(field.type):
                found = pc.or_kleene(found, self._same(column, self._text, pa.large_string()))
        return batch.filter(found)

    @staticmethod
    def _same(column: pa.Array, value: bytes | str, kind: pa.DataType) -> pa.Array:
        return pc.equal(column.cast(kind), pa.scalar(value, kind))


class Browser:
    """Reads messages of a topic at a level, as the visitor whose access it is may.

    Places are ``message_key``. Each method returns rows, and the place that it has reached: fewer rows than were asked
    for may mean that the budget is spent.
    """

    def __init__(
        self,
        access: Access,
        entries_before: Callable[[int, int, int, int], Before | None],
        source: Source,
        level: IsolationLevel,
        most: int = SHORT,
    ) -> None:
        """``most``: so many characters, or bytes, of each value are shown."""
        self._access = access
        self._entries_before = entries_before
        self._source = source
        self.level = level
        self._most = most
        self._schema = schema_of(source.payload)
        self.budget = Budget()

    def bounds(self, of: ReadPartition) -> tuple[int, int]:
        """Return where a partition's messages begin, and end for the level (exclusive)."""
        bounds = of.view.bounds
        return message_key(bounds.log_start), message_key(bounds.upper(self.level))

    def at_time(self, of: Sequence[ReadPartition], time_us: int) -> dict[int, int]:
        """Return, by partition index, the place of the first message published at or after a time."""
        found = TieredPlanning(self._access).find_positions([part.view.partition_id for part in of], time_us)
        places = {}
        for part in of:
            at, end = found[part.view.partition_id], self.bounds(part)[1]
            places[part.view.index] = end if at is None else min(message_key(at), end)
        return places

    def forwards(self, of: ReadPartition, start: int, limit: int) -> tuple[list[Row], int]:
        """Return the first messages from a place on."""
        rows: list[Row] = []
        reached = start
        end = self.bounds(of)[1]
        for found in self._found(of, start, end, limit + index_of(start)):
            rows += self._rows(found.part(0, limit - len(rows)))
            reached = rows[-1].key + 1 if rows else reached
            if len(rows) >= limit or self.budget.spent:
                return rows, reached
        return rows, reached if self.budget.spent else end

    def backwards(self, of: ReadPartition, end: int, limit: int) -> tuple[list[Row], int]:
        """Return the last messages before a place, in the order of their positions."""
        low, high = self.bounds(of)
        end = min(end, high)
        rows: list[Row] = []
        at_once = limit
        while end > low and len(rows) < limit and not self.budget.spent:
            start = max(low, self._before(of, end, at_once))
            at_once *= 2  # of many that the level doesn't show
            last: deque[Row] = deque(maxlen=limit - len(rows))
            for found in self._found(of, start, end, None, whole=True):
                last.extend(self._rows(found.part(max(0, len(found) - limit), len(found))))
            rows = [*last, *rows]
            end = rows[0].key if len(rows) == limit else start
        return rows, end

    def search(self, of: ReadPartition, start: int, wanted: Key, limit: int) -> tuple[list[Row], int]:
        """Return the first messages with a key from a place on."""
        rows: list[Row] = []
        end = self.bounds(of)[1]
        for found in self._found(of, start, end, None):
            rows += self._rows(self._hits(found, wanted).part(0, limit - len(rows)))
            if len(rows) >= limit:
                return rows, rows[-1].key + 1
            if len(found):
                start = found.key(len(found) - 1) + 1
            if self.budget.spent:
                return rows, start
        return rows, start if self.budget.spent else end

    def search_backwards(self, of: ReadPartition, end: int, wanted: Key, limit: int) -> tuple[list[Row], int]:
        """Return the last messages with a key before a place, the last one first."""
        low, high = self.bounds(of)
        end = min(end, high)
        rows: list[Row] = []
        at_once = _SEARCHED_AT_ONCE
        while end > low and len(rows) < limit and not self.budget.spent:
            start = max(low, self._before(of, end, at_once))
            at_once *= 2
            last: deque[Row] = deque(maxlen=limit - len(rows))
            for found in self._found(of, start, end, None, whole=True):
                hits = self._hits(found, wanted)
                last.extend(self._rows(hits.part(max(0, len(hits) - limit), len(hits))))
            rows += reversed(last)
            end = rows[-1].key if len(rows) == limit else start
        return rows, end

    def _hits(self, found: Found, wanted: Key) -> Found:
        return Found(wanted.among(found.batch, self._source.payload))

    def _rows(self, found: Found) -> list[Row]:
        return found.rows(self._source.payload, self._most)

    def _before(self, of: ReadPartition, end: int, messages: int) -> int:
        """Return a place so many messages, or a piece of an object, before another one.

        What lies between them is read as a whole, so that nothing is left out when the budget is spent.
        """
        at = position_of(end).key + (1 if index_of(end) else 0)
        partition_id = of.view.partition_id
        found = self._entries_before(partition_id, at, messages, _PIECE_BYTES)
        if found is None:
            return 0
        start = Position.from_key(found.start)
        if found.is_ledger:
            whole = PositionRange(start, min(Position.from_key(at), Position(start.ledger_id + 1, 0)))
            start = TieredPlanning(self._access).split_range(partition_id, whole, _PIECE_BYTES)[-1].range.start
        return message_key(start)

    def _found(
        self, of: ReadPartition, start: int, end: int, limit: int | None, *, whole: bool = False
    ) -> Iterator[Found]:
        """Yield the messages in ``[start, end)``, until the budget is spent, or, ``whole``, all of them."""
        if self.budget.spent and not whole:
            return
        for batch in self._batches(of, start, end, limit):
            read = Found(batch)
            found = read.part(read.first_at(start), read.first_at(end))
            self.budget.take(len(found), batch.nbytes)
            yield found
            if self.budget.spent and not whole:
                return

    def _batches(self, of: ReadPartition, start: int, end: int, limit: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the entries of ``[start, end)``, whole entries."""
        stop = position_of(end).plus(1) if index_of(end) else position_of(end)
        bounds = of.view.bounds
        first = max(position_of(start), bounds.log_start)
        if first >= min(stop, bounds.upper(self.level)):
            return
        request = ReadRequest(
            self.level,
            consistent_cut=False,
            fail_on_data_loss=False,  # what goes meanwhile is missing in what is shown
            min_partitions=1,
            max_partition_bytes=_NEVER_SPLIT,
        )
        reach = PositionRange(first, min(stop, bounds.upper(self.level)))
        log = OwnLog(self._access)
        tasks = log.split(self._source, [(of, reach)], request)
        reading = replace(request, limit=_NEVER_SPLIT if limit is None else limit)  # so that nothing is read ahead
        reader = log.read(self._schema, reading, self._source.decisions)
        yield from reader.read(piece for task in tasks for piece in task)
