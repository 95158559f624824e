"""How much one batch of a stream takes: limits by offsets, by records, and by stored bytes.

Records are counted as they are stored: markers are none, and those of aborted transactions are some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from txn_source.foreign.foreign_log import ForeignPartition
from txn_source.model.batch_shares import DEFAULT_DELAY_S, UNLIMITED, shared_ends
from txn_source.model.position import Position, PositionRange
from txn_source.model.values import dataclass


@dataclass(frozen=True, slots=True)
class ForeignLimits:
    """Of one batch: at most so many offsets, records and bytes; at least so many, unless ``max_delay_s`` have passed
    since the last batch. None: no limit. Offsets are those of formats whose positions are numbers."""

    max_offsets: int | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    min_messages: int | None = None
    max_delay_s: float = DEFAULT_DELAY_S

    @property
    def limited(self) -> bool:
        """True if a batch may end before everything was taken."""
        return not (self.max_offsets is None and self.max_messages is None and self.max_bytes is None)

    @property
    def patient(self) -> bool:
        """True if a batch may have to wait for more."""
        return not (self.min_offsets is None and self.min_messages is None)


def admit(
    partitions: Sequence[ForeignPartition],
    starts: Sequence[Position],
    tops: Sequence[Position],
    limits: ForeignLimits,
    turn: int,
) -> tuple[list[Position], int]:
    """Return an end for each partition, at or below its top, and the next turn; see ``shared_ends``."""
    if limits.max_offsets is not None:
        tops = by_offsets(starts, tops, limits.max_offsets)
    if limits.max_messages is None and limits.max_bytes is None:
        return list(tops), turn

    def take(index: int, messages: int, size: int) -> tuple[Position, int, int]:
        taken = partitions[index].take(PositionRange(starts[index], tops[index]), messages, size)
        return taken.end, taken.rows, taken.bytes

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
    partitions: Sequence[ForeignPartition],
    starts: Sequence[Position],
    tops: Sequence[Position],
    limits: ForeignLimits,
) -> bool:
    """True if less lies between positions than a batch is to have at least."""
    ranges = [PositionRange(start, top) for start, top in zip(starts, tops, strict=True) if start < top]
    if limits.min_offsets is not None and sum(of.end.key - of.start.key for of in ranges) < limits.min_offsets:
        return True
    if limits.min_messages is None:
        return False
    found = 0
    for partition, start, top in zip(partitions, starts, tops, strict=True):
        if found < limits.min_messages and start < top:
            found += partition.take(PositionRange(start, top), limits.min_messages - found, UNLIMITED).rows
    return found < limits.min_messages
