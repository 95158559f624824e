"""Where the last messages before a place begin: for whoever looks at a partition from its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.metadata.store.prepared import Prepared
from txn_source.model.kinds import DATA
from txn_source.model.position import key_of

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@dataclass(frozen=True, slots=True)
class Before:
    """``start`` (``Position.key``) is where so many messages before a place begin, or the start of what there is.

    ``is_ledger``: of the ledger that it begins no entry is known any more, so it is the whole ledger's.
    """

    start: int
    is_ledger: bool


def entries_before(connection: Connection, partition_id: int, end: int, messages: int, of_bytes: int) -> Before | None:
    """Return where the last ``messages`` before ``end`` (exclusive) begin, or a little earlier; None: there are none.

    Aborted messages count, too. If they have more than ``of_bytes`` it is where as many begin, of one entry at least.
    It goes back to the end of a ledger without entries at most, and then to its start.
    """
    of = {"partition_id": partition_id, "end": end}
    ledgers = _LEDGERS.rows(connection, of)
    if not ledgers:
        return None
    ledger_id, purged = ledgers[0]
    if purged:
        return Before(key_of(ledger_id, 0), True)
    since = next((key_of(number + 1, 0) for number, gone in ledgers if gone), 0)
    start, found, length = None, 0, 0
    for position, count, entry_bytes in _ENTRIES.rows(connection, {**of, "since": since, "most": messages}):
        length += entry_bytes
        if start is not None and length > of_bytes:
            break
        start, found = position, found + count
        if found >= messages:
            break
    return None if start is None else Before(start, False)


_LEDGERS = Prepared(
    """
    SELECT ledger_id, purged FROM ledgers
    WHERE partition_id = :partition_id AND ledger_id <= (:end - 1) >> 32 AND messages > 0
    ORDER BY ledger_id DESC LIMIT 100"""
)
_ENTRIES = Prepared(
    f"""
    SELECT position, messages, length FROM entries
    WHERE partition_id = :partition_id AND position < :end AND position >= :since AND kind = {DATA}
    ORDER BY position DESC LIMIT :most"""
)
