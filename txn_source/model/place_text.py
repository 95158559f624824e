"""How people write places in topics: one grammar for reads, streams and subscriptions of all kinds of logs.

A place is ``earliest``, ``latest``, a moment, a place in the only partition that is read, or a mapping (or its JSON)
from topic to partition to place. What a place in a partition is, and how partitions are named, each log says itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.moments import micros
from txn_source.model.position import EARLIEST, LATEST

ABOUT_LOG = "$log"
"""In the offsets of a stream over a log that others wrote, what tells about the log; no topic has this name."""
_INDEX = re.compile("-1|[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a value says, before it is known which partitions there are.

    Attributes:
        everywhere: ``earliest`` or ``latest``.
        points: a place, or one of these words, by partition as the log names it.
        publish_time_us: a moment, in microseconds since 1970.
        bare: a place whose partition isn't named.
        cut: the level of the cut that the points are.
        topics: the topics that a mapping names; None: it is none.
    """

    everywhere: str | None = None
    points: Mapping[Any, Any] = field(default_factory=dict)
    publish_time_us: int | None = None
    bare: Any = None
    cut: str | None = None
    topics: frozenset[Any] | None = None


@dataclass(frozen=True, slots=True)
class PlaceText:
    """The grammar of one kind of log.

    Attributes:
        topic: returns a topic as the log names it.
        partition: names a partition by topic and index.
        point: reads a place in a partition.
        other: reads what is none of the forms above: text, and values of the log's own.
        hint: how to write a place.
        cuts: the forms of a cut, and of a stream's progress, are places, too.
        least: the lowest index of a partition: 0, or -1 where that is a topic without partitions.
    """

    topic: Callable[[Any], Any]
    partition: Callable[[Any, int], Any]
    point: Callable[[Any], Any]
    other: Callable[[Any], Parsed]
    hint: str
    cuts: bool = False
    least: int = 0

    def parse(self, value: Any) -> Parsed:
        """Return what a value says.

        Raises:
            InvalidArgumentError: it is no place; what is wrong in it, and how to write one.
        """
        if isinstance(value, str):
            text = value.strip()
            if (word := _word(text)) is not None:
                return Parsed(word)
            if not text.startswith("{"):
                return self.other(text)
            try:
                value = json.loads(text, object_pairs_hook=self._without_twins)
            except json.JSONDecodeError as error:
                raise InvalidArgumentError(f"{text!r:.120} is not JSON ({error}).", self.hint) from None
        if isinstance(value, datetime):
            return Parsed(publish_time_us=micros(value))
        return self._mapping(value) if isinstance(value, Mapping) else self.other(value)

    def _mapping(self, value: Mapping[Any, Any]) -> Parsed:
        if self.cuts and ABOUT_LOG in value:
            value = {topic: partitions for topic, partitions in value.items() if topic != ABOUT_LOG}
        cut = value["level"] if self.cuts and value.keys() == {"level", "positions"} else None
        if self.cuts and ("epoch" in value or cut is not None) and isinstance(value.get("positions"), Mapping):
            value = value["positions"]
        points: dict[tuple[Any, int], Any] = {}
        topics = set()
        for topic, partitions in value.items():
            topics.add(of := self.topic(topic))
            if not isinstance(partitions, Mapping):
                raise InvalidArgumentError(
                    f"The partitions of topic {topic!r:.80} are {partitions!r:.80}, which names none.", self.hint
                )
            for index, point in partitions.items():
                number = self._index(topic, index)
                name = self.partition(of, number)
                if name in points:
                    raise InvalidArgumentError(f"Partition {number} of topic {topic!r} is named twice.", self.hint)
                word = _word(point)
                points[name] = self.point(point) if word is None else word
        return Parsed(points=points, cut=cut, topics=frozenset(topics))

    def _index(self, topic: Any, index: Any) -> int:
        number = int(index) if isinstance(index, str) and _INDEX.fullmatch(index) else index
        if not isinstance(number, int) or isinstance(number, bool) or number < self.least:
            raise InvalidArgumentError(f"{index!r:.80} is not a partition of topic {topic!r:.80}.", self.hint)
        return number

    def _without_twins(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"One of {names!r:.120} is named twice.", self.hint)
        return dict(pairs)


def _word(value: Any) -> str | None:
    """Return ``earliest`` or ``latest`` if a value is one of them, in any case."""
    word = value.strip().lower() if isinstance(value, str) else None
    return word if word in (EARLIEST, LATEST) else None
