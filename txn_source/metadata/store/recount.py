"""Counting anew what the database keeps as totals, bounds and states, and telling where that disagrees.

One partition is one moment. Ledgers whose entries left the database are taken for what their rows say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from txn_source.metadata.store.pages import ENTRY_COLUMNS, entry_rows, to_table
from txn_source.metadata.store.prepared import Prepared
from txn_source.model.kinds import DATA, OPEN
from txn_source.model.position import key_of, text_of

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@dataclass(frozen=True, slots=True)
class Counted:
    """A partition whose totals are to be counted, and how many entries that are."""

    partition_id: int
    topic: str
    index: int
    entries: int


@dataclass(frozen=True, slots=True)
class Difference:
    """What is stored, and what it must be: of a ledger of a partition, or of the partition (None)."""

    what: str
    ledger_id: int | None
    stored: int
    found: int


def counted_partitions(connection: Connection) -> list[Counted]:
    """Return all partitions of the log."""
    return [Counted(row[0], row[1], row[2], int(row[3])) for row in _PARTITIONS.rows(connection, {})]


def recount(connection: Connection, partition_id: int) -> Iterator[Difference]:
    """Yield where the totals of a partition and of its ledgers aren't what their entries give."""
    of = {"partition_id": partition_id}
    for log_start, open_id, messages, size in _PARTITION.rows(connection, of):
        ledgers = _LEDGERS.rows(connection, of)
        if not ledgers:
            yield Difference("open ledger", None, open_id, 0)
            return
        first, last = ledgers[0][0], ledgers[-1][0]
        if log_start != key_of(first, 0):
            yield Difference("log start", None, log_start, key_of(first, 0))
        if open_id != last or ledgers[-1][6] is not None:
            yield Difference("open ledger", None, open_id, last)
        for ledger in ledgers:
            ledger_id, entries, in_it, in_bytes, before, bytes_before, closed_at, purged = ledger
            if closed_at is None and ledger_id != last:
                yield Difference("time of closing", ledger_id, 0, 1)
            yield from _differing(
                ledger_id, (("messages before", before, messages), ("bytes before", bytes_before, size))
            )
            messages, size = before + in_it, bytes_before + in_bytes
            if not purged:
                yield from _of_ledger(connection, of, ledger_id, (entries, in_it, in_bytes, before, bytes_before))


def _of_ledger(
    connection: Connection, of: dict[str, int], ledger_id: int, stored: tuple[int, int, int, int, int]
) -> Iterator[Difference]:
    """Compare a ledger's row (entries, messages, bytes, and both before it) with its entries."""
    span = of | {"start": key_of(ledger_id, 0), "end": key_of(ledger_id + 1, 0)}
    entries, messages, size, before, bytes_before = stored
    [(count, found, found_bytes, lowest, highest)] = _SUMS.rows(connection, span)
    yield from _differing(
        ledger_id,
        (("entries", entries, count), ("messages", messages, int(found or 0)), ("bytes", size, int(found_bytes or 0))),
    )
    if not count:
        return
    yield from _differing(
        ledger_id,
        (
            ("first position", lowest, key_of(ledger_id, 0)),
            ("last position", highest, key_of(ledger_id, count - 1)),
        ),
    )
    starts = {"messages": before, "bytes": bytes_before}
    [(wrong, wrong_bytes)] = _RUNNING.rows(connection, span | starts)
    yield from _differing(
        ledger_id,
        (("entries with right running messages", count - int(wrong or 0), count),
         ("entries with right running bytes", count - int(wrong_bytes or 0), count)),
    )  # fmt: skip


def _differing(ledger_id: int, pairs: tuple[tuple[str, int, int], ...]) -> Iterator[Difference]:
    for what, stored, found in pairs:
        if stored != found:
            yield Difference(what, ledger_id, stored, found)


def sealed_pages(connection: Connection, partition_id: int) -> list[tuple[int, int]]:
    """Return the first and last position of each page of entries of a partition."""
    return [(first, last) for first, last in _PAGES.rows(connection, {"partition_id": partition_id})]


def page_differs(connection: Connection, partition_id: int, first: int, last: int) -> bool:
    """True if a page of entries isn't what their rows say; False if it is gone meanwhile."""
    rows = _PAGE.rows(connection, {"partition_id": partition_id, "first": first})
    if not rows:
        return False
    try:
        with pa.ipc.open_stream(rows[0][0]) as reader:
            sealed = reader.read_all()
    except (pa.ArrowException, OSError):
        return True
    there = to_table(entry_rows(connection, partition_id, first, last + 1, sealed.num_rows + 1), ENTRY_COLUMNS)
    return not sealed.equals(there)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """How many rows say something of a transaction that others deny, and the first such transaction."""

    what: str
    rows: int
    txn: int


