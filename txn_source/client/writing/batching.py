"""When a producer writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Batching:
    """When a producer writes what it has gathered: so long after the first message, or so much of it."""

    linger_s: float = 0.01
    max_messages: int = 10_000
    max_bytes: int = 4 << 20
