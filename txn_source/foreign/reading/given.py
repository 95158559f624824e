"""Values and options that all formats understand in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from txn_source.model.given_options import named, offsets_or_time, selecting
from txn_source.model.moments import time_us
from txn_source.model.place_text import Parsed, PlaceText
from txn_source.reading.places import Name, Place, Side
from txn_source.reading.request import Selection


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
        return Side(default, time_us=named(name, lambda: time_us(text)))
    return named(name, lambda: parse(text, default))


def parse_side(
    value: Any, default: str, point: Callable[[Any], Place | str], partition: Callable[[str, int], Name], hint: str
) -> Side:
    """Return the side that a value means.

    Args:
        value: None, a ``Side``, a ``Cut``, or what ``PlaceText`` reads.
        default: what None, and partitions that aren't named, stand for.
        point: reads a position.
        partition: makes the name of one.
        hint: what to write instead of what can't be.
    """

    def bare(value: Any) -> Parsed:
        found = point(value)
        return Parsed(found) if isinstance(found, str) else Parsed(bare=found)

    return Side.parse(value, default, PlaceText(str, partition, point, bare, hint, cuts=True, least=-1))
