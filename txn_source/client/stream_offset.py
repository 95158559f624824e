"""How far a streaming query has read: readable JSON with keys in a fixed order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import Position
from txn_source.model.topic_name import TopicName

Place = tuple[TopicName, int]
"""A partition: its topic, and its index in the topic."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next position to read on each partition.

    ``decisions`` is how many transactions had ended when it was taken: a batch that is replayed shows each
    transaction's status as it did at first. ``epoch`` is that of the subscription that the query follows, 0 without.
    ``begins`` is where partitions begin that are new in the batch that ends here: what is trimmed of them later is
    lost, and a batch that is replayed must say so.
    """

    positions: Mapping[Place, Position]
    decisions: int
    epoch: int = 0
    begins: Mapping[Place, Position] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return ``{"epoch": 0, "decisions": 7, "positions": {"orders": {"0": "12:40"}}}``; ``begins`` if there are."""
        value = {"epoch": self.epoch, "decisions": self.decisions, "positions": _by_topic(self.positions)}
        return value | ({"begins": _by_topic(self.begins)} if self.begins else {})

    @property
    def text(self) -> str:
        """The positions as text for people."""
        return json.dumps(_by_topic(self.positions))

    @classmethod
    def from_json(cls, value: Any) -> StreamOffset:
        """Return the offset that a checkpoint holds, or raise INVALID_ARGUMENT if that is not one of ours."""
        try:
            positions, begins = _by_place(value["positions"]), _by_place(value.get("begins", {}))
            return cls(positions, int(value["decisions"]), int(value["epoch"]), begins)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidArgumentError(
                f"{value!r:.200} is not an offset of a txnlog stream.",
                "The checkpoint belongs to another query: use one of its own for each query.",
            ) from None


def _by_topic(positions: Mapping[Place, Position]) -> dict[str, dict[str, str]]:
    topics: dict[str, dict[str, str]] = {}
    for (topic, index), position in sorted(positions.items()):
        topics.setdefault(topic.short, {})[str(index)] = str(position)
    return topics


def _by_place(topics: Mapping[str, Mapping[str, str]]) -> dict[Place, Position]:
    return {
        (TopicName.parse(topic), int(index)): Position.parse(position)
        for topic, partitions in topics.items()
        for index, position in partitions.items()
    }
