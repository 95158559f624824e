"""The copies of a ledger, and the order in which a reader tries them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from txn_source.model.position import Position
from txn_source.model.read_priority import ReadPriority


class Tier(enum.StrEnum):
    """Where a copy of a ledger's bytes lies."""

    BOOKKEEPER = "bookkeeper"
    """Hot: segments, written by producers."""
    TIERED = "tiered"
    """Offloaded: one object for each ledger."""


@dataclass(frozen=True, slots=True)
class TieredCopy:
    """A complete offloaded copy: one object.

    ``uri`` is relative to the log's root if it has no scheme. The footer, ``footer_bytes`` long, ends the object of
    ``size`` bytes; its CRC-32C tells the object from any other that somebody put in its place.
    """

    uri: str
    size: int
    footer_bytes: int
    footer_crc32c: int


@dataclass(frozen=True, slots=True)
class LedgerCopies:
    """The copies of one ledger that can be read now; an incomplete offload is none."""

    ledger_id: int
    hot: bool
    tiered: TieredCopy | None

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers that have a copy."""
        return tuple(t for t, there in ((Tier.BOOKKEEPER, self.hot), (Tier.TIERED, self.tiered is not None)) if there)

    def in_order(self, priority: ReadPriority) -> tuple[Tier, ...]:
        """Return the tiers that have a copy, the one to be read first in front."""
        first = Tier.BOOKKEEPER if priority is ReadPriority.BOOKKEEPER_FIRST else Tier.TIERED
        return tuple(sorted(self.tiers, key=lambda tier: tier is not first))


@dataclass(frozen=True, slots=True)
class CopyFailure:
    """A copy that a read had to leave, where, and why."""

    topic: str
    partition: int
    ledger_id: int
    tier: Tier
    position: Position
    reason: str


@dataclass(slots=True)
class CopiesRead:
    """Which copies a read has taken so far: ledgers by tier, and those copies that failed."""

    ledgers: dict[Tier, set[int]] = field(default_factory=lambda: {tier: set() for tier in Tier})
    failures: list[CopyFailure] = field(default_factory=list)

    @property
    def hot_ledgers(self) -> int:
        """Of how many ledgers messages came from the hot copy."""
        return len(self.ledgers[Tier.BOOKKEEPER])

    @property
    def tiered_ledgers(self) -> int:
        """Of how many ledgers messages came from the tiered copy."""
        return len(self.ledgers[Tier.TIERED])

    def __str__(self) -> str:
        return f"{self.hot_ledgers} hot and {self.tiered_ledgers} tiered ledgers, {len(self.failures)} failed copies"
