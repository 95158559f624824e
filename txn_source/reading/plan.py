"""Planning a read: which partitions, up to which bounds, in which tasks.

1. Look: the bounds of all partitions, at one moment.
2. Range: each partition's ``[start, end)``, cut off at the isolation level's bound, and for read_committed lowered to
   a consistent cut over all partitions of the read, as far as the log tells its transactions apart.
3. Tasks: parts of about as many bytes as a task is to have.

A plan is pinned: its parts carry positions, and it says how many decisions were made, so that whoever reads it, and
reads it again, gets the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from txn_source.model.errors import DataLossError, OutOfRangeError, TopicNotFoundError
from txn_source.model.position import PositionRange
from txn_source.model.values import dataclass
from txn_source.reading.log_source import L, LogSource, Look, Rows, Task
from txn_source.reading.places import Name
from txn_source.reading.ranges import tell, wanted_of
from txn_source.reading.request import ReadRequest

T = TypeVar("T")
_log = logging.getLogger(__name__)
_LOOKS_MAX = 5
"""How often a plan that may leave out what is gone looks again, if that has happened while it was made."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The tasks of a read, and what they need to be read the same way again."""

    tasks: Sequence[Task]
    ranges: Sequence[tuple[Name, PositionRange]]
    """What is read of each partition; those are left out of which it is nothing by the request's own ranges."""
    request: ReadRequest
    """As tasks need it."""
    decisions: int
    look: Look
    """What was planned with."""

    @property
    def payload(self) -> pa.Schema:
        """The columns that the topics have in common, or all that can be asked for."""
        return self.look.payload

    @property
    def parts(self) -> Task:
        """The parts of all tasks, in order."""
        return [part for task in self.tasks for part in task]

    def reader(self, source: LogSource[Any], columns: pa.Schema) -> Rows:
        """Return what reads the tasks of the log that was planned."""
        return source.read(columns, self.request, self.decisions)


def plan(source: LogSource[L], look: L, request: ReadRequest, told: Callable[[str | None], object] = tell) -> ReadPlan:
    """Return the tasks that read what was looked at as requested; ``told`` is given what the cut can't promise.

    Raises:
        DataLossError: what was to be read was trimmed, or its topic deleted, since it was looked at.
            ``fail_on_data_loss=False`` leaves it out, with a warning.
        TopicNotFoundError: a topic was deleted since then, whatever ``fail_on_data_loss`` says.
        InvalidArgumentError, OutOfRangeError: as ``ranges_of``.
        SegmentUnreadableError: what bounds or aborted transactions follow from is damaged.
    """

    def make(look: L) -> ReadPlan:
        wanted = wanted_of(source, look, request, told)
        inside = {of.name: at for of, _ in wanted if (at := request.inside(of.name)) is not None}
        tasks = source.split(look, [(of, r) for of, r in wanted if not r.empty], request, inside=inside)
        ranges = [(of.name, reach) for of, reach in wanted]
        return ReadPlan(tasks, ranges, request.pinned(), look.decisions, look)

    return looked_at(source, look, request, make)


def looked_at(source: LogSource[L], look: L, request: ReadRequest, make: Callable[[L], T]) -> T:
    """Return what is made of a look, taken again where the request doesn't mind that something is gone."""
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
