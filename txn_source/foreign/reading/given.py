"""Values and options that all formats understand in the same way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.reading.request import ForeignCut, Point, Selection, Side
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.given_options import named, offsets_or_time, selecting
from txn_source.model.moments import micros, time_us
from txn_source.model.position import EARLIEST, LATEST, Position

_INDEX = re.compile("-1|[0-9]{1,10}")


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
        value: None, ``earliest``, ``latest``, a position, a datetime with a time zone, a mapping (or its JSON) from
            topic to partition to position; of a cut, the mapping ``{"level": ..., "positions": ...}``.
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
        case datetime():
            return Side(default, time=-(-micros(value) // 1000))
        case str() if value.strip().lower() in (EARLIEST, LATEST):
            return Side(value.strip().lower())
        case str() if value.strip().startswith("{"):
            try:
                value = json.loads(value, object_pairs_hook=_without_twins)
            except ValueError as error:
                raise InvalidArgumentError(f"The offsets {value!r:.120} are not JSON ({error}).", hint) from None
    if not isinstance(value, Mapping):
        found = point(value)
        return Side(found) if isinstance(found, str) else Side(default, bare=found)
    is_cut = value.keys() == {"level", "positions"} and isinstance(value["positions"], Mapping)
    if is_cut:
        value = value["positions"]
    points: dict[PartitionName, Point] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, Mapping) or not isinstance(topic, str):
            raise InvalidArgumentError(f"The offsets of topic {topic!r} are {partitions!r:.80}.", hint)
        for index, place in partitions.items():
            if not _INDEX.fullmatch(str(index)) or isinstance(index, bool):
                raise InvalidArgumentError(f"{index!r} is not a partition of topic {topic!r}.", hint)
            name = partition(topic, int(index))
            if name in points:
                raise InvalidArgumentError(f"The offsets name partition {name} twice.", hint)
            points[name] = point(place)
    return Side(default, points, cut=is_cut)


def everywhere_or(value: Any, parse: Callable[[Any], Position]) -> Position | str:
    """Return ``earliest`` or ``latest``, or the position that a value means."""
    if isinstance(value, str) and value.strip().lower() in (EARLIEST, LATEST):
        return value.strip().lower()
    return parse(value)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"a name is there twice: {', '.join(names)[:80]}")
    return dict(pairs)
