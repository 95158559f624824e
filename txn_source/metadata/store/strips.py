"""A partition to scale: its ledgers, open and aborted transactions, by how many messages lie before them.

Messages are counted since the partition was made. Where an old entry has left the database, its place is found from its
ledger's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.metadata.store.prepared import Prepared
from txn_source.model.kinds import ABORTED, OPEN

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@dataclass(frozen=True, slots=True)
class DrawnLedger:
    """A ledger; ``uri`` is its tiered object's, None if it has none."""

    ledger_id: int
    entries: int
    messages: int
    bytes: int
    messages_before: int
    closed: bool
    hot: bool
    uri: str | None
    created_at_ms: int
    closed_at_ms: int | None
    offloaded_at_ms: int | None


@dataclass(frozen=True, slots=True)
class DrawnTransaction:
    """A transaction on the partition: it wrote ``messages`` there, between two numbers of messages."""

    txn: int
    start: int
    end: int
    messages: int


@dataclass(frozen=True, slots=True)
class Strip:
    """The last ledgers, the first open and the last aborted transactions, ascending.

    ``older_ledgers`` is how many ledgers there are before them, from ``older_start`` messages on; ``more_open`` and
    ``more_aborted`` say that there are other transactions.
    """

    ledgers: tuple[DrawnLedger, ...]
    older_ledgers: int
    older_start: int
    open: tuple[DrawnTransaction, ...]
    more_open: bool
    aborted: tuple[DrawnTransaction, ...]
    more_aborted: bool


def strip(connection: Connection, partition_id: int, most: int) -> Strip:
    """Return what is to be drawn of a partition, so many of each kind at most."""
    of = {"partition_id": partition_id, "most": most + 1}
    rows = [_drawn(row) for row in _LAST_LEDGERS.rows(connection, of)]
    older, start = 0, rows[-1].messages_before if rows else 0
    if len(rows) > most:
        rows = rows[:most]
        [(older, start)] = _OLDER.rows(connection, {"partition_id": partition_id, "first": rows[-1].ledger_id})
    running, ended = _OPEN.rows(connection, of), _ABORTED.rows(connection, of)
    return Strip(
        tuple(reversed(rows)),
        older,
        start,
        tuple(DrawnTransaction(*row) for row in running[:most]),
        len(running) > most,
        tuple(DrawnTransaction(*row) for row in reversed(ended[:most])),
        len(ended) > most,
    )


def ledgers_of(connection: Connection, partition_id: int, offset: int, limit: int) -> tuple[int, list[DrawnLedger]]:
    """Return how many ledgers a partition has, and some of them, the last one first."""
    [(total,)] = _COUNT.rows(connection, {"partition_id": partition_id})
    of = {"partition_id": partition_id, "offset": offset, "most": limit}
    return total, [_drawn(row) for row in _LEDGERS.rows(connection, of)]


def last_before(connection: Connection, partition_id: int, ledger_id: int) -> tuple[int, int] | None:
    """Return the last ledger of a partition before another one that has entries, and how many; None: there is none."""
    found = _BEFORE.rows(connection, {"partition_id": partition_id, "ledger_id": ledger_id})
    return (found[0][0], found[0][1]) if found else None


def _drawn(row: tuple[int, int, int, int, int, int | None, int | None, str | None, int, int | None]) -> DrawnLedger:
    ledger_id, entries, messages, of_bytes, before, closed_at, hot_deleted_at, uri, created_at, offloaded_at = row
    shown = None if uri is None else uri.partition("?")[0]  # behind it may stand what nobody else is to know
    return DrawnLedger(
        ledger_id,
        entries,
        messages,
        of_bytes,
        before,
        closed_at is not None,
        hot_deleted_at is None,
        shown,
        created_at,
        closed_at,
        offloaded_at,
    )


_LEDGER_ROWS = """
    SELECT l.ledger_id, l.entries, l.messages, l.bytes, l.messages_before, l.closed_at_ms, l.hot_deleted_at_ms, c.uri,
        l.created_at_ms, l.offloaded_at_ms
    FROM ledgers AS l LEFT JOIN copies AS c ON c.ledger_id = l.ledger_id AND c.complete = 1
    WHERE l.partition_id = :partition_id
    ORDER BY l.ledger_id DESC LIMIT :most"""
_LAST_LEDGERS = Prepared(_LEDGER_ROWS)
_LEDGERS = Prepared(f"{_LEDGER_ROWS} OFFSET :offset")
_BEFORE = Prepared(
    """
    SELECT ledger_id, entries FROM ledgers
    WHERE partition_id = :partition_id AND ledger_id < :ledger_id AND entries > 0
    ORDER BY ledger_id DESC LIMIT 1"""
)
_COUNT = Prepared("SELECT COUNT(*) FROM ledgers WHERE partition_id = :partition_id")
_OLDER = Prepared(
    """
    SELECT COUNT(*), MIN(messages_before) FROM ledgers WHERE partition_id = :partition_id AND ledger_id < :first"""
)


def before(entry: str, ledger: str, position: str) -> str:
    """Return SQL for the messages before a position, of a joined entry and a joined ledger that may be absent."""
    entries = f"CASE {ledger}.entries WHEN 0 THEN 1 ELSE {ledger}.entries END"
    inside = f"{ledger}.messages * ({position} & 4294967295) / {entries}"
    return f"COALESCE({entry}.messages_before, {ledger}.messages_before + {inside}, 0)"


def _transactions(state: int, condition: str, order: str) -> Prepared:
    """Return what finds transactions of a state on a partition."""
    start, end = before("f", "fl", "w.first_position"), before("e", "el", "w.last_position")
    return Prepared(
        f"""
        SELECT w.txn, {start}, {end} + COALESCE(e.messages, 1), w.messages
        FROM transaction_partitions AS w
        LEFT JOIN entries AS f ON f.partition_id = w.partition_id AND f.position = w.first_position
        LEFT JOIN entries AS e ON e.partition_id = w.partition_id AND e.position = w.last_position
        LEFT JOIN ledgers AS fl ON fl.ledger_id = w.first_position >> 32
        LEFT JOIN ledgers AS el ON el.ledger_id = w.last_position >> 32
        WHERE w.partition_id = :partition_id AND w.state = {state} {condition}
        ORDER BY {order} LIMIT :most"""
    )


_OPEN = _transactions(OPEN, "", "w.first_position")
_ABORTED = _transactions(
    ABORTED,
    "AND w.marker_position >= (SELECT log_start FROM partitions AS p WHERE p.partition_id = :partition_id)",
    "w.marker_position DESC",
)
