"""Reading a topic from where the last read stopped: what ``txnlog consume --follow`` repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from txn_source.client.log import Log
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.count import count
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import LATEST
from txn_source.model.read_priority import ReadPriority
from txn_source.reading.places import Side
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection


class Tail:
    """A place in a topic that moves on with each read. Where it stands is the next position to read, inclusive."""

    def __init__(
        self,
        log: Log,
        topic: str,
        level: IsolationLevel,
        start: Side,
        end: Side,
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
        source = resolve(self._log.metadata, Selection.of(self._topic))
        if all(self._start.points.get(p.name) == p.bounds.upper(self._level) for p in source.partitions):
            return  # the usual case while following: one call, and no plan
        request = ReadRequest(self._level, self._start, self._end, read_priority=self._read_priority)
        if expect is not None:
            expect(count(self._log.access, source, request))
        log = OwnLog(self._log.access)
        planned = plan(log, source, request)
        self._start = Side(LATEST, {name: reach.end for name, reach in planned.ranges})
        schema = select_columns(source.payload, self._columns or source.payload.names)
        yield from planned.reader(log, schema).read(planned.parts)
