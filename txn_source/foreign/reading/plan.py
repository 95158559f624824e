"""Planning a read of a log that others wrote.

1. Bounds of all partitions, as the storage shows them.
2. Range of each: offsets and times to positions, cut off at the level's bound, at read_committed lowered to a cut.
3. Units of about as many bytes as a task is to have, packed into tasks.

A plan is pinned: a task carries its ranges and the decisions that they need, so that it yields the same rows again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from txn_source.foreign.foreign_log import Decisions, ForeignLog, PartitionName, ReadUnit
from txn_source.foreign.formats import Format
from txn_source.foreign.reading.cut import lowered_to_cut, tell
from txn_source.foreign.reading.ranges import label, ranges_of
from txn_source.foreign.reading.request import ForeignRequest, Selection
from txn_source.foreign.reading.source import SourcePartition, look_at, names_of
from txn_source.model.errors import DataLossError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.packing import OPENING_COST_BYTES
from txn_source.model.position import PositionRange
from txn_source.model.values import dataclass

_log = logging.getLogger(__name__)
_SMALLEST_TASK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A unit of a partition, and what a read of it needs to know; picklable."""

    name: PartitionName
    identity: str | None
    unit: ReadUnit
    decisions: Decisions


@dataclass(frozen=True, slots=True)
class ForeignPlan:
    """The tasks of a read, in the order of partitions and positions."""

    tasks: tuple[tuple[Piece, ...], ...]
    ranges: tuple[tuple[PartitionName, PositionRange], ...]
    request: ForeignRequest


def plan(log: ForeignLog, rules: Format, selection: Selection, request: ForeignRequest) -> ForeignPlan:
    """Return the tasks that read a selection as requested.

    Raises:
        TopicNotFoundError, InvalidArgumentError, OutOfRangeError: as ``names_of`` and ``ranges_of``.
        DataLossError: what is to be read is gone. ``fail_on_data_loss=False`` leaves it out, with a warning.
        SegmentUnreadableError: what the bounds or the aborted transactions follow from is damaged.
    """
    return plan_ranges(ends_of(log, rules, selection, request), request)


def ends_of(
    log: ForeignLog, rules: Format, selection: Selection, request: ForeignRequest
) -> list[tuple[SourcePartition, PositionRange]]:
    """Return the range of each partition of a selection, as far as it is read."""
    partitions = look_at(log, names_of(log, rules, selection))
    ranges = ranges_of(rules, partitions, request)
    if request.consistent_cut and request.isolation_level is IsolationLevel.READ_COMMITTED:
        ranges, untold = lowered_to_cut(partitions, ranges)
        tell(untold)
    return list(zip(partitions, ranges, strict=True))


def plan_ranges(
    wanted: Sequence[tuple[SourcePartition, PositionRange]], request: ForeignRequest, *, as_of_ends: bool = False
) -> ForeignPlan:
    """Return the tasks that read ranges of partitions, which lie below the level's bound.

    With ``as_of_ends`` transactions have the status that they had when the log ended where the ranges do.
    """
    ranges = tuple((of.name, reach) for of, reach in wanted)
    wanted = [(of, reach) for of, reach in wanted if not reach.empty]
    units = [(of, _units(of, reach, request.max_partition_bytes, request)) for of, reach in wanted]
    opening = 0 if request.min_partitions else OPENING_COST_BYTES
    total = sum(unit.bytes + opening for _, found in units for unit in found)
    smallest = 1 if request.min_partitions else _SMALLEST_TASK_BYTES
    tasks = request.min_partitions or os.cpu_count() or 1
    target = max(1, min(request.max_partition_bytes, max(smallest, -(-total // tasks))))
    if target < request.max_partition_bytes:
        units = [(of, _units(of, reach, target, request)) for of, reach in wanted]
    pieces: list[tuple[Piece, int]] = []
    for (of, reach), (_, found) in zip(wanted, units, strict=True):
        decided = of.partition.decisions(reach, reach.end if as_of_ends else None)
        pieces += [
            (Piece(of.name, of.partition.identity, unit, decided.needed(unit.of)), unit.bytes + opening)
            for unit in found
        ]
    return ForeignPlan(_packed(pieces, target), ranges, request)


def _units(of: SourcePartition, reach: PositionRange, unit_bytes: int, request: ForeignRequest) -> list[ReadUnit]:
    """Return the units of a range, without what is gone if the request doesn't mind."""
    try:
        return of.partition.units(reach, unit_bytes)
    except DataLossError as error:
        lost: PositionRange | None = error.lost
        if request.fail_on_data_loss or lost is None or lost.empty:
            raise
        _log.warning("%s: %s (failOnDataLoss=false)", label(of.name), error.fact)
        before = PositionRange(reach.start, max(reach.start, min(lost.start, reach.end)))
        behind = PositionRange(max(reach.start, min(lost.end, reach.end)), reach.end)
        return [unit for part in (before, behind) if not part.empty for unit in _units(of, part, unit_bytes, request)]


def _packed(pieces: Sequence[tuple[Piece, int]], target: int) -> tuple[tuple[Piece, ...], ...]:
    """Return pieces in tasks of about so many bytes, in their order; the rule is that of ``model.packing.pack``."""
    tasks: list[list[Piece]] = []
    size = 0
    for piece, cost in pieces:
        if not tasks or size + cost / 2 > target:
            tasks.append([piece])
            size = cost
        else:
            tasks[-1].append(piece)
            size += cost
    return tuple(tuple(task) for task in tasks)
