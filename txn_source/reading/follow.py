"""Reading topics again and again, each time from the last read's end, for ``txnlog consume --follow`` and readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Generic

import pyarrow as pa

from txn_source.model.position import EARLIEST, MessageId
from txn_source.reading.log_source import L, LogSource
from txn_source.reading.places import Name, Place, Side
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection


class Follower(Generic[L]):
    """A place in topics that moves on with each read.

    Args:
        source: the log.
        selection: its topics; partitions that are added later are read from their start.
        request: the start of the first read, and the end of each.
        columns: returns the columns of a read.
        count: returns the number of messages of a read in advance; None: the log can't tell.
    """

    def __init__(
        self,
        source: LogSource[L],
        selection: Selection,
        request: ReadRequest,
        columns: Callable[[L], pa.Schema],
        count: Callable[[L, ReadRequest], int] | None = None,
    ) -> None:
        self._source = source
        self._selection = selection
        self._request = request
        self._columns = columns
        self._count = count

    def read(self, expect: Callable[[int], object] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the messages that were not yielded before, partition after partition.

        ``expect`` gets their number first, if the log can tell it.
        """
        look, request = self._source.look(self._selection), self._request
        if all(request.start.points.get(p.name) == p.bounds.upper(request.isolation_level) for p in look.partitions):
            return  # the usual case while following: one look, and no plan
        if expect is not None and self._count is not None:
            expect(self._count(look, request))
        planned = plan(self._source, look, request)
        points: dict[Name, Place | str] = {}
        for name, reach in planned.ranges:
            begin = request.start.inside(name)
            # A start inside an entry is kept until the entry can be read.
            waits = isinstance(begin, MessageId) and begin.position == reach.end
            points[name] = begin if waits and begin is not None else reach.end
        self._request = replace(request, start=Side(EARLIEST, points))
        yield from planned.reader(self._source, self._columns(look)).read(planned.parts)
