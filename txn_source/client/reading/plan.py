"""Planning a read: which topics, up to which bounds, in which tasks.

1. View: the bounds of all partitions, read in one moment.
2. Range: each partition's ``[start, end)``, cut off at the isolation level's bound, and for read_committed lowered to
   a consistent cut over all partitions of the read.
3. Slices: the ledgers of each range, large ones cut at entries, packed into tasks by bytes.

A plan is pinned: it carries positions and the number of decisions made, so that whoever reads it, and reads it again,
gets the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.footers import TieredPlanning
from txn_source.client.reading.ranges import check_offsets, wanted_of
from txn_source.client.reading.request import ReadRequest
from txn_source.client.reading.skipping import of_partition
from txn_source.client.reading.source import ReadPartition, Source, look_again
from txn_source.client.reading.tasks import tasks_of
from txn_source.model.errors import DataLossError, OutOfRangeError
from txn_source.model.packing import Slice
from txn_source.model.position import PositionRange
from txn_source.model.values import dataclass
from txn_source.storage.object_root import ObjectRoot

if TYPE_CHECKING:
    from txn_source.client.reading.slice_reader import SliceReader

T = TypeVar("T")
_log = logging.getLogger(__name__)
_LOOKS_MAX = 5
"""How often a plan that may leave out what is gone looks again, if that has happened while it was made."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The tasks of a read, each a list of slices in order, and what they need to be read the same way again."""

    tasks: tuple[tuple[Slice, ...], ...]
    request: ReadRequest
    decisions: int
    payload: pa.Schema
    """Of the source that was planned."""

    def reader(self, access: Access, schema: pa.Schema) -> SliceReader:
        """Return what reads the tasks' slices, as batches of a schema."""
        from txn_source.client.reading.slice_reader import SliceReader  # a process that only plans needs none

        return SliceReader.of(access, schema, self.request, self.decisions)


def plan(access: Access, source: Source, request: ReadRequest) -> ReadPlan:
    """Return the tasks that read the source as requested.

    Raises:
        DataLossError: what was to be read was trimmed, or its topic deleted, since the source was looked at.
            ``fail_on_data_loss=False`` leaves it out, with a warning.
        TopicNotFoundError: a topic was deleted since then, whatever ``fail_on_data_loss`` says.
    """
    return looked_at(access, source, request, _plan)


def looked_at(
    access: Access, source: Source, request: ReadRequest, make: Callable[[Access, Source, ReadRequest], T]
) -> T:
    """Return what is made of a source, looked at again where the request doesn't mind that something is gone."""
    check_offsets(source, request)
    for _ in range(_LOOKS_MAX if not request.fail_on_data_loss else 0):
        try:
            return make(access, source, request)
        except (DataLossError, OutOfRangeError) as error:
            again = look_again(access.metadata, source)
            if again is None or again.partitions == source.partitions:
                raise
            _log.warning("the read is planned again: %s (failOnDataLoss=false)", error.fact)
            source = again
    return make(access, source, request)


def _plan(access: Access, source: Source, request: ReadRequest) -> ReadPlan:
    wanted = [
        (partition, reach)
        for partition, reach in wanted_of(access, source, request)
        if request.filters.keep(of_partition(partition.topic.short, partition.view.index))
    ]
    return plan_ranges(access, source, wanted, request)


def plan_ranges(
    access: Access,
    source: Source,
    wanted: Sequence[tuple[ReadPartition, PositionRange]],
    request: ReadRequest,
) -> ReadPlan:
    """Return the tasks that read ranges of partitions of a source."""
    in_step = isinstance(access.root, ObjectRoot)
    tasks = tasks_of(access.metadata, TieredPlanning(access), wanted, request, in_step=in_step)
    return ReadPlan(tuple(tuple(task) for task in tasks), request, source.decisions, source.payload)
