"""Lowering the bounds of a read to a consistent cut, from what the database knows of committed transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, literal_column, select

from txn_source.metadata.pages import fetch
from txn_source.metadata.tables import COMMITTED, partitions, transaction_partitions
from txn_source.model.cut import CommittedSpan, ConsistentCut

_IDS_AT_ONCE = 1000


def lower_to_cut(connection: Connection, bounds: Mapping[int, int]) -> dict[int, int]:
    """Return the largest consistent cut at or below exclusive bounds, keys by partition id.

    Only transactions with an entry at or above a bound are looked at: where bounds are the logs' ends there are none.
    """
    cut = ConsistentCut(bounds)
    looked_down_to: dict[int, int | None] = dict.fromkeys(bounds)
    lowered = set(bounds)
    while lowered:
        for partition_id in sorted(lowered):
            low, high = cut.bounds[partition_id], looked_down_to[partition_id]
            looked_down_to[partition_id] = low
            fresh = [txn for txn in _committed_above(connection, partition_id, low, high) if not cut.knows(txn)]
            cut.add(_spans(connection, fresh, bounds))
        lowered = cut.lower()
    return cut.bounds


def _committed_above(connection: Connection, partition_id: int, low: int, high: int | None) -> list[int]:
    """Return the committed transactions whose last entry on a partition lies in ``[low, high)`` (None: no end)."""
    t = transaction_partitions
    query = select(t.c.txn).where(
        t.c.partition_id == partition_id,
        t.c.state == literal_column(str(COMMITTED)),  # as the index has it
        t.c.last_position >= low,
    )
    if high is not None:
        query = query.where(t.c.last_position < high)
    return [row[0] for row in fetch(connection, query)]


def _spans(connection: Connection, txns: Sequence[int], of: Mapping[int, int]) -> list[CommittedSpan]:
    """Return what transactions wrote to the partitions of the read and what has not been trimmed."""
    t = transaction_partitions
    found = []
    for start in range(0, len(txns), _IDS_AT_ONCE):
        query = (
            select(t.c.txn, t.c.partition_id, t.c.first_position, t.c.last_position, partitions.c.log_start)
            .join(partitions, partitions.c.partition_id == t.c.partition_id)
            .where(t.c.txn.in_(txns[start : start + _IDS_AT_ONCE]))
        )
        found += [
            CommittedSpan(row[0], row[1], max(row[2], row[4]), row[3])
            for row in fetch(connection, query)
            if row[1] in of and row[3] >= row[4]
        ]
    return found
