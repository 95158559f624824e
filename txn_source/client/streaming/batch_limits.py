"""How much one batch of a stream takes: limits by messages, as a reader of the level sees them, and by bytes.

All limits are soft: they end a batch behind an entry, and one entry is always taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.request import ReadRequest
from txn_source.client.reading.source import ReadPartition
from txn_source.model.batch_shares import DEFAULT_DELAY_S, UNLIMITED, shared_ends
from txn_source.model.kinds import ALL_DECISIONS
from txn_source.model.packing import Slice
from txn_source.model.position import Position, PositionRange
from txn_source.model.values import dataclass

if TYPE_CHECKING:
    from txn_source.client.reading.slice_reader import SliceReader


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Of one batch: at most so many messages and bytes; at least so many messages, unless ``max_delay_s`` have passed
    since the last batch. None: no limit."""

    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_delay_s: float = DEFAULT_DELAY_S


class Admission:
    """Counts what a reader would see between positions, without reading messages."""

    def __init__(self, access: Access, request: ReadRequest) -> None:
        self._access = access
        self._request = request

    @cached_property
    def _reader(self) -> SliceReader:
        from txn_source.client.reading.slice_reader import SliceReader  # a stream without limits plans without it

        return SliceReader.of(self._access, pa.schema([]), self._request, ALL_DECISIONS)

    def admit(
        self,
        partitions: Sequence[ReadPartition],
        starts: Sequence[Position],
        tops: Sequence[Position],
        limits: StreamLimits,
        turn: int,
    ) -> tuple[list[Position], int]:
        """Return an end for each partition, at or below its top, and the next turn; see ``shared_ends``."""

        def take(index: int, messages: int, size: int) -> tuple[Position, int, int]:
            return self._take(partitions[index], starts[index], tops[index], messages, size)

        return shared_ends(starts, tops, limits.max_messages, limits.max_bytes, turn, take)

    def count(
        self, partitions: Sequence[ReadPartition], starts: Sequence[Position], ends: Sequence[Position], enough: int
    ) -> int:
        """Return how many messages a reader sees between positions; the count stops at ``enough``."""
        found = 0
        for partition, start, end in zip(partitions, starts, ends, strict=True):
            if found < enough and start < end:
                found += self._take(partition, start, end, enough - found, UNLIMITED)[1]
        return found

    def _take(
        self, partition: ReadPartition, start: Position, top: Position, messages: int, size: int
    ) -> tuple[Position, int, int]:
        """Return the end at which one of the limits is reached, and what lies before it.

        That is the next entry that is seen, not the position behind the last one: so nothing is left over that would
        be a batch without messages, and the end doesn't lie in a ledger that is no longer needed and may be trimmed.
        """
        piece = Slice(
            partition.topic.short, partition.view.index, partition.view.partition_id, PositionRange(start, top), 0
        )
        taken, taken_bytes, full = 0, 0, False
        for part in self._reader.visible_entries(piece):
            positions, beyond = part.columns["position"], 0
            if not full:
                rows_to = taken + np.cumsum(part.columns["messages"])
                bytes_to = taken_bytes + np.cumsum(part.columns["length"])
                reached = (rows_to >= messages) | (bytes_to >= size)
                full = bool(reached.any())
                beyond = int(np.argmax(reached)) + 1 if full else len(positions)
                taken, taken_bytes = int(rows_to[beyond - 1]), int(bytes_to[beyond - 1])
            if beyond < len(positions):
                return Position.from_key(int(positions[beyond])), taken, taken_bytes
        return top, taken, taken_bytes
