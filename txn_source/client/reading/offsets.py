"""Where a read starts and ends: earliest, latest, positions by topic and partition, or a publish time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from txn_source.client.streaming.stream_offset import by_topic
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST, Position
from txn_source.model.topic_name import TopicName

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLIS = re.compile(r"-?[0-9]{1,15}")
_HINT = 'Use earliest, latest, or JSON such as {"orders": {"0": "12:40"}}.'


@dataclass(frozen=True, slots=True)
class Cut:
    """The same moment of several topics: up to where a reader of a level could read all of their partitions.

    At read_committed every transaction is wholly below it or wholly above it. ``scan`` takes it as start or end, and
    Spark takes its text as ``startingOffsets`` or ``endingOffsets``, for reads of any of its topics.
    """

    positions: Mapping[tuple[TopicName, int], Position]
    isolation_level: IsolationLevel

    def json(self) -> str:
        """Return the cut as text, ``{"level": "read_committed", "positions": {"orders": {"0": "12:40"}}}``."""
        return json.dumps({"level": self.isolation_level.value, "positions": by_topic(self.positions)})

    def __str__(self) -> str:
        return self.json()


@dataclass(frozen=True, slots=True)
class Offsets:
    """One side of a read. Partitions that ``positions`` doesn't name are at ``default``.

    A position is the next one to read: inclusive as a start, exclusive as an end. ``publish_time_us``, if set, stands
    for the first message published at or after it. ``bare`` is a position whose partition isn't named: allowed if
    just one is read. ``cut`` is the level of the cut that the positions are: they may name topics that aren't read, and
    must name all that are.
    """

    default: str
    positions: Mapping[tuple[TopicName, int], Position | str] = field(default_factory=dict)
    publish_time_us: int | None = None
    bare: Position | None = None
    cut: IsolationLevel | None = None

    @classmethod
    def parse(cls, value: Any, default: str) -> Offsets:
        """Return the offsets that a value means.

        Args:
            value: None, ``earliest``, ``latest``, a ``Position``, its text, a datetime with a time zone, a ``Cut``, or
                a mapping (or its JSON) from topic to partition to position.
            default: what None, and partitions not named, stand for.
        """
        match value:
            case None:
                return cls(default)
            case Offsets():
                return value
            case Cut():
                return cls(default, positions=value.positions, cut=value.isolation_level)
            case Position():
                return cls(default, bare=value)
            case datetime():
                return cls(default, publish_time_us=_micros(value))
            case Mapping():
                return cls(default, positions=_positions(value), cut=_level_of_cut(value))
            case str():
                text = value.strip()
                if text.lower() in (EARLIEST, LATEST):
                    return cls(text.lower())
                if text.startswith("{"):
                    try:
                        return cls.parse(json.loads(text, object_pairs_hook=_no_twins), default)
                    except json.JSONDecodeError as error:
                        raise InvalidArgumentError(
                            f"The offsets {text!r:.120} are not JSON ({error}).", _HINT
                        ) from None
                return cls(default, bare=Position.parse(text))
        raise InvalidArgumentError(f"{value!r:.120} are not offsets.", _HINT)

    @classmethod
    def at_time(cls, text: str, default: str) -> Offsets:
        """Return the offsets of a publish time: milliseconds since the epoch, or ISO 8601 (UTC if it has no zone)."""
        text = text.strip()
        if _MILLIS.fullmatch(text):
            return cls(default, publish_time_us=int(text) * 1000)
        try:
            if text.isdigit():  # Python reads a date from digits alone, and more than a date has are microseconds
                raise ValueError("too many milliseconds")
            when = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidArgumentError(
                f"{text!r} is not a time.",
                "Use milliseconds since the epoch or ISO 8601, such as 2026-01-31T12:00:00Z.",
            ) from None
        return cls(default, publish_time_us=_micros(when if when.tzinfo else when.replace(tzinfo=UTC)))


def _positions(value: Mapping[Any, Any]) -> dict[tuple[TopicName, int], Position | str]:
    if ("epoch" in value or _level_of_cut(value)) and isinstance(value.get("positions"), Mapping):
        value = value["positions"]  # as a streaming query's progress, or a cut, has it
    found: dict[tuple[TopicName, int], Position | str] = {}
    for topic, partitions in value.items():
        name = TopicName.parse(topic)
        if not isinstance(partitions, Mapping):
            raise InvalidArgumentError(f"The offsets of topic {topic!r} are {partitions!r:.80}.", _HINT)
        for index, position in partitions.items():
            if isinstance(index, str) and re.fullmatch("[0-9]{1,9}", index):
                index = int(index)
            if not isinstance(index, int) or isinstance(index, bool) or index < 0:
                raise InvalidArgumentError(f"{index!r} is not a partition of topic {topic!r}.", _HINT)
            if (name, index) in found:
                raise InvalidArgumentError(f"The offsets name partition {index} of topic {topic!r} twice.", _HINT)
            if isinstance(position, str) and position.lower() in (EARLIEST, LATEST):
                found[name, index] = position.lower()
            else:
                found[name, index] = Position.parse(position)
    return found


def _level_of_cut(value: Mapping[Any, Any]) -> IsolationLevel | None:
    return IsolationLevel.parse(value["level"]) if value.keys() == {"level", "positions"} else None


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"The offsets name one of {names} twice.", _HINT)
    return dict(pairs)


def _micros(when: datetime) -> int:
    if when.tzinfo is None:
        raise InvalidArgumentError(f"The time {when} has no time zone.", "Use one with a time zone.")
    return (when - _EPOCH) // timedelta(microseconds=1)
