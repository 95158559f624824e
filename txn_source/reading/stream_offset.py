"""How far a streaming query has read, and its two texts: readable JSON with keys in a fixed order.

That of our own log is ``{"epoch": 0, "decisions": 7, "level": ..., "positions": {"orders": {"0": "12:40"}}}``; that of
others' ``{"orders": {"0": 42}, "$log": {...}}``, the offsets as Kafka's own connector for Spark writes them, so that
its checkpoints can be read, and under a name that no topic has what tells the log and its topics from others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from txn_source.model.errors import InvalidArgumentError, TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.place_text import ABOUT_LOG
from txn_source.model.position import MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass
from txn_source.reading.places import Name, Place, by_topic

_ANOTHERS = "The checkpoint belongs to another query: use one of its own for each query."


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next position to read on each partition.

    ``level`` is the isolation level of the batch that ends here: the query's options, or an operator, may say another
    one before it is replayed. None: the text doesn't tell it.

    ``begins`` is where partitions begin in the batch that ends here, if that isn't where the one before ended: because
    they are new (what is trimmed of them later is lost, and a batch that is replayed must say so), because something
    was lost, because the subscription that the query follows was moved, or because they begin inside an entry. Of a
    query's first offset it is where the first batch begins: of that batch Spark keeps the end alone.

    ``turn`` is the partition that is first to get its share of the next batch if that is limited, by its place among
    the partitions of the query.

    Of our own log: ``decisions`` is how many transactions had ended when it was taken: a batch that is replayed shows
    each transaction's status as it did at first. ``subscription`` is the id of the one that the query follows, None
    without; ``epoch`` is its epoch.

    Of others' logs: ``log`` is what tells the log from others (Kafka's cluster id), ``topics`` what tells each topic
    from others of its name; what the format doesn't tell isn't there. ``traces`` is what partitions noted of what lies
    below their positions (``SourcePartition.trace``).
    """

    positions: Mapping[Name, Position]
    level: IsolationLevel | None = None
    begins: Mapping[Name, Place] = field(default_factory=dict)
    turn: int = 0
    decisions: int = 0
    epoch: int = 0
    subscription: int | None = None
    log: str | None = None
    topics: Mapping[Any, str] = field(default_factory=dict)
    traces: Mapping[Name, Mapping[str, Any]] = field(default_factory=dict)

    def next(self, name: Name) -> Place | None:
        """Return where the next batch begins on a partition: at its position or inside the entry; None: it is new."""
        at, begin = self.positions.get(name), self.begins.get(name)
        return begin if begin is not None and at == position_of(begin) else at


def position_of(place: Place) -> Position:
    """Return the position of an entry, or of that which a message lies in."""
    return place.position if isinstance(place, MessageId) else place


class OwnOffsets:
    """The text of streams over our own log."""

    def to_json(self, offset: StreamOffset) -> dict[str, Any]:
        """Return the offset as a checkpoint keeps it."""
        value: dict[str, Any] = {"epoch": offset.epoch, "decisions": offset.decisions}
        if offset.level is not None:
            value["level"] = offset.level.value
        if offset.turn:
            value["turn"] = offset.turn
        value["positions"] = by_topic(offset.positions)
        if offset.begins:
            value["begins"] = by_topic(offset.begins)
        if offset.subscription is not None:
            value["subscription"] = offset.subscription
        return value

    def from_json(self, value: Any) -> StreamOffset:
        """Return the offset that a checkpoint holds, or raise INVALID_ARGUMENT if that is not one of ours."""
        try:
            subscription = value.get("subscription")
            return StreamOffset(
                {name: Position.parse(at) for name, at in _named(value["positions"]).items()},
                _level(value.get("level")),
                {name: _place(at) for name, at in _named(value.get("begins", {})).items()},
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
    """Returns a place as the log's text has it."""
    points: Callable[[Mapping[str, Any]], Mapping[Name, Place | str]]
    """Returns the places that such a text names."""

    def to_json(self, offset: StreamOffset) -> dict[str, Any]:
        """Return the offset as a checkpoint keeps it."""
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
        """Return the offset that a checkpoint holds, or raise INVALID_ARGUMENT if that is not one of such a stream."""
        try:
            positions = {**value}
            about = positions.pop(ABOUT_LOG, {})
            traces = {(str(topic), int(number)): {**trace} for topic, number, trace in about.get("traces", ())}
            return StreamOffset(
                {name: _between_entries(at) for name, at in self._places(positions).items()},
                _level(about.get("level")),
                self._places(about.get("begins", {})),
                int(about.get("turn", 0)),
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
    """Return the entry, or the message inside one, that a text names."""
    return MessageId.parse(text) if text.count(":") == 2 else Position.parse(text)


def _level(text: str | None) -> IsolationLevel | None:
    return None if text is None else IsolationLevel.parse(text)


def _between_entries(at: Place) -> Position:
    if isinstance(at, MessageId):
        raise ValueError("an offset ends inside an entry")
    return at
