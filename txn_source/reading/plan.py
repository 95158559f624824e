"""Planning a batch read: partitions, ranges, tasks.

1. Look: the bounds of all partitions, at one moment.
2. Range: each partition's ``[start, end)``, cut off at the isolation level's bound, and for read_committed lowered to
   a consistent cut over all partitions of the read, as far as the log tells its transactions apart.
3. Tasks: parts of about as many bytes as a task is to have.

A plan is pinned: its parts carry positions, and the plan carries the number of decisions, so that reading it again
gives the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from txn_source.model.errors import DataLossError, OutOfRangeError, TopicNotFoundError
from txn_source.model.position import PositionRange
from txn_source.reading.log_source import L, LogSource, Look, Rows, Task
from txn_source.reading.places import Name
from txn_source.reading.ranges import ranges_of, tell
from txn_source.reading.request import ReadRequest

T = TypeVar("T")
_log = logging.getLogger(__name__)
_LOOKS_MAX = 5
"""Looks at most for a plan that may leave lost messages out, if messages are trimmed while it is made."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The tasks of a read, and all that makes reading them repeatable."""

    tasks: Sequence[Task]
    ranges: Sequence[tuple[Name, PositionRange]]
    """The range of each partition."""
    request: ReadRequest
    """The request, without the sides that the ranges replace."""
    decisions: int
    look: Look
    """The look that the plan was made of."""

    @property
    def payload(self) -> pa.Schema:
        """The columns that all topics have, or all columns that a read can name."""
        return self.look.payload

    @property
    def parts(self) -> Task:
        """The parts of all tasks, in order."""
        return [part for task in self.tasks for part in task]

    def reader(self, source: LogSource[Any], columns: pa.Schema) -> Rows:
        """Return a reader of the tasks."""
        return source.read(columns, self.request, self.decisions)


def plan(source: LogSource[L], look: L, request: ReadRequest, told: Callable[[str | None], object] = tell) -> ReadPlan:
    """Return a plan that reads the partitions of a look as requested.

    ``told`` gets the promise that the cut can't keep, or None.

    Raises:
        DataLossError: messages of a range were trimmed, or a topic deleted, since the look.
            ``fail_on_data_loss=False`` leaves them out, with a warning.
        TopicNotFoundError: a topic was deleted since then, whatever ``fail_on_data_loss`` says.
        InvalidArgumentError, OutOfRangeError: as ``ranges_of``.
        SegmentUnreadableError: a file that bounds or aborted transactions follow from is damaged.
    """

    def make(look: L) -> ReadPlan:
        wanted = list(zip(look.partitions, ranges_of(source, look, request, told), strict=True))
        inside = {of.name: at for of, _ in wanted if (at := request.inside(of.name)) is not None}
        tasks = source.split(look, [(of, r) for of, r in wanted if not r.empty], request, inside=inside)
        ranges = [(of.name, reach) for of, reach in wanted]
        return ReadPlan(tasks, ranges, request.pinned(), look.decisions, look)

    return looked_at(source, look, request, make)


def looked_at(source: LogSource[L], look: L, request: ReadRequest, make: Callable[[L], T]) -> T:
    """Return the result of ``make``; look again if messages are gone and the request allows that."""
    for _ in range(0 if request.fail_on_data_loss else _LOOKS_MAX):
        try:
            return make(look)
        except (DataLossError, OutOfRangeError) as error:
            try:
                again = source.look(look)
            except TopicNotFoundError:
                again = look
            if again.partitions == look.partitions:
                raise
            _log.warning("the read is planned again: %s (failOnDataLoss=false)", error.fact)
            look = again
    return make(look)
