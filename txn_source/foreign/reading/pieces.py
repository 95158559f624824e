"""Dividing ranges of partitions into tasks of about equal bytes.

A piece has the decisions that a read of it needs, so that reading it again gives the same rows.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from txn_source.foreign.foreign_log import Decisions, PartitionName, ReadUnit
from txn_source.foreign.reading.topics import SeenPartition
from txn_source.model.errors import DataLossError
from txn_source.model.packing import OPENING_COST_BYTES, packed
from txn_source.model.position import PositionRange
from txn_source.reading.places import Inside, Name
from txn_source.reading.request import ReadRequest

_log = logging.getLogger(__name__)
_SMALLEST_TASK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A unit of a partition, with the facts that a read of it needs; picklable."""

    name: PartitionName
    identity: str | None
    unit: ReadUnit
    decisions: Decisions


def pieces_of(
    wanted: Sequence[tuple[SeenPartition, PositionRange]],
    request: ReadRequest,
    inside: Mapping[Name, Inside],
    *,
    as_of_ends: bool,
) -> list[list[Piece]]:
    """Return the tasks that read ranges of partitions, in the order of partitions and positions.

    ``inside`` has the ranges that begin or end inside an entry. ``as_of_ends`` gives transactions the status that they
    had when the log ended at the ranges' ends.
    """
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
        place = inside.get(of.name)
        for unit in found:
            part = unit if place is None else replace(unit, inside=place)
            piece = Piece(of.name, of.partition.identity, part, decided.needed(unit.of))
            pieces.append((piece, unit.bytes + opening))
    tasks_of = packed([cost for _, cost in pieces], target)
    return [[pieces[index][0] for index in task] for task in tasks_of]


def _units(of: SeenPartition, reach: PositionRange, unit_bytes: int, request: ReadRequest) -> list[ReadUnit]:
    """Return the units of a range; lost parts are left out if the request allows that."""
    try:
        return of.partition.units(reach, unit_bytes)
    except DataLossError as error:
        lost: PositionRange | None = error.lost
        if request.fail_on_data_loss or lost is None or lost.empty:
            raise
        _log.warning("%s: %s (failOnDataLoss=false)", of.label, error.fact)
        before = PositionRange(reach.start, max(reach.start, min(lost.start, reach.end)))
        behind = PositionRange(max(reach.start, min(lost.end, reach.end)), reach.end)
        return [unit for part in (before, behind) if not part.empty for unit in _units(of, part, unit_bytes, request)]
