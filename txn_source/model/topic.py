"""Topics and their partitions, as the service describes them at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.model.bounds import Bounds
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.position import Position, lost_nothing
from txn_source.model.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the service describes it; ``schema`` is a serialized Arrow schema, None for a raw topic."""

    topic_id: int
    name: TopicName
    schema: bytes | None
    limits: LedgerLimits
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition at the moment of a view."""

    partition_id: int
    index: int
    bounds: Bounds
    messages: int
    bytes: int
    trimmed_end: Position
    """The end of the last ledger that was trimmed, exclusive; 0:0 if none was."""

    def lost_nothing(self, at: Position) -> bool:
        """True if all that was trimmed lies before a position: it is at the end of the last ledger that was."""
        return lost_nothing(self.trimmed_end, at)


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic and its partitions."""

    topic: Topic
    partitions: tuple[PartitionView, ...]


@dataclass(frozen=True, slots=True)
class View:
    """Topics with all their bounds, read in one moment, at which ``decisions`` transactions had ended."""

    topics: tuple[TopicView, ...]
    decisions: int
    now_ms: int
    """The service's clock."""
