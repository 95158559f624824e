"""Reading what a log that others wrote has now, as batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from txn_source.foreign.foreign_log import ForeignLog
from txn_source.foreign.reading.options import ForeignOptions
from txn_source.foreign.reading.plan import ForeignPlan, plan
from txn_source.foreign.reading.reader import PieceReader
from txn_source.foreign.reading.request import ForeignRequest, Point, Selection, Side
from txn_source.foreign.reading.source import topics_read
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import SchemaMismatchError
from txn_source.model.position import EARLIEST, MessageId, PositionRange


def schema_of(
    target: ForeignTarget,
    log: ForeignLog,
    selection: Selection,
    columns: Sequence[str] | None = None,
    given: ForeignOptions | None = None,
) -> pa.Schema:
    """Return the schema of a read: of some columns in that order, or of those that it has by itself and its options.

    Raises:
        TopicNotFoundError: as ``names_of``.
        SchemaMismatchError: a column that isn't there, or is asked for twice.
        InvalidArgumentError: no choice.
    """
    rules, options = target.rules, dict(target.options) if given is None else given.given
    every = rules.columns(log, topics_read(log, rules, selection), options)
    if columns is None:
        choice = "default" if given is None else given.metadata_columns
        columns = rules.default_columns(every, choice, options, several=selection.several)
    if not columns:
        raise SchemaMismatchError("No column is asked for.", f"Name one at least, such as {rules.cheapest}.")
    for name in columns:
        if name not in every.names:
            raise SchemaMismatchError(f"There is no column {name!r}.", f"There are {', '.join(every.names)}.")
    if len(set(columns)) < len(columns):
        raise SchemaMismatchError("A column is asked for twice.", "Name each once.")
    return pa.schema([every.field(name) for name in columns])


def scan(
    target: ForeignTarget,
    log: ForeignLog,
    selection: Selection,
    request: ForeignRequest,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatchReader:
    """Plan a read, and return what reads it, partition after partition."""
    schema = schema_of(target, log, selection, columns)
    planned = plan(log, target.rules, selection, request)
    reader = PieceReader(target, schema, request, log)
    pieces = (piece for task in planned.tasks for piece in task)
    return pa.RecordBatchReader.from_batches(schema, reader.read_ahead(pieces))


class Follower:
    """A place in a topic that moves on with each read; the log is looked at anew each time."""

    def __init__(
        self, target: ForeignTarget, selection: Selection, request: ForeignRequest, columns: Sequence[str] | None
    ) -> None:
        self._target = target
        self._selection = selection
        self._request = request
        self._columns = columns

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield what is there now and was not yielded before, partition after partition."""
        log = self._target.open()
        planned = plan(log, self._target.rules, self._selection, self._request)
        # What is new since then, also a partition, is read from its start.
        points = {name: _next(self._request.start.inside(name), reach) for name, reach in planned.ranges}
        self._request = replace(self._request, start=Side(EARLIEST, points))
        reader = PieceReader(
            self._target, schema_of(self._target, log, self._selection, self._columns), planned.request, log
        )
        yield from reader.read(piece for task in planned.tasks for piece in task)


def _next(begin: MessageId | None, reach: PositionRange) -> Point:
    """Return where to go on behind a range; a message at which it begins waits until its entry is read."""
    return begin if begin is not None and begin.position == reach.end else reach.end


def count(target: ForeignTarget, log: ForeignLog, planned: ForeignPlan) -> int:
    """Return how many rows a plan reads, without reading them where what is stored says it otherwise."""
    schema = pa.schema([target.rules.columns(log, (), dict(target.options)).field(target.rules.cheapest)])
    reader = PieceReader(target, schema, planned.request, log)
    return reader.count(piece for task in planned.tasks for piece in task)
