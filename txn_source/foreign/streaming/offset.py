"""How far a stream has read a log that others wrote, as its checkpoint has it: JSON in a fixed order.

It is ``{"orders": {"0": 42}, "$log": {...}}``: the offsets as the format's own connector for Spark writes them, so that
its checkpoints can be read, and under a name that no topic has what tells the log and its topics from others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeGuard

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.formats import Format
from txn_source.model.errors import InvalidArgumentError, TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import LATEST, MessageId, Position
from txn_source.model.values import dataclass

_ABOUT = "$log"


@dataclass(frozen=True, slots=True)
class ForeignOffset:
    """The next position to read on each partition.

    ``level`` is the isolation level of the batch that ends here; None: the text doesn't tell it. ``log`` is what tells
    the log from others (Kafka's cluster id), ``topics`` what tells each topic from others of its name; what the format
    doesn't tell isn't there. ``begins`` is where partitions begin that are new in the batch that ends here, or that
    begin inside an entry; of a query's first offset it is where the first batch begins: Spark keeps that batch's end
    alone, so ``latest`` would be another place when it is replayed. ``turn`` is the partition that is first to get its
    share of the next batch if that is limited, by its place in the query. ``traces`` is what partitions noted of what
    lies below their positions (``ForeignPartition.trace``).
    """

    positions: Mapping[PartitionName, Position]
    level: IsolationLevel | None = None
    log: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    begins: Mapping[PartitionName, Position | MessageId] = field(default_factory=dict)
    turn: int = 0
    traces: Mapping[PartitionName, Mapping[str, Any]] = field(default_factory=dict)

    def pinned(self) -> dict[PartitionName, Position | MessageId]:
        """Return the partitions that begin here, or inside the entry here, and at what place or message."""
        return {
            name: begin
            for name, begin in self.begins.items()
            if (begin.position if isinstance(begin, MessageId) else begin) == self.positions.get(name)
        }

    def to_json(self, rules: Format) -> dict[str, Any]:
        """Return the offset as a checkpoint keeps it."""
        about: dict[str, Any] = {}
        if self.level is not None:
            about["level"] = self.level.value
        if self.log is not None:
            about["id"] = self.log
        if self.topics:
            about["topics"] = dict(sorted(self.topics.items()))
        if self.begins:
            about["begins"] = positions_json(self.begins, rules)
        if self.turn:
            about["turn"] = self.turn
        if self.traces:
            about["traces"] = [[name.topic, name.partition, {**self.traces[name]}] for name in sorted(self.traces)]
        return {**positions_json(self.positions, rules), _ABOUT: about}

    def text(self, rules: Format) -> str:
        """Return the positions as text for people."""
        return json.dumps(positions_json(self.positions, rules))

    @classmethod
    def from_json(cls, value: Any, rules: Format) -> ForeignOffset:
        """Return the offset that a checkpoint holds, or raise INVALID_ARGUMENT if that is not one of such a stream."""
        try:
            positions = {**value}
            about = positions.pop(_ABOUT, {})
            level = about.get("level")
            return cls(
                {name: at for name, at in _places(positions, rules).items() if _is_position(at)},
                None if level is None else IsolationLevel.parse(level),
                about.get("id"),
                dict(about.get("topics", {})),
                _places(about.get("begins", {}), rules),
                int(about.get("turn", 0)),
                {PartitionName(str(topic), int(part)): {**trace} for topic, part, trace in about.get("traces", ())},
            )
        except (TypeError, ValueError, AttributeError, TxnLogError):
            raise InvalidArgumentError(
                f"{value!r:.200} is not an offset of a stream over a log of format {rules.name}.",
                "The checkpoint belongs to another query: use one of its own for each query.",
            ) from None


def positions_json(positions: Mapping[PartitionName, Position | MessageId], rules: Format) -> dict[str, dict[str, Any]]:
    """Return positions as ``{"orders": {"0": 42}}``, sorted by partition."""
    topics: dict[str, dict[str, Any]] = {}
    for name in sorted(positions):
        at = positions[name]
        shown = f"{at.position}:-1:{at.batch_index}" if isinstance(at, MessageId) else rules.offset(at)
        topics.setdefault(name.topic, {})[str(name.partition)] = shown if isinstance(shown, int) else str(shown)
    return topics


def _places(value: Mapping[str, Any], rules: Format) -> dict[PartitionName, Position | MessageId]:
    points = rules.parse_side(value, LATEST).points if value else {}
    found = {name: at for name, at in points.items() if not isinstance(at, str)}
    if len(found) < len(points):
        raise ValueError("a position is missing")
    return found


def _is_position(at: Position | MessageId) -> TypeGuard[Position]:
    if isinstance(at, MessageId):
        raise ValueError("an offset ends inside an entry")
    return True
