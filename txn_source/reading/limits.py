"""How much one batch of a stream takes: limits by messages, by bytes, and by offsets where positions are numbers.

Messages are those that a reader of the level sees; of others' logs those that are stored, which is all that counting
them can tell. All limits are soft: they end a batch behind an entry, or a message that has a position of its own, and
one is always taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from txn_source.model.batch_shares import DEFAULT_DELAY_S, UNLIMITED, shared_ends
from txn_source.model.position import Position, PositionRange
from txn_source.model.values import dataclass
from txn_source.reading.log_source import Rows


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Of one batch: at most so many messages, bytes and offsets; at least so many messages and offsets, unless
    ``max_delay_s`` have passed since the last batch. None: no limit."""

    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_delay_s: float = DEFAULT_DELAY_S
    max_offsets: int | None = None
    min_offsets: int | None = None

    @property
    def limited(self) -> bool:
        """True if a batch may end before everything was taken."""
        return not (self.max_offsets is None and self.max_messages is None and self.max_bytes is None)

    @property
    def patient(self) -> bool:
        """True if a batch may have to wait for more."""
        return not (self.min_offsets is None and self.min_messages is None)


def admit(
    rows: Rows,
    partitions: Sequence[Any],
    starts: Sequence[Position],
    tops: Sequence[Position],
    limits: StreamLimits,
    turn: int,
) -> tuple[list[Position], int]:
    """Return an end for each partition, at or below its top, and the next turn; see ``shared_ends``."""
    if limits.max_offsets is not None:
        tops = by_offsets(starts, tops, limits.max_offsets)
    if limits.max_messages is None and limits.max_bytes is None:
        return list(tops), turn

    def take(index: int, messages: int, size: int) -> tuple[Position, int, int]:
        return rows.take(partitions[index], PositionRange(starts[index], tops[index]), messages, size)

    return shared_ends(starts, tops, limits.max_messages, limits.max_bytes, turn, take)


def by_offsets(starts: Sequence[Position], tops: Sequence[Position], most: int) -> list[Position]:
    """Return ends that take at most about so many offsets, of each partition in proportion to what it has.

    As Kafka's own connector does it: no share is rounded down to nothing.
    """
    sizes = [top.key - start.key for start, top in zip(starts, tops, strict=True)]
    total = sum(sizes)
    if total <= most:
        return list(tops)
    shares = [most * size / total for size in sizes]
    takes = [math.ceil(share) if share < 1 else math.floor(share) for share in shares]
    return [min(top, Position.from_key(start.key + take)) for start, top, take in zip(starts, tops, takes, strict=True)]


def too_few(
    rows: Rows, partitions: Sequence[Any], starts: Sequence[Position], tops: Sequence[Position], limits: StreamLimits
) -> bool:
    """True if less lies between positions than a batch is to have at least."""
    ranges = [PositionRange(start, top) for start, top in zip(starts, tops, strict=True)]
    if limits.min_offsets is not None and sum(of.end.key - of.start.key for of in ranges) < limits.min_offsets:
        return True
    found, wanted = 0, limits.min_messages or 0
    for partition, of in zip(partitions, ranges, strict=True):
        if found < wanted and not of.empty:
            found += rows.take(partition, of, wanted - found, UNLIMITED)[1]
    return found < wanted
