"""Reading a topic from where the last read stopped: what ``txnlog consume --follow`` repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from txn_source.client.log import Log
from txn_source.client.places import Offsets
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.count import count
from txn_source.client.reading.plan import ReadPlan, plan
from txn_source.client.reading.request import ReadRequest
from txn_source.client.reading.source import ReadPartition, resolve
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST, Position
from txn_source.model.read_priority import ReadPriority
from txn_source.model.topic_name import TopicName


class Tail:
    """A place in a topic that moves on with each read. Where it stands is the next position to read, inclusive."""

    def __init__(
        self,
        log: Log,
        topic: str,
        level: IsolationLevel,
        start: Offsets,
        end: Offsets,
        columns: Sequence[str] | None = None,
        read_priority: ReadPriority | None = None,
    ) -> None:
        """Stand at ``start``; every read stops at ``end``, exclusive.

        Columns: None for the whole payload. Read priority: None for the topic's own.
        """
        self._log = log
        self._topic = topic
        self._level = level
        self._start = start
        self._end = end
        self._columns = columns
        self._read_priority = read_priority

    def read(self, expect: Callable[[int], object] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield what is there now and was not yielded before, partition after partition.

        ``expect`` is told first how many messages that are.
        """
        source = resolve(self._log.metadata, [self._topic])
        if all(self._start.positions.get((p.topic, p.view.index)) == self._bound(p) for p in source.partitions):
            return  # the usual case while following: one call, and no plan
        request = ReadRequest(self._level, self._start, self._end, read_priority=self._read_priority)
        if expect is not None:
            expect(count(self._log.access, source, request))
        planned = plan(self._log.access, source, request)
        self._start = Offsets(LATEST, self._reached(source.partitions, planned))
        schema = select_columns(source.payload, self._columns or source.payload.names)
        reader = planned.reader(self._log.access, schema)
        yield from reader.read(piece for task in planned.tasks for piece in task)

    def _reached(
        self, partitions: Sequence[ReadPartition], planned: ReadPlan
    ) -> Mapping[tuple[TopicName, int], Position]:
        """Return where the plan ends on each partition; where it reads nothing, that is where it began."""
        ends: dict[int, Position] = {}
        for piece in (piece for task in planned.tasks for piece in task):
            ends[piece.partition_id] = max(piece.range.end, ends.get(piece.partition_id, piece.range.end))
        return {(p.topic, p.view.index): ends.get(p.view.partition_id) or self._began(p) for p in partitions}

    def _began(self, partition: ReadPartition) -> Position:
        default: Position | str = LATEST if self._start.publish_time_us is not None else self._start.default
        at = self._start.bare or self._start.positions.get((partition.topic, partition.view.index), default)
        if isinstance(at, Position):
            return at
        return partition.view.bounds.log_start if at == EARLIEST else self._bound(partition)

    def _bound(self, partition: ReadPartition) -> Position:
        return partition.view.bounds.upper(self._level)
