"""A log that is put back to what it was has lost a future: nothing that was given out in it is given out again.

Whoever has seen that future keeps positions, ids and epochs of it: checkpoints of streams, producers that try again,
consumers. Would the log go on where it was put back to, these would soon mean something else, and nobody could tell. So
it goes on behind a gap: what lies in the gap is of no ledger, transaction, producer or subscription, and is refused.
"""

from __future__ import annotations

from sqlalchemy import Connection, Identity, Table, delete, func, select, text, update

from txn_source.metadata.store import consumers, producers, transactions
from txn_source.metadata.store.partition_tail import Tail
from txn_source.metadata.store.tables import consumers as consumer_table
from txn_source.metadata.store.tables import copies, log_info, metadata, partitions, requests, roots, subscriptions
from txn_source.metadata.store.tables import transactions as transaction_table
from txn_source.model.errors import LimitExceededError
from txn_source.model.kinds import OPEN
from txn_source.model.position import MAX_LEDGER_ID
from txn_source.model.transaction import MAX_TIMEOUT_MS, EndReason

GAP = 1 << 20
"""So many ledgers are passed over at least: more than a log makes between two backups."""
_FEW = ("topics", "partitions", "ledgers", "subscriptions")
_WIDER = 12
"""Bits by which the gap is larger for ids that are given out faster than those of ledgers."""
_SPARE_LEDGERS = 1 << 24
_AT_ONCE = 500


def gap_after(lost_us: int) -> int:
    """Return the gap for a log that is put back to what it was so long ago, in microseconds.

    It grows with time, so that a log that is put back twice to one moment doesn't give out the same ids after each: by
    15 ledgers a second, and thousands of times as many of what there is more of.
    """
    return GAP + max(0, lost_us) // 64_000


def pass_over(connection: Connection, now_us: int, gap: int = GAP) -> None:
    """Let a log that was put back go on behind a gap, in a write transaction.

    - Ids, and the counts of transactions begun and ended, go on behind a gap.
    - Each partition's open ledger is closed where it is, empty ones too, and a new one opened: positions behind its end
      are no positions.
    - Open transactions are aborted: what they wrote later is lost, so a commit would show a part. An import's stay,
      since it goes on from what the log knows of it.
    - Open producers have ended, and what they wrote and didn't register is unknown.
    - Consumers are out, and the epoch of each subscription is another one, so that what comes from before changes
      nothing, and streams begin where the subscription stands.
    - Answers that were kept for those who ask again are forgotten.

    Raises:
        LimitExceededError: too few ids of ledgers are left.
    """
    wide = gap << _WIDER
    last_ledger = _raise_ids(connection, gap)
    connection.execute(
        update(log_info).values(transactions=log_info.c.transactions + wide, decisions=log_info.c.decisions + wide)
    )
    ids = list(connection.execute(select(partitions.c.partition_id).order_by(partitions.c.partition_id)).scalars())
    for start in range(0, len(ids), _AT_ONCE):
        tails = Tail.load_all(connection, ids[start : start + _AT_ONCE], now_us).values()
        for tail in tails:
            if tail.ledger_id <= last_ledger:  # else it was full, and has been replaced
                tail.roll(connection, even_if_empty=True)
        Tail.store_all(connection, list(tails))
        for tail in tails:
            tail.seal(connection)
    t = transaction_table.c
    of_clients = select(t.txn).where(t.state == OPEN, t.timeout_ms <= MAX_TIMEOUT_MS).order_by(t.txn)
    for txn in connection.execute(of_clients).scalars().all():
        transactions.end(connection, txn, commit=False, reason=EndReason.FORCED, now_us=now_us)
    producers.lose_all(connection)
    for consumer_id in connection.execute(select(consumer_table.c.consumer_id)).scalars().all():
        consumers.remove(connection, consumer_id)
    connection.execute(update(subscriptions).values(epoch=subscriptions.c.epoch + gap))
    connection.execute(delete(requests))


def pass_over_since_last_look(connection: Connection, now_us: int) -> None:
    """Let a log go on behind a gap that is as wide as is needed since somebody last looked at it; see ``recovered``."""
    recovered(connection, now_us, last_look_us(connection) or now_us)


def last_look_us(connection: Connection) -> int:
    """Return when somebody last looked at a log, since the epoch; 0: nobody has."""
    looked_at_ms: int = connection.execute(select(log_info.c.looked_at_ms)).scalar_one()
    return looked_at_ms * 1000


def recovered(connection: Connection, now_us: int, since_us: int) -> None:
    """Let a log whose database was put back to an earlier moment go on behind a gap; see ``pass_over``.

    What it lost since lies in its roots, until the operator settles that. Its offloads under way may have been
    completed then: their objects are neither given up nor deleted.
    """
    connection.execute(delete(copies).where(copies.c.complete == 0))
    connection.execute(update(log_info).values(recovered_at_ms=now_us // 1000))
    pass_over(connection, now_us, gap_after(now_us - since_us))


def _raise_ids(connection: Connection, gap: int) -> int:
    """Let all ids that the database counts go on behind a gap; return the highest ledger id before it.

    Those of hot roots don't: they are few, and each is a place in a set.
    """
    before = 0
    for table in metadata.sorted_tables:
        column = next((c for c in table.columns if isinstance(c.identity, Identity)), None)
        if column is None or table is roots:
            continue
        highest = _highest_id(connection, table, column.name)
        raised = highest + (gap if table.name in _FEW else gap << _WIDER)
        if table.name == "ledgers":
            before = highest
            if raised > MAX_LEDGER_ID - _SPARE_LEDGERS:
                raise LimitExceededError(
                    f"The log's ledgers have ids up to {highest}, and {gap} are to be passed over: too few are left.",
                    "Make a new log, and import this one's topics or write them again.",
                )
        if connection.dialect.name == "sqlite":
            of = {"name": table.name, "seq": raised}
            if connection.execute(text("UPDATE sqlite_sequence SET seq = :seq WHERE name = :name"), of).rowcount == 0:
                connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :seq)"), of)
        else:
            counter = func.pg_get_serial_sequence(table.name, column.name)
            connection.execute(select(func.setval(counter, raised)))
    return before


def _highest_id(connection: Connection, table: Table, column: str) -> int:
    """Return the highest id that was ever given out, or is there."""
    there = connection.execute(select(func.max(table.c[column]))).scalar() or 0
    if connection.dialect.name == "sqlite":
        query, of = "SELECT seq FROM sqlite_sequence WHERE name = :table", {"table": table.name}
    else:
        query = (
            "SELECT last_value FROM pg_sequences WHERE schemaname = current_schema()"
            " AND quote_ident(schemaname) || '.' || quote_ident(sequencename) = pg_get_serial_sequence(:table, :column)"
        )
        of = {"table": table.name, "column": column}
    return max(int(there), int(connection.execute(text(query), of).scalar() or 0))
