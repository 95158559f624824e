"""Which copies of ledgers there are (``copy_changes.py`` makes and deletes them)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txn_source.metadata.store.pages import PAGE_ROWS
from txn_source.metadata.store.prepared import Prepared
from txn_source.model.copies import LedgerCopies, TieredCopy
from txn_source.model.position import Position, PositionRange

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


def listing(connection: Connection, partition_id: int, of: PositionRange) -> list[LedgerCopies]:
    """Return the first so many ledgers that a range touches, ascending, each with its copies."""
    of_range = {"partition_id": partition_id, "first": of.start.ledger_id, "last": of.end.ledger_id}
    rows = _LISTED.rows(connection, of_range | {"most": PAGE_ROWS})
    return [LedgerCopies(row[0], row[1] is None, None if row[2] is None else TieredCopy(*row[2:])) for row in rows]


def hot_until(connection: Connection, partition_id: int, of: PositionRange) -> Position | None:
    """Return up to where a range can be read from hot copies, exclusive; None if not even its start can."""
    of_range = {"partition_id": partition_id, "first": of.start.ledger_id, "last": of.end.ledger_id}
    rows = _FIRST_DELETED.rows(connection, of_range)
    if not rows or rows[0][0] != of.start.ledger_id or rows[0][1] is not None:
        return None
    return min(of.end, Position(rows[1][0], 0)) if len(rows) > 1 else of.end


_LISTED = Prepared(
    """
    SELECT ledgers.ledger_id, ledgers.hot_deleted_at_ms, copies.uri, copies.size, copies.footer_bytes,
        copies.footer_crc32c
    FROM ledgers LEFT JOIN copies ON copies.ledger_id = ledgers.ledger_id AND copies.complete = 1
    WHERE ledgers.partition_id = :partition_id AND ledgers.ledger_id BETWEEN :first AND :last
    ORDER BY ledgers.ledger_id LIMIT :most"""
)
_FIRST_DELETED = Prepared(
    """
    SELECT ledger_id, hot_deleted_at_ms FROM ledgers
    WHERE partition_id = :partition_id AND ledger_id BETWEEN :first AND :last
    AND (ledger_id = :first OR hot_deleted_at_ms IS NOT NULL)
    ORDER BY ledger_id LIMIT 2"""
)
