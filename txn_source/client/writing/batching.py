"""When a producer writes."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.units import is_number, is_whole


@dataclass(frozen=True, slots=True)
class Batching:
    """When a producer writes what it has gathered: so many seconds after the first message, or so much of it."""

    linger_s: float = 0.01
    max_messages: int = 10_000
    max_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        if not is_number(self.linger_s) or not 0 <= self.linger_s < 1e9:
            raise InvalidArgumentError(f"linger_s is {self.linger_s!r:.80}.", "Use seconds, 0 or more.")
        for name, value in (("max_messages", self.max_messages), ("max_bytes", self.max_bytes)):
            if not is_whole(value) or value < 1:
                raise InvalidArgumentError(f"{name} is {value!r:.80}.", "Use a number, 1 or more.")