def contradictions(connection: Connection) -> Iterator[Contradiction]:
    """Yield what the tables say of transactions that can't be."""
    for what, statement in _CONTRADICTIONS.items():
        for count, txn in statement.rows(connection, {}):
            if count:
                yield Contradiction(what, count, txn)


def shown(what: str, value: int) -> str:
    """Return a value of a difference as text: positions as such."""
    return text_of(value) if what.endswith(("position", "start")) else f"{value:,}"


_PARTITIONS = Prepared(
    """
    SELECT p.partition_id, t.name, p.partition_index, (
        SELECT COALESCE(SUM(l.entries), 0) FROM ledgers AS l WHERE l.partition_id = p.partition_id AND l.purged = 0)
    FROM partitions AS p JOIN topics AS t ON t.topic_id = p.topic_id ORDER BY t.name, p.partition_index"""
)
_PARTITION = Prepared(
    """
    SELECT log_start, open_ledger_id, messages_trimmed, bytes_trimmed FROM partitions
    WHERE partition_id = :partition_id"""
)
_LEDGERS = Prepared(
    """
    SELECT ledger_id, entries, messages, bytes, messages_before, bytes_before, closed_at_ms, purged
    FROM ledgers WHERE partition_id = :partition_id ORDER BY ledger_id"""
)
_SPAN = "partition_id = :partition_id AND position >= :start AND position < :end"
_SUMS = Prepared(
    f"""
    SELECT COUNT(*), SUM(messages), SUM(CASE WHEN kind = {DATA} THEN length ELSE 0 END), MIN(position), MAX(position)
    FROM entries WHERE {_SPAN}"""
)
_RUNNING = Prepared(
    f"""
    SELECT SUM(CASE WHEN messages_before <> of_messages THEN 1 ELSE 0 END),
        SUM(CASE WHEN bytes_before <> of_bytes THEN 1 ELSE 0 END)
    FROM (
        SELECT messages_before, bytes_before,
            COALESCE(LAG(messages_before + messages) OVER in_order, :messages) AS of_messages,
            COALESCE(LAG(bytes_before + length) OVER in_order, :bytes) AS of_bytes
        FROM entries WHERE {_SPAN} WINDOW in_order AS (ORDER BY position)) AS running"""
)
_PAGES = Prepared(
    "SELECT first_position, last_position FROM entry_pages WHERE partition_id = :partition_id ORDER BY first_position"
)
_PAGE = Prepared("SELECT data FROM entry_pages WHERE partition_id = :partition_id AND first_position = :first")
_CONTRADICTIONS = {
    "are in another state on a partition": Prepared(
        """
        SELECT COUNT(*), MIN(t.txn) FROM transaction_partitions AS w JOIN transactions AS t ON t.txn = w.txn
        WHERE w.state <> t.state"""
    ),
    "have ended on a partition without a marker": Prepared(
        f"SELECT COUNT(*), MIN(txn) FROM transaction_partitions WHERE state <> {OPEN} AND marker_position IS NULL"
    ),
    "are open on a partition with a marker": Prepared(
        f"SELECT COUNT(*), MIN(txn) FROM transaction_partitions WHERE state = {OPEN} AND marker_position IS NOT NULL"
    ),
    "have a marker that is no entry": Prepared(
        f"""
        SELECT COUNT(*), MIN(w.txn) FROM transaction_partitions AS w
        JOIN ledgers AS l ON l.ledger_id = (w.marker_position >> 32) AND l.purged = 0
        LEFT JOIN entries AS e ON e.partition_id = w.partition_id AND e.position = w.marker_position
        WHERE w.marker_position IS NOT NULL AND (e.position IS NULL OR e.kind = {DATA} OR e.txn <> w.txn)"""
    ),
    "have entries on a partition that knows nothing of them": Prepared(
        """
        SELECT COUNT(*), MIN(e.txn) FROM entries AS e
        LEFT JOIN transaction_partitions AS w ON w.txn = e.txn AND w.partition_id = e.partition_id
        WHERE e.txn IS NOT NULL AND w.txn IS NULL"""
    ),
    "are decided beyond the log's count of decisions": Prepared(
        """
        SELECT COUNT(*), MIN(txn) FROM transactions
        WHERE decision > (SELECT decisions FROM log_info) OR txn > (SELECT transactions FROM log_info)"""
    ),
}
