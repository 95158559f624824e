"""Time travel: where read_committed would have ended at a moment, by when transactions were committed.

A partition's bound at that moment was the end of what had been published by then, or the first message of a transaction
that was still open. A transaction lives as long as its timeout at most, so those that can have been open have their
messages in the time before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from txn_source.client.reading.footers import TieredPlanning
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import OutOfRangeError
from txn_source.model.kinds import ALL_DECISIONS
from txn_source.model.moments import shown_time
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic import PartitionView, Topic
from txn_source.model.transaction import MAX_TIMEOUT_MS
from txn_source.storage.arrays import numbers_in


def check_made(topic: Topic, time_us: int) -> None:
    """Raise OUT_OF_RANGE if a topic was made after a time (microseconds, UTC)."""
    if time_us < topic.created_at_ms * 1000:
        raise OutOfRangeError(
            f"The time {shown_time(time_us)} is before topic {topic.name.short!r} was made,"
            f" {shown_time(topic.created_at_ms * 1000)}.",
            "Use a later time.",
        )


def bounds_as_of(
    stub: MetadataStub, objects: TieredPlanning, partitions: Sequence[PartitionView], time_us: int
) -> list[Position]:
    """Return, for each partition, the exclusive bound that read_committed had at a time (microseconds, UTC)."""
    ids = [p.partition_id for p in partitions]
    ends = objects.find_positions(ids, time_us + 1)
    firsts = objects.find_positions(ids, time_us - MAX_TIMEOUT_MS * 1000)
    decided = stub.decisions_at(time_us)
    found = []
    for partition in partitions:
        end = ends[partition.partition_id] or partition.bounds.log_end
        first = firsts[partition.partition_id]
        bound = min(end, partition.bounds.last_stable)
        if first is not None and first < end:
            bound = min([bound, *_open_then(stub, partition.partition_id, PositionRange(first, end), decided)])
        found.append(max(bound, partition.bounds.log_start))
    return found


def _open_then(stub: MetadataStub, partition_id: int, of: PositionRange, decided: int) -> list[Position]:
    """Return the first positions of the transactions that have ended since, but not among the first so many."""
    now, then = (
        stub.list_decisions(partition_id, of, aborted_only=False, decisions=count) for count in (ALL_DECISIONS, decided)
    )
    since = ~np.isin(numbers_in(now["txn"]), numbers_in(then["txn"]))
    return [Position.from_key(key) for key in numbers_in(now["first_position"])[since].tolist()]
