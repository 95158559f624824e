"""How far a streaming query has read: readable JSON with keys in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """

    positions: Mapping[Place, Position]
    decisions: int
    epoch: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return ``{"epoch": 0, "decisions": 7, "positions": {"orders": {"0": "12:40"}}}``."""
        topics: dict[str, dict[str, str]] = {}
        for (topic, index), position in sorted(self.positions.items()):
            topics.setdefault(topic.short, {})[str(index)] = str(position)
        return {"epoch": self.epoch, "decisions": self.decisions, "positions": topics}

    @classmethod
    def from_json(cls, value: Any) -> StreamOffset:
        """Return the offset that a checkpoint holds, or raise INVALID_ARGUMENT if that is not one of ours."""
        try:
            positions = {
                (TopicName.parse(topic), int(index)): Position.parse(position)
                for topic, partitions in value["positions"].items()
                for index, position in partitions.items()
            }
            return cls(positions, int(value["decisions"]), int(value["epoch"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidArgumentError(
                f"{value!r:.200} is not an offset of a txnlog stream.",
                "The checkpoint belongs to another query: use one of its own for each query.",
            ) from None
