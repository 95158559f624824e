"""Moving the bounds of a read to a consistent cut, by what the database knows of committed transactions.

A transaction that bounds cut in two has an entry on either side of them. So it is enough to look at those on one side:
above the bounds, which is little where they are the logs' ends; or between them and a cut that is known, which is
what a stream's batch has in it, however much lies behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, literal_column, select

from txn_source.metadata.pages import fetch
from txn_source.metadata.tables import COMMITTED, partitions, transaction_partitions
from txn_source.model.cut import CommittedSpan, ConsistentCut

_IDS_AT_ONCE = 1000
_TRACES = transaction_partitions.c


def lower_to_cut(
    connection: Connection, bounds: Mapping[int, int], starts: Mapping[int, int] | None = None
) -> dict[int, int]:
    """Return the largest consistent cut at or below exclusive bounds, keys by partition id.

    ``starts`` are a cut below the bounds, if one is known.
    """
    cut = ConsistentCut(bounds)
    if starts is not None:
        for partition_id, bound in bounds.items():
            _learn(connection, cut, partition_id, _TRACES.first_position, starts[partition_id], bound)
        cut.lower()
        return cut.bounds
    looked_down_to: dict[int, int | None] = dict.fromkeys(bounds)
    lowered = set(bounds)
    while lowered:
        for partition_id in sorted(lowered):
            low, high = cut.bounds[partition_id], looked_down_to[partition_id]
            looked_down_to[partition_id] = low
            _learn(connection, cut, partition_id, _TRACES.last_position, low, high)
        lowered = cut.lower()
    return cut.bounds


def raise_to_cut(connection: Connection, starts: Mapping[int, int], bounds: Mapping[int, int]) -> dict[int, int]:
    """Return the smallest consistent cut at or above exclusive bounds; ``starts`` are a cut below them."""
    cut = ConsistentCut(bounds)
    looked_up_to = dict(starts)
    raised = set(bounds)
    while raised:
        for partition_id in sorted(raised):
            low, high = looked_up_to[partition_id], cut.bounds[partition_id]
            looked_up_to[partition_id] = high
            _learn(connection, cut, partition_id, _TRACES.first_position, low, high)
        raised = cut.raise_()
    return cut.bounds


def _learn(
    connection: Connection, cut: ConsistentCut, partition_id: int, which: Column[Any], low: int, high: int | None
) -> None:
    """Tell the cut of the committed transactions whose first or last entry on a partition lies in ``[low, high)``."""
    query = select(_TRACES.txn).where(
        _TRACES.partition_id == partition_id,
        _TRACES.state == literal_column(str(COMMITTED)),  # as the indexes have it
        which >= low,
    )
    if high is not None:
        query = query.where(which < high)
    txns = [row[0] for row in fetch(connection, query)]
    cut.add(_spans(connection, [txn for txn in txns if not cut.knows(txn)], cut.bounds))


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
