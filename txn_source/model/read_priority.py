"""Which copy of a ledger is read first (PIP-73)."""

from __future__ import annotations

import enum
from typing import Literal

from txn_source.model.errors import InvalidArgumentError


class ReadPriority(enum.StrEnum):
    """The tier whose copy is tried first; the other one is the fallback."""

    TIERED_FIRST = "tiered-first"
    BOOKKEEPER_FIRST = "bookkeeper-first"

    @classmethod
    def parse(cls, value: ReadPriority | str) -> ReadPriority:
        """Return the priority a text names; ``tiered-storage-first``, Pulsar's spelling, means ``tiered-first``."""
        if isinstance(value, ReadPriority):
            return value
        if isinstance(value, str):
            wanted = value.strip().lower()
            if wanted == "tiered-storage-first":
                return cls.TIERED_FIRST
            for priority in cls:
                if priority.value == wanted:
                    return priority
        raise InvalidArgumentError(
            f"{value!r} is not a read priority.",
            "Use tiered-first (also spelled tiered-storage-first) or bookkeeper-first.",
        )


GivenPriority = ReadPriority | Literal["tiered-first", "tiered-storage-first", "bookkeeper-first"]
"""A priority as callers write it; other text goes through ``parse`` first."""
