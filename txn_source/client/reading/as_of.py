"""Time travel: where read_committed would have ended at a moment, by when transactions were committed.

A partition's bound at that moment was the end of what had been published by then, or the first message of a transaction
that was still open. A transaction lives as long as its timeout at most, so those that can have been open have their
messages in the time before.
"""

from __future__ import annotations

import numpy as np

from txn_source.client.reading.footers import TieredPlanning
from txn_source.client.reading.source import ReadPartition, Source
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import OutOfRangeError
from txn_source.model.kinds import ALL_DECISIONS
from txn_source.model.moments import shown_time
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic import Topic
from txn_source.model.transaction import MAX_TIMEOUT_MS
from txn_source.reading.log_source import Resolved
from txn_source.reading.places import Name
from txn_source.storage.arrays import numbers_in


def check_made(topic: Topic, time_us: int) -> None:
    """Raise OUT_OF_RANGE if a topic was made after a time (microseconds, UTC)."""
    if time_us < topic.created_at_ms * 1000:
        raise OutOfRangeError(
            f"The time {shown_time(time_us)} is before topic {topic.name.short!r} was made,"
            f" {shown_time(topic.created_at_ms * 1000)}.",
            "Use a later time.",
        )


def as_of(stub: MetadataStub, objects: TieredPlanning, source: Source, time_us: int) -> dict[Name, Resolved | None]:
    """Return the exclusive bound that read_committed had at a time (microseconds, UTC), by partition.

    Raises:
        OutOfRangeError: a topic that was named wasn't made yet.
    """
    for topic in source.named:
        check_made(topic, time_us)
    ids = [p.view.partition_id for p in source.partitions]
    ends = objects.find_positions(ids, time_us + 1)
    firsts = objects.find_positions(ids, time_us - MAX_TIMEOUT_MS * 1000)
    decided = stub.decisions_at(time_us)
    found: dict[Name, Resolved | None] = {}
    for partition in source.partitions:
        partition_id, bounds = partition.view.partition_id, partition.bounds
        end = ends[partition_id] or bounds.log_end
        first = firsts[partition_id]
        bound = min(end, bounds.last_stable)
        if first is not None and first < end:
            bound = min([bound, *_open_then(stub, partition_id, PositionRange(first, end), decided)])
        bound = max(bound, bounds.log_start)
        found[partition.name] = Resolved(bound, _trimmed(stub, partition, bound, time_us))
    return found


def _trimmed(stub: MetadataStub, partition: ReadPartition, end: Position, time_us: int) -> OutOfRangeError | None:
    """Return what to raise if a partition begins behind a time, because what was visible then was trimmed."""
    start = partition.bounds.log_start
    if end > start or not partition.view.trimmed_end.ledger_id:
        return None
    first = stub.list_ledgers(partition.view.partition_id, PositionRange(start, start))
    if not len(first) or first["created_at_ms"][0].as_py() * 1000 <= time_us:
        return None
    return OutOfRangeError(
        f"What {partition.label} had at {shown_time(time_us)} was trimmed: it begins with ledger"
        f" {start.ledger_id}, of {shown_time(first['created_at_ms'][0].as_py() * 1000)}.",
        "Use a later time.",
    )


def _open_then(stub: MetadataStub, partition_id: int, of: PositionRange, decided: int) -> list[Position]:
    """Return the first positions of the transactions that have ended since, but not among the first so many."""
    now, then = (
        stub.list_decisions(partition_id, of, aborted_only=False, decisions=count) for count in (ALL_DECISIONS, decided)
    )
    since = ~np.isin(numbers_in(now["txn"]), numbers_in(then["txn"]))
    return [Position.from_key(key) for key in numbers_in(now["first_position"])[since].tolist()]
