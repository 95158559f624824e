"""What goes from the start of a partition."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.model.position import Position


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What went from one partition; ``held_by`` is the subscription that more was kept for, if there is one."""

    partition: int
    ledgers: int
    messages: int
    bytes: int
    log_start: Position
    held_by: str | None = None
