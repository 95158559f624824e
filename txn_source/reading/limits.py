"""Limits of one batch of a stream: by messages, by bytes, and by offsets where positions are numbers.

On our own log, limits count the messages that a reader of the level sees; on others' logs they count stored messages,
aborted ones included. Limits are soft: a batch ends behind an entry (behind a message, if messages have positions),
and takes one at least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from txn_source.model.batch_shares import DEFAULT_DELAY_S, UNLIMITED, shared_ends
from txn_source.model.position import Position, PositionRange
from txn_source.reading.log_source import Rows


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The most messages, bytes and offsets of a batch, and the fewest messages and offsets. For these a batch waits
    up to ``max_delay_s`` seconds after the last one. None: no limit."""

    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_delay_s: float = DEFAULT_DELAY_S
    max_offsets: int | None = None
    min_offsets: int | None = None

    @property
    def limited(self) -> bool:
        """True if a batch may end before the log does."""
        return not (self.max_offsets is None and self.max_messages is None and self.max_bytes is None)

    @property
    def patient(self) -> bool:
        """True if a batch may wait for more messages."""
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
    """Return ends that take about so many offsets at most, from each partition in proportion to what it has.

    Kafka's own connector rounds in the same way: no share is rounded down to 0.
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
    """True if fewer messages or offsets lie between positions than a batch must have."""
    ranges = [PositionRange(start, top) for start, top in zip(starts, tops, strict=True)]
    if limits.min_offsets is not None and sum(of.end.key - of.start.key for of in ranges) < limits.min_offsets:
        return True
    found, wanted = 0, limits.min_messages or 0
    for partition, of in zip(partitions, ranges, strict=True):
        if found < wanted and not of.empty:
            found += rows.take(partition, of, wanted - found, UNLIMITED)[1]
    return found < wanted
