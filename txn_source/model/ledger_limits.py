"""When an open ledger is full: a topic's policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.policies import POLICIES, one_of
from txn_source.model.units import given_duration

NAMES = ("ledger_max_entries", "ledger_max_bytes", "ledger_max_age")


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

    @classmethod
    def of(cls, policies: Mapping[str, Any]) -> LedgerLimits:
        """Return the limits that policies set: ``ledger_max_entries``, ``ledger_max_bytes``, ``ledger_max_age``.

        Raises:
            InvalidArgumentError: another name, or a value that can't be.
        """
        given = dict(policies)
        for name, value in policies.items():
            if name not in NAMES:
                known = one_of(name, ("partitions", *NAMES, *POLICIES))
                raise InvalidArgumentError(f"{name!r} is not a policy of topics.", known)
            if name == "ledger_max_age":
                value = given[name] = given_duration(value)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1 << 53:
                raise InvalidArgumentError(f"{name} is {value!r}.", f"Use a number above 0 and below {1 << 53}.")
        unset = cls()
        return cls(
            int(given.get("ledger_max_entries", unset.max_entries)),
            int(given.get("ledger_max_bytes", unset.max_bytes)),
            int(given["ledger_max_age"] * 1000) if "ledger_max_age" in given else unset.max_age_ms,
        )
