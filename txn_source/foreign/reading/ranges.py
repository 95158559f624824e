"""The range of each partition of a read: from offsets and times to positions, below the level's bound."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.formats import Format
from txn_source.foreign.reading.request import ForeignRequest, Side
from txn_source.foreign.reading.source import SourcePartition
from txn_source.model.errors import DataLossError, InvalidArgumentError, OutOfRangeError
from txn_source.model.position import EARLIEST, Position, PositionRange

_log = logging.getLogger(__name__)
_NAMED = 8


def ranges_of(rules: Format, partitions: Sequence[SourcePartition], request: ForeignRequest) -> list[PositionRange]:
    """Return the range of each partition that a request reads, cut off at the level's bound.

    Raises:
        InvalidArgumentError: offsets of what isn't read, or not of all that is and must be named.
        OutOfRangeError: a position that a partition doesn't have.
        DataLossError: one that isn't there any more. ``fail_on_data_loss=False`` begins where the log does.
    """
    starts, ends = (positions_of(rules, partitions, side, request) for side in (request.start, request.end))
    return [
        of.bounds.clip(start, max(start, end), request.isolation_level)
        for of, start, end in zip(partitions, starts, ends, strict=True)
    ]


def positions_of(
    rules: Format, partitions: Sequence[SourcePartition], side: Side, request: ForeignRequest
) -> list[Position]:
    """Return where one side of a read is on each partition."""
    _check_named(rules, partitions, side)
    return [_position(rules, of, side, request) for of in partitions]


def label(name: PartitionName) -> str:
    """Return a partition's name for people."""
    return name.topic if name.partition < 0 else f"{name.topic}-{name.partition}"


def _position(rules: Format, of: SourcePartition, side: Side, request: ForeignRequest) -> Position:
    bounds = of.bounds
    point = side.points.get(of.name, side.bare)
    if point is None:
        time = side.times.get(of.name, side.time)
        if time is None:
            point = side.everywhere
        else:
            found = of.partition.position_at(time)
            if found is None and side.must_match:
                raise InvalidArgumentError(
                    f"No record of {label(of.name)} has the time {time} ms or a later one.",
                    "Use an earlier time, or let what isn't there stand for the latest offset.",
                )
            return bounds.upper(request.isolation_level) if found is None else max(found, bounds.log_start)
    if isinstance(point, str):
        return bounds.log_start if point == EARLIEST else bounds.upper(request.isolation_level)
    return _there(rules, of, point, request)


def _there(rules: Format, of: SourcePartition, at: Position, request: ForeignRequest) -> Position:
    """Return a position if the partition has it, or where the log begins if it was below that and may be lost."""
    bounds = of.bounds
    start, end = rules.offset(bounds.log_start), rules.offset(bounds.log_end)
    if at > bounds.log_end or at.entry_id < 0:
        raise OutOfRangeError(
            f"Offset {rules.offset(at)} lies outside {label(of.name)}, which has [{start}, {end}).",
            "Use an offset in that range, earliest or latest.",
        )
    if at >= bounds.log_start:
        return at
    what = f"Offset {rules.offset(at)} of {label(of.name)} is gone: it begins at {start}"
    if request.fail_on_data_loss:
        raise DataLossError(
            f"{what}.", "Use a later offset or earliest; failOnDataLoss=false begins where the log does."
        )
    _log.warning("%s, where the read does, too (failOnDataLoss=false)", what)
    return bounds.log_start


def _check_named(rules: Format, partitions: Sequence[SourcePartition], side: Side) -> None:
    known = {of.name for of in partitions}
    for name in [*side.points, *side.times]:
        if name not in known and not side.cut:
            raise InvalidArgumentError(
                f"The offsets name {label(name)}, which this read doesn't take.",
                f"It takes {', '.join(label(of.name) for of in partitions[:_NAMED])}.",
            )
    complete = side.complete or side.cut
    missing = known - {*side.points, *side.times} if complete and (side.points or side.times) else set()
    if missing:
        raise InvalidArgumentError(
            f"The offsets don't name {label(min(missing))}, which is read.",
            "Name all partitions of the topics; -2 is earliest and -1 latest.",
        )
    if side.bare is not None and len(partitions) != 1:
        raise InvalidArgumentError(
            f"Offset {rules.offset(side.bare)} doesn't say which of the {len(partitions)} partitions it belongs to.",
            "Use JSON from topic to partition to offset.",
        )
