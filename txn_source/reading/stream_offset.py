"""The offset of a streaming query, and its two texts: readable JSON with keys in a fixed order.

Our own log has ``{"epoch": 0, "decisions": 7, "level": ..., "positions": {"orders": {"0": "12:40"}}}``. Others' logs
have ``{"orders": {"0": 42}, "$log": {...}}``: the offsets in the form of Kafka's own connector for Spark, so that its
checkpoints can be read, and further facts under a name that no topic has.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from txn_source.model.errors import InvalidArgumentError, TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.place_text import ABOUT_LOG
from txn_source.model.position import MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.reading.places import Name, Place, by_topic

_ANOTHERS = "The checkpoint belongs to another query: use one of its own for each query."


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next position to read on each partition.

    ``level`` is the isolation level of the batch that ends here; the query's options, or an operator, may have changed
    it before the batch is replayed. None: the text doesn't say it.

    ``begins`` has the start of each partition whose batch doesn't start where the one before ended: the partition is
    new (a replay must report messages that were trimmed since), messages before it were lost, the query's
    subscription was moved, or the batch starts inside an entry. In a query's first offset it has the start of the
    first batch, since Spark keeps only the end of that batch.

    ``inside`` has the first message of the next batch on partitions where a real-time batch ended inside an entry; the
    position is that of the entry.

    ``turn`` is the index, among the query's partitions, of the one that gets the first share of the next limited batch.

    Our own log only: ``decisions`` is the number of transactions that had ended, so that a replay shows each
    transaction with the status that it had. ``subscription`` is the id of the query's subscription, None without one;
    ``epoch`` is the subscription's epoch.

    Others' logs only: ``log`` distinguishes the log from others (Kafka's cluster id), and ``topics`` each topic from
    others of its name, as far as the format tells. ``traces`` has ``SourcePartition.trace`` of each position.
    """

    positions: Mapping[Name, Position]
    level: IsolationLevel | None = None
    begins: Mapping[Name, Place] = field(default_factory=dict)
    inside: Mapping[Name, MessageId] = field(default_factory=dict)
    turn: int = 0
    decisions: int = 0
    epoch: int = 0
    subscription: int | None = None
    log: str | None = None
    topics: Mapping[Any, str] = field(default_factory=dict)
    traces: Mapping[Name, Mapping[str, Any]] = field(default_factory=dict)

    def next(self, name: Name) -> Place | None:
        """Return the start of the next batch on a partition: an entry or a message; None: the partition is new."""
        at, begin = self.positions.get(name), self.inside.get(name) or self.begins.get(name)
        return begin if begin is not None and at == position_of(begin) else at

    def only(self, names: Container[Name]) -> StreamOffset:
        """Return the offset without the other partitions."""
        return replace(
            self,
            positions={name: at for name, at in self.positions.items() if name in names},
            begins={name: at for name, at in self.begins.items() if name in names},
            inside={name: at for name, at in self.inside.items() if name in names},
        )


def position_of(place: Place) -> Position:
    """Return the position of an entry, or of a message's entry."""
    return place.position if isinstance(place, MessageId) else place


class OwnOffsets:
    """The text of streams over our own log."""

    def to_json(self, offset: StreamOffset) -> dict[str, Any]:
        """Return an offset as JSON."""
        value: dict[str, Any] = {"epoch": offset.epoch, "decisions": offset.decisions}
        if offset.level is not None:
            value["level"] = offset.level.value
        if offset.turn:
            value["turn"] = offset.turn
        value["positions"] = by_topic(offset.positions)
        if offset.begins:
            value["begins"] = by_topic(offset.begins)
        if offset.inside:
            value["inside"] = by_topic(offset.inside)
        if offset.subscription is not None:
            value["subscription"] = offset.subscription
        return value

    def from_json(self, value: Any) -> StreamOffset:
        """Return the offset that JSON of a checkpoint names, or raise INVALID_ARGUMENT if another source wrote it."""
        try:
            subscription = value.get("subscription")
            return StreamOffset(
                {name: Position.parse(at) for name, at in _named(value["positions"]).items()},
                _level(value.get("level")),
                {name: _place(at) for name, at in _named(value.get("begins", {})).items()},
                {name: MessageId.parse(at) for name, at in _named(value.get("inside", {})).items()},
                int(value.get("turn", 0)),
                int(value["decisions"]),
                int(value["epoch"]),
                None if subscription is None else int(subscription),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidArgumentError(f"{value!r:.200} is not an offset of a txnlog stream.", _ANOTHERS) from None


@dataclass(frozen=True, slots=True)
class OthersOffsets:
    """The text of streams over logs that others wrote."""

    kind: str
    shown: Callable[[Place], int | str]
    """Returns a place as text, or as the number that it is in Kafka."""
    points: Callable[[Mapping[str, Any]], Mapping[Name, Place | str]]
    """Returns the places that JSON names."""

    def to_json(self, offset: StreamOffset) -> dict[str, Any]:
        """Return an offset as JSON."""
        about: dict[str, Any] = {}
        if offset.level is not None:
            about["level"] = offset.level.value
        if offset.log is not None:
            about["id"] = offset.log
        if offset.topics:
            about["topics"] = dict(sorted(offset.topics.items()))
        if offset.begins:
            about["begins"] = by_topic(offset.begins, self.shown)
        if offset.turn:
            about["turn"] = offset.turn
        if offset.traces:
            about["traces"] = [[*name, {**offset.traces[name]}] for name in sorted(offset.traces)]
        return {**by_topic(offset.positions, self.shown), ABOUT_LOG: about}

    def from_json(self, value: Any) -> StreamOffset:
        """Return the offset that JSON of a checkpoint names, or raise INVALID_ARGUMENT if another source wrote it."""
        try:
            positions = {**value}
            about = positions.pop(ABOUT_LOG, {})
            traces = {(str(topic), int(number)): {**trace} for topic, number, trace in about.get("traces", ())}
            return StreamOffset(
                {name: _between_entries(at) for name, at in self._places(positions).items()},
                _level(about.get("level")),
                self._places(about.get("begins", {})),
                turn=int(about.get("turn", 0)),
                log=about.get("id"),
                topics=dict(about.get("topics", {})),
                traces=traces,
            )
        except (TypeError, ValueError, AttributeError, TxnLogError):
            raise InvalidArgumentError(
                f"{value!r:.200} is not an offset of a stream over a log of format {self.kind}.", _ANOTHERS
            ) from None

    def _places(self, value: Mapping[str, Any]) -> dict[Name, Place]:
        points = self.points(value) if value else {}
        found = {name: at for name, at in points.items() if not isinstance(at, str)}
        if len(found) < len(points):
            raise ValueError("a position is missing")
        return found


def _named(topics: Mapping[str, Mapping[str, str]]) -> dict[Name, str]:
    return {
        (TopicName.parse(topic), int(index)): at
        for topic, partitions in topics.items()
        for index, at in partitions.items()
    }


def _place(text: str) -> Place:
    """Return the entry, or the message inside an entry, that a text names."""
    return MessageId.parse(text) if text.count(":") == 2 else Position.parse(text)


def _level(text: str | None) -> IsolationLevel | None:
    return None if text is None else IsolationLevel.parse(text)


def _between_entries(at: Place) -> Position:
    if isinstance(at, MessageId):
        raise ValueError("an offset ends inside an entry")
    return at
