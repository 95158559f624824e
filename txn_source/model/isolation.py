"""Isolation levels of readers (PIP-298, Kafka ``isolation.level``) and the three isolations of a fetch (Kafka)."""

from __future__ import annotations

import enum
from typing import Literal

from txn_source.model.errors import InvalidArgumentError


class FetchIsolation(enum.Enum):
    """Which of a partition's bounds a fetch reads below (Kafka's ``FetchIsolation``)."""

    LOG_END = "log_end"
    """Replication and repair only."""
    HIGH_WATERMARK = "high_watermark"
    TXN_COMMITTED = "txn_committed"


class IsolationLevel(enum.Enum):
    """What a reader may see. The level alone decides, never the moment of the read."""

    READ_COMMITTED = "read_committed"
    """Plain messages and those of committed transactions, up to the first undecided transaction."""
    READ_UNCOMMITTED = "read_uncommitted"
    """Every message at once, those of open and aborted transactions among them."""

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, value: IsolationLevel | str) -> IsolationLevel:
        """Return the level a text names; case is ignored and ``-`` is taken for ``_``."""
        if isinstance(value, IsolationLevel):
            return value
        if isinstance(value, str):
            wanted = value.strip().lower().replace("-", "_")
            for level in cls:
                if level.value == wanted:
                    return level
        raise InvalidArgumentError(f"{value!r} is not an isolation level.", "Use read_committed or read_uncommitted.")

    @property
    def fetch_isolation(self) -> FetchIsolation:
        """The bound that a reader of this level reads below."""
        return FetchIsolation.TXN_COMMITTED if self is IsolationLevel.READ_COMMITTED else FetchIsolation.HIGH_WATERMARK


GivenLevel = IsolationLevel | Literal["read_committed", "read_uncommitted"]
"""A level as callers write it, so that an editor refuses what isn't one; other text goes through ``parse`` first."""
