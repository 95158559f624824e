"""The range of each partition of a read: places become positions, and ends are lowered to a cut."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from txn_source.model.errors import DataLossError, InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, MessageId, Position, PositionRange
from txn_source.reading.log_source import Cutting, L, LogSource
from txn_source.reading.places import AsOf, AtTime, Cut, Name, Place, Side
from txn_source.reading.request import ReadRequest, Selection

_log = logging.getLogger(__name__)
_LOOKS_MAX = 5
"""Looks at most for a cut, if messages are trimmed while it is made."""
_NAMED = 8
_FROM_EARLIEST = Side(EARLIEST)


def tell(untold: str | None) -> None:
    """Log the promise that a cut can't keep; None: it keeps all."""
    if untold is not None:
        _log.warning("no consistent cut: %s (consistentCut)", untold)


def ranges_of(
    source: LogSource[L], look: L, request: ReadRequest, told: Callable[[str | None], object] = tell
) -> list[PositionRange]:
    """Return the range of each partition that a request reads, cut off at the level's bound or at a cut.

    ``told`` gets the promise that the cut can't keep, or None.

    Raises:
        InvalidArgumentError: a place of a partition that isn't read, or none of a partition that must be named.
        OutOfRangeError: a position that a partition never had, or a time whose messages are all gone.
        DataLossError: messages above a bound were trimmed while the cut was made, or messages below it afterwards.
    """
    _check_side(source, look, request.end, request.isolation_level)
    _check_began(source, look, request)
    starts = positions_of(source, look, request.start, request)
    if request.as_of_us is None:
        ends = positions_of(source, look, request.end, request)
    else:
        ends = _resolved(source, look, dict.fromkeys(_names(look), AsOf(request.as_of_us)), request)
    ranges = [
        of.bounds.clip(start, max(start, end), request.isolation_level)
        for of, start, end in zip(look.partitions, starts, ends, strict=True)
    ]
    inside = {
        of.name: end
        for of, reach in zip(look.partitions, ranges, strict=True)
        if (end := request.end.inside(of.name)) is not None
        and reach.end == end.position < of.bounds.upper(request.isolation_level)
    }
    if not request.cuts and not inside:
        return ranges
    found = source.cut(look, ranges, Cutting(inside, whole=request.cuts))
    told(found.untold)
    return ending(ranges, found.ends)


def positions_of(source: LogSource[L], look: L, side: Side, request: ReadRequest) -> list[Position]:
    """Return the position of one side of a read on each partition; a message counts as its entry."""
    _check_side(source, look, side, request.isolation_level)
    return _resolved(source, look, {name: side.at(name) for name in _names(look)}, request)


def cuts_of(source: LogSource[L], selection: Selection, levels: Sequence[IsolationLevel]) -> dict[IsolationLevel, Cut]:
    """Return the cut of a selection at each level, all of one moment."""
    committed = IsolationLevel.READ_COMMITTED
    for left in range(_LOOKS_MAX, 0, -1):
        look = source.look(selection)
        found = {
            level: [PositionRange(of.bounds.log_start, of.bounds.upper(level)) for of in look.partitions]
            for level in levels
        }
        with suppress(*((DataLossError,) if left > 1 else ())):  # trimmed meanwhile: look again
            if committed in found:
                at = source.cut(look, found[committed], Cutting())
                tell(at.untold)
                found[committed] = ending(found[committed], at.ends)
            break
    names, shown = _names(look), source.describe().shown
    return {
        level: Cut(
            {name: reach.end for name, reach in zip(names, reaches, strict=True)},
            level,
            {name: reach.start for name, reach in zip(names, reaches, strict=True)},
            shown,
        )
        for level, reaches in found.items()
    }


def _names(look: L) -> list[Name]:
    return [of.name for of in look.partitions]


def _resolved(
    source: LogSource[L], look: L, places: Mapping[Name, Place | AtTime | AsOf | str], request: ReadRequest
) -> list[Position]:
    given: dict[Name, Position | AtTime | AsOf] = {}
    for name, place in places.items():
        if not isinstance(place, str):
            given[name] = place.position if isinstance(place, MessageId) else place
    resolved = source.resolve(look, given, request.isolation_level) if given else {}
    found = []
    for of in look.partitions:
        at = resolved.get(of.name)
        if at is not None:
            found.append(at.position)
            if at.lost is not None:
                if request.fail_on_data_loss:
                    raise at.lost
                _log.warning("%s The read begins at what is left (failOnDataLoss=false)", at.lost.fact)
        elif places[of.name] == EARLIEST:
            found.append(of.bounds.log_start)
        else:
            found.append(of.bounds.upper(request.isolation_level))
    return found


def _check_began(source: LogSource[L], look: L, request: ReadRequest) -> None:
    """Raise DATA_LOSS if a partition that is read from its start has lost messages since the read's cut was made."""
    if request.began is None or not request.fail_on_data_loss or request.start != _FROM_EARLIEST:
        return
    for of in look.partitions:
        began = request.began.points.get(of.name)
        if isinstance(began, Position) and of.has_lost(began):
            raise DataLossError(
                f"{source.describe().label(of.name)} has lost [{began}, {of.bounds.log_start}), which was to be read:"
                " it was trimmed after the query's cut was made.",
                "Run the query again, or give it failOnDataLoss=false to see what is left.",
            )


def _check_side(source: LogSource[L], look: L, side: Side, level: IsolationLevel) -> None:
    """Refuse a place of a partition that isn't read, one without a partition, and a cut of another read or level."""
    label, shown, known = source.describe().label, source.describe().shown, set(_names(look))
    named = [*side.points, *side.times_us]
    if side.bare is not None and len(known) != 1:
        raise InvalidArgumentError(
            f"{shown(side.bare)} doesn't say which of the {len(known)} partitions it belongs to.",
            f"Use JSON such as {json.dumps({'orders': {'0': shown(side.bare)}})}.",
        )
    if side.cut is None:
        for name in named:
            if name not in known:
                raise InvalidArgumentError(
                    f"The offsets name {label(name)}, which this read doesn't take.",
                    f"It takes {', '.join(label(of.name) for of in look.partitions[:_NAMED])}.",
                )
    missing = known - set(named)
    if side.cut is not None and missing:
        raise InvalidArgumentError(
            f"The cut has no position of {label(min(missing))}, which is read.",
            "Take a cut of all topics: log.cut([...]).",
        )
    if side.complete and named and missing:
        raise InvalidArgumentError(
            f"The offsets don't name {label(min(missing))}, which is read.",
            "Name all partitions of the topics; -2 is earliest and -1 latest.",
        )
    if side.cut is IsolationLevel.READ_UNCOMMITTED and level is not side.cut:
        raise InvalidArgumentError(
            f"The cut was taken at {side.cut}, and the read is {level}.", f"Take the cut at {level}."
        )


def ending(starts: Sequence[PositionRange | Position], ends: Sequence[Position]) -> list[PositionRange]:
    """Return ranges with the given ends that begin at positions, or where other ranges begin."""
    firsts = (start.start if isinstance(start, PositionRange) else start for start in starts)
    return [PositionRange(first, end) for first, end in zip(firsts, ends, strict=True)]
