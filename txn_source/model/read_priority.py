"""Which copy of a ledger is read first (PIP-73)."""

from __future__ import annotations

import enum

from txn_source.model.errors import InvalidArgumentError


class ReadPriority(enum.Enum):
    """The tier whose copy is tried first; the other one is the fallback."""

    TIERED_FIRST = "tiered-first"
    BOOKKEEPER_FIRST = "bookkeeper-first"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, value: ReadPriority | str) -> ReadPriority:
        """Return the priority a text names; ``tiered-storage-first``, Pulsar's spelling, means ``tiered-first``."""
        if isinstance(value, ReadPriority):
            return value
        if isinstance(value, str):
            wanted = value.strip().lower()
            for priority in cls:
                if wanted in (priority.value, "tiered-storage-first" if priority is cls.TIERED_FIRST else ""):
                    return priority
        raise InvalidArgumentError(
            f"{value!r} is not a read priority.",
            "Use tiered-first (also spelled tiered-storage-first) or bookkeeper-first.",
        )
