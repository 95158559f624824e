"""Where a subscription's cursors stand on the scale of a strip."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.strips import before

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@dataclass(frozen=True, slots=True)
class CursorPlace:
    """The mark of a cursor, as position and index, and how many messages lie before it since the partition was made."""

    position: int
    index: int
    messages: int


def cursor_places(connection: Connection, subscription_id: int, partition_ids: Iterable[int]) -> dict[int, CursorPlace]:
    """Return a subscription's places by partition id; none of partitions that it doesn't have."""
    found = {}
    for partition_id in partition_ids:
        for row in _PLACE.rows(connection, {"subscription_id": subscription_id, "partition_id": partition_id}):
            found[partition_id] = CursorPlace(*row)
    return found


_PLACE = Prepared(
    f"""
    SELECT c.mark, c.mark_index, {before("e", "l", "c.mark")} + c.mark_index
    FROM (
        SELECT k.partition_id, CASE WHEN mark_position < log_start THEN log_start ELSE mark_position END AS mark,
            CASE WHEN mark_position < log_start THEN 0 ELSE mark_index END AS mark_index
        FROM cursors AS k JOIN partitions AS p ON p.partition_id = k.partition_id
        WHERE k.subscription_id = :subscription_id AND k.partition_id = :partition_id
    ) AS c
    LEFT JOIN entries AS e ON e.partition_id = c.partition_id AND e.position = c.mark
    LEFT JOIN ledgers AS l ON l.ledger_id = c.mark >> 32"""
)
