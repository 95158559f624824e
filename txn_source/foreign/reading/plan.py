"""Planning a read of a log that others wrote.

1. Bounds of all partitions, as the storage shows them.
2. Range of each: offsets and times to positions, cut off at the level's bound, at read_committed lowered to a cut. A
   range that begins or ends inside an entry has the whole entry, and tasks know which of its messages are left out.
3. Units of about as many bytes as a task is to have, packed into tasks.

A plan is pinned: a task carries its ranges and the decisions that they need, so that it yields the same rows again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from txn_source.foreign.foreign_log import Decisions, ForeignLog, Inside, PartitionName, ReadUnit
from txn_source.foreign.formats import Format
from txn_source.foreign.reading.cut import lowered_to_cut, tell
from txn_source.foreign.reading.ranges import label, ranges_of
from txn_source.foreign.reading.request import ForeignRequest, Selection
from txn_source.foreign.reading.source import SourcePartition, look_at, names_of
from txn_source.model.errors import DataLossError, SegmentUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.packing import OPENING_COST_BYTES
from txn_source.model.position import PositionRange
from txn_source.model.values import dataclass

_log = logging.getLogger(__name__)
_SMALLEST_TASK_BYTES = 8 << 20
_ALL = 1 << 62


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


def plan(
    log: ForeignLog,
    rules: Format,
    selection: Selection,
    request: ForeignRequest,
    told: Callable[[str | None], object] = tell,
) -> ForeignPlan:
    """Return the tasks that read a selection as requested; ``told`` is given what its cut can't promise.

    Raises:
        TopicNotFoundError, InvalidArgumentError, OutOfRangeError: as ``names_of`` and ``ranges_of``.
        DataLossError: what is to be read is gone. ``fail_on_data_loss=False`` leaves it out, with a warning.
        SegmentUnreadableError: what the bounds or the aborted transactions follow from is damaged.
    """
    wanted = ends_of(log, rules, selection, request, told)
    inside = {of.name: place for of, _ in wanted if (place := request.inside(of.name)) is not None}
    return plan_ranges(wanted, request, inside=inside)


def ends_of(
    log: ForeignLog,
    rules: Format,
    selection: Selection,
    request: ForeignRequest,
    told: Callable[[str | None], object] = tell,
) -> list[tuple[SourcePartition, PositionRange]]:
    """Return the range of each partition of a selection, as far as it is read."""
    partitions = look_at(log, names_of(log, rules, selection))
    ranges = ranges_of(rules, partitions, request)
    cuts = request.consistent_cut and request.isolation_level is IsolationLevel.READ_COMMITTED
    whole = cuts and len(partitions) > 1
    if whole:
        ranges = [_without_rest(of, reach, request) for of, reach in zip(partitions, ranges, strict=True)]
    if cuts:
        ranges, untold = lowered_to_cut(partitions, ranges)
        told(untold)
    return [(of, _with_last(of, reach, request, whole=whole)) for of, reach in zip(partitions, ranges, strict=True)]


def _without_rest(of: SourcePartition, reach: PositionRange, request: ForeignRequest) -> PositionRange:
    """Return a range with the entry inside which it ends if no message of the entry lies at or behind that end."""
    end = request.end.inside(of.name)
    if end is None or reach.end != end.position or reach.end >= of.bounds.upper(request.isolation_level):
        return reach
    entry = PositionRange(end.position, end.position.plus(1))
    try:
        messages = of.partition.take(entry, _ALL, _ALL).rows
    except (DataLossError, SegmentUnreadableError):
        if request.fail_on_data_loss:
            raise
        return reach
    return reach if end.batch_index < messages else PositionRange(reach.start, entry.end)


def _with_last(of: SourcePartition, reach: PositionRange, request: ForeignRequest, *, whole: bool) -> PositionRange:
    """Return a range with the entry inside which it ends, if it was neither cut off nor lowered below that.

    With ``whole`` a transaction is seen whole or not at all. One that reaches into the entry from before has lowered
    the range, or reaches over its start; one that begins with the entry is left out.
    """
    end = request.end.inside(of.name)
    if end is None or reach.end != end.position or reach.end >= of.bounds.upper(request.isolation_level):
        return reach
    entry = PositionRange(end.position, end.position.plus(1))
    if whole and any(txn.first == entry.start for txn in of.partition.transactions(entry)):
        return reach
    return PositionRange(reach.start, entry.end)


def plan_ranges(
    wanted: Sequence[tuple[SourcePartition, PositionRange]],
    request: ForeignRequest,
    *,
    as_of_ends: bool = False,
    inside: Mapping[PartitionName, Inside] | None = None,
) -> ForeignPlan:
    """Return the tasks that read ranges of partitions, which lie below the level's bound.

    ``inside`` tells of ranges that begin or end inside an entry.
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
        place = (inside or {}).get(of.name)
        for unit in found:
            part = unit if place is None else replace(unit, inside=place)
            piece = Piece(of.name, of.partition.identity, part, decided.needed(unit.of))
            pieces.append((piece, unit.bytes + opening))
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
