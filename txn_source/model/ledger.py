"""Ledgers as values: what lies in one, and which copies of it there are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from txn_source.model.position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLedger:
    """What lies in a ledger; ``entries`` counts markers too."""

    ledger_id: int
    entries: int
    messages: int
    bytes: int
    created_at_ms: int

    @classmethod
    def of(cls, source: object, **more: Any) -> Self:
        """Return the ledger whose fields are attributes of a row, a message or another ledger; ``more`` are others."""
        return cls(**{f.name: getattr(source, f.name) for f in fields(cls) if f.name not in more}, **more)

    @property
    def end(self) -> Position:
        """The position behind its last entry, exclusive."""
        return Position(self.ledger_id, self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLedger(WrittenLedger):
    """A ledger that takes no more entries."""

    closed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadableLedger(ClosedLedger):
    """A closed ledger below its partition's last stable position, of which there is the hot copy alone."""

    partition: int
    partition_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger(WrittenLedger):
    """A ledger and the life of its copies; a time that has not come is None."""

    closed_at_ms: int | None
    offloaded_at_ms: int | None
    hot_deleted_at_ms: int | None

    @property
    def closed(self) -> bool:
        """True if it takes no more entries."""
        return self.closed_at_ms is not None

    @property
    def hot(self) -> bool:
        """True if its segments are still there."""
        return self.hot_deleted_at_ms is None

    @property
    def tiered(self) -> bool:
        """True if its object is complete."""
        return self.offloaded_at_ms is not None
