"""When an open ledger is full: a topic's policy."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.model.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """The open ledger is rolled once it has this many entries or bytes, or is this old; an empty one never is."""

    max_entries: int = 50_000
    max_bytes: int = 1 << 30
    max_age_ms: int = 4 * 3600 * 1000

    def __post_init__(self) -> None:
        for name, value in (("entries", self.max_entries), ("bytes", self.max_bytes), ("age", self.max_age_ms)):
            if value <= 0:
                raise InvalidArgumentError(f"ledger_max_{name} is {value}.", "Use a number above 0.")

    def full(self, entries: int, size_bytes: int, age_ms: int) -> bool:
        """Return whether a ledger of that many entries and bytes, and that age, is to be closed."""
        if entries == 0:
            return False
        return entries >= self.max_entries or size_bytes >= self.max_bytes or age_ms >= self.max_age_ms
