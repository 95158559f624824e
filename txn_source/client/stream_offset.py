"""How far a streaming query has read: readable JSON with keys in a fixed order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass

TopicPartition = tuple[TopicName, int]
"""A partition: its topic, and its index in the topic."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next position to read on each partition.

    ``decisions`` is how many transactions had ended when it was taken: a batch that is replayed shows each
    transaction's status as it did at first.

    ``begins`` is where partitions begin in the batch that ends here, if that isn't where the one before ended: because
    they are new (what is trimmed of them later is lost, and a batch that is replayed must say so), because the
    subscription that the query follows was moved, or because they begin inside an entry. Of a query's first offset it
    is where the first batch begins.

    ``level`` is the isolation level of the batch that ends here: the query's options, or an operator, may say another
    one before it is replayed. None: the text doesn't tell it. ``turn`` is the partition that is first to get its share
    of the next batch if that is limited, by its place among the partitions of the query.

    ``subscription`` is the id of the one that the query follows, None without; ``epoch`` is its epoch.
    """

    positions: Mapping[TopicPartition, Position]
    decisions: int
    epoch: int = 0
    begins: Mapping[TopicPartition, MessageId] = field(default_factory=dict)
    subscription: int | None = None
    level: IsolationLevel | None = None
    turn: int = 0

    def next_message(self, place: TopicPartition) -> MessageId | None:
        """Return where the next batch begins on a partition: at its position or inside the entry; None: it is new."""
        at, begin = self.positions.get(place), self.begins.get(place)
        if at is None:
            return None
        return begin if begin is not None and begin.position == at else MessageId(at.ledger_id, at.entry_id)

    def to_json(self) -> dict[str, Any]:
        """Return ``{"epoch": 0, "decisions": 7, "level": "read_committed", "positions": {"orders": {"0": "12:40"}}}``,
        and what else there is, in one order."""
        value: dict[str, Any] = {"epoch": self.epoch, "decisions": self.decisions}
        if self.level is not None:
            value["level"] = self.level.value
        if self.turn:
            value["turn"] = self.turn
        value["positions"] = by_topic(self.positions)
        if self.begins:
            value["begins"] = by_topic(self.begins)
        if self.subscription is not None:
            value["subscription"] = self.subscription
        return value

    @property
    def text(self) -> str:
        """The positions as text for people."""
        return json.dumps(by_topic(self.positions))

    @classmethod
    def from_json(cls, value: Any) -> StreamOffset:
        """Return the offset that a checkpoint holds, or raise INVALID_ARGUMENT if that is not one of ours."""
        try:
            positions = {place: Position.parse(at) for place, at in _by_place(value["positions"])}
            begins = {place: _place_inside(at) for place, at in _by_place(value.get("begins", {}))}
            subscription, level = value.get("subscription"), value.get("level")
            return cls(
                positions,
                int(value["decisions"]),
                int(value["epoch"]),
                begins,
                None if subscription is None else int(subscription),
                None if level is None else IsolationLevel.parse(level),
                int(value.get("turn", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidArgumentError(
                f"{value!r:.200} is not an offset of a txnlog stream.",
                "The checkpoint belongs to another query: use one of its own for each query.",
            ) from None


def by_topic(
    places: Mapping[TopicPartition, Position] | Mapping[TopicPartition, MessageId],
) -> dict[str, dict[str, str]]:
    """Return positions as JSON has them, ``{"orders": {"0": "12:40"}}``, sorted."""
    topics: dict[str, dict[str, str]] = {}
    for (topic, index), at in sorted(places.items()):
        shown = at.position if isinstance(at, MessageId) and at.batch_index == 0 else at
        topics.setdefault(topic.short, {})[str(index)] = str(shown)
    return topics


def _by_place(topics: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[TopicPartition, str]]:
    for topic, partitions in topics.items():
        for index, at in partitions.items():
            yield (TopicName.parse(topic), int(index)), at


def _place_inside(text: str) -> MessageId:
    """Return the message that a position, or a message id, names."""
    if text.count(":") == 2:
        return MessageId.parse(text)
    at = Position.parse(text)
    return MessageId(at.ledger_id, at.entry_id)
