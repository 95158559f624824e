"""Values and options that all formats understand in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.reading.request import ForeignCut, Point, Selection, Side
from txn_source.model.given_options import named, offsets_or_time, selecting
from txn_source.model.moments import time_us
from txn_source.model.place_text import Parsed, PlaceText


def selection_of(options: Mapping[str, str]) -> Selection:
    """Return what ``topic``, ``topics`` or ``topicsPattern`` name; exactly one must be given."""
    name, values = selecting(options)
    if name == "topicsPattern":
        return Selection(pattern=values[0])
    return Selection(tuple(value.strip() for value in values), several=name == "topics")


def side_of(options: Mapping[str, str], which: str, default: str, parse: Callable[[Any, str], Side]) -> Side:
    """Return what ``startingOffsets`` or ``startingTimestamp`` say, or those of ``ending``."""
    given = offsets_or_time(options, which)
    if given is None:
        return Side(default)
    name, text = given
    if name.endswith("Timestamp"):
        return Side(default, time=named(name, lambda: milliseconds(text)))
    return named(name, lambda: parse(text, default))


def milliseconds(text: str) -> int:
    """Return a time in whole milliseconds, rounded up: a record of that time or later is at or after it."""
    return -(-time_us(text) // 1000)


def parse_side(
    value: Any, default: str, point: Callable[[Any], Point], partition: Callable[[str, int], PartitionName], hint: str
) -> Side:
    """Return the side that a value means.

    Args:
        value: None, a ``Side``, a ``ForeignCut``, or what ``PlaceText`` reads.
        default: what None, and partitions that aren't named, stand for.
        point: reads a position.
        partition: makes the name of one.
        hint: what to write instead of what can't be.
    """
    match value:
        case None:
            return Side(default)
        case Side():
            return value
        case ForeignCut():
            return Side(default, value.positions, cut=True)

    def bare(value: Any) -> Parsed:
        found = point(value)
        return Parsed(found) if isinstance(found, str) else Parsed(bare=found)

    parsed = PlaceText(str, partition, point, bare, hint, cuts=True, least=-1).parse(value)
    time = None if parsed.publish_time_us is None else -(-parsed.publish_time_us // 1000)
    return Side(parsed.everywhere or default, parsed.points, time=time, bare=parsed.bare, cut=parsed.cut is not None)
