"""Changes of the copies of ledgers: what was offloaded, what was deleted, and which files are to go.

An offload:
1. ``begin`` notes where the object will be, so that nobody forgets it;
2. whoever offloads writes and checks the object;
3. ``complete`` makes it the ledger's tiered copy, if there is none yet. Others that were begun for the same ledger are
   doomed, and so are those that were begun so long ago that nobody can still be at it.

A file is deleted in two steps: the database transaction that makes it useless dooms it, and whoever can reach it
deletes it and says so. So a crash between the two forgets no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, insert, select, update

from txn_source.metadata.store.conflicts import expect
from txn_source.metadata.store.pages import PAGE_ROWS
from txn_source.metadata.store.segments import of_lost_time
from txn_source.metadata.store.tables import (
    DELETED,
    copies,
    doomed_files,
    entries,
    entry_pages,
    is_in,
    ledgers,
    log_info,
    partitions,
    producers,
    segment_parts,
    segments,
)
from txn_source.model.copies import TieredCopy
from txn_source.model.errors import InvalidArgumentError, shown
from txn_source.model.ledger import Ledger, OffloadableLedger
from txn_source.model.position import MAX_ENTRY_ID, Position
from txn_source.model.retention import is_decided, may_be_offloaded, may_lose_a_copy
from txn_source.model.topic import PartitionView

LEASE_MS = 3600 * 1000
"""An offload that was begun so long ago has failed."""
_PURGE_AFTER_MS = 3600 * 1000
"""Rows of entries are kept so long after their ledger was closed: a retried append is answered from them."""


def closed_ledgers(connection: Connection, partition_id: int) -> list[Ledger]:
    """Return a partition's closed ledgers, ascending; ``model/retention.py`` says what may happen to which."""
    query = select(ledgers).where(ledgers.c.partition_id == partition_id, ledgers.c.closed_at_ms.is_not(None))
    return [Ledger.of(row) for row in connection.execute(query.order_by(ledgers.c.ledger_id))]


def offloadable(connection: Connection, partition: PartitionView, last_stable: Position) -> list[OffloadableLedger]:
    """Return a partition's ledgers that may be offloaded and aren't, oldest first.

    An object never changes, so it is only written when all that is in it is decided.
    """
    return [
        OffloadableLedger.of(ledger, partition=partition.index, partition_id=partition.partition_id)
        for ledger in closed_ledgers(connection, partition.partition_id)
        if may_be_offloaded(ledger, last_stable)
    ]


def begin(
    connection: Connection,
    partition: PartitionView | None,
    ledger_id: int,
    uri: str,
    is_its_own: Callable[[str], bool],
    now_ms: int,
) -> int | None:
    """Note an offload that begins, and return its id; None if the ledger has a tiered copy.

    Args:
        connection: the database transaction.
        partition: the ledger's, as a view of it; None if there is no such one.
        ledger_id: the ledger.
        uri: where the object will be.
        is_its_own: tells whether a URI is one that the ledger's object may have.
        now_ms: the time.
    """
    row = connection.execute(select(ledgers).where(ledgers.c.ledger_id == ledger_id)).first()
    if row is None or partition is None or row.partition_id != partition.partition_id:
        raise InvalidArgumentError(f"There is no ledger {ledger_id}.", "It was trimmed, or its topic deleted.")
    if not is_decided(Ledger.of(row), partition.bounds.last_stable):
        why = "is still open" if row.closed_at_ms is None else "has messages of a transaction that is still open"
        raise InvalidArgumentError(
            f"Ledger {ledger_id} {why}, and only what never changes is offloaded.",
            "Close it with `txnlog topics roll`, or wait until the transaction has ended.",
        )
    if row.offloaded_at_ms is not None:
        return None
    if not is_its_own(uri):
        raise InvalidArgumentError(
            f"{shown(uri)} is no place for the object of ledger {ledger_id}.",
            "It lies in the topic's offload target, under a name of its own; if the target has changed, begin again.",
        )
    doom_forgotten(connection, now_ms)
    key = connection.execute(
        insert(copies).values(ledger_id=ledger_id, uri=uri, begun_at_ms=now_ms)
    ).inserted_primary_key
    assert key is not None
    return int(key[0])


def complete(connection: Connection, copy_id: int, copy: TieredCopy, now_ms: int) -> bool:
    """Make an object its ledger's tiered copy; return False if it came too late and is to be deleted."""
    row = connection.execute(
        select(copies, ledgers.c.offloaded_at_ms)
        .join(ledgers, ledgers.c.ledger_id == copies.c.ledger_id)
        .where(copies.c.copy_id == copy_id)
    ).first()
    if row is None or (row.offloaded_at_ms is not None and not row.complete):
        return False
    if copy.uri != row.uri:
        raise InvalidArgumentError(
            f"Offload {copy_id} was begun for another object than {shown(copy.uri)}.", "Complete it with its own."
        )
    if row.complete:
        return True
    values = {"size": copy.size, "footer_bytes": copy.footer_bytes, "footer_crc32c": copy.footer_crc32c}
    under_way = (copies.c.copy_id == copy_id, copies.c.complete == 0)
    expect(connection.execute(update(copies).where(*under_way).values(complete=1, **values)).rowcount)
    not_yet = (ledgers.c.ledger_id == row.ledger_id, ledgers.c.offloaded_at_ms.is_(None))
    expect(connection.execute(update(ledgers).where(*not_yet).values(offloaded_at_ms=now_ms)).rowcount)
    _doom(connection, and_(copies.c.ledger_id == row.ledger_id, copies.c.complete == 0), now_ms)
    return True


def abandon(connection: Connection, copy_id: int, now_ms: int) -> None:
    """Doom the object of an offload that failed."""
    _doom(connection, and_(copies.c.copy_id == copy_id, copies.c.complete == 0), now_ms, still_written=False)


def doom_forgotten(connection: Connection, now_ms: int) -> None:
    """Doom the objects of offloads that were begun so long ago that whoever began them has failed."""
    _doom(connection, and_(is_in(copies.c.complete, 0), copies.c.begun_at_ms < now_ms - LEASE_MS), now_ms)


def doom_tiered_of_topic(connection: Connection, topic_id: int, now_ms: int) -> None:
    """Doom all objects of a topic that is being deleted."""
    of_topic = (
        select(ledgers.c.ledger_id)
        .join(partitions, partitions.c.partition_id == ledgers.c.partition_id)
        .where(partitions.c.topic_id == topic_id)
    )
    _doom(connection, copies.c.ledger_id.in_(of_topic), now_ms)


def doom_tiered_before(connection: Connection, partition_id: int, ledger_id: int, now_ms: int) -> None:
    """Doom the objects of a partition's ledgers below one."""
    of_partition = select(ledgers.c.ledger_id).where(
        ledgers.c.partition_id == partition_id, ledgers.c.ledger_id < ledger_id
    )
    _doom(connection, copies.c.ledger_id.in_(of_partition), now_ms)


def delete_tiered(connection: Connection, partition_id: int, ledger_ids: Sequence[int], now_ms: int) -> int:
    """Delete the tiered copies of some of a partition's ledgers that have a hot copy too; return how many."""
    count = 0
    for some in _portions(ledger_ids):
        both = _with_both(connection, partition_id, some)
        _doom(connection, copies.c.ledger_id.in_(both), now_ms, still_written=False)
        hot = (ledgers.c.ledger_id.in_(both), ledgers.c.hot_deleted_at_ms.is_(None))
        expect(connection.execute(update(ledgers).where(*hot).values(offloaded_at_ms=None)).rowcount, len(both))
        count += len(both)
    return count


def delete_hot(connection: Connection, partition_id: int, ledger_ids: Sequence[int], now_ms: int) -> int:
    """Delete the hot copies of some of a partition's ledgers that have a tiered copy too; return how many."""
    count = 0
    for some in _portions(sorted(ledger_ids)):
        both = _with_both(connection, partition_id, some)
        tiered = (ledgers.c.ledger_id.in_(both), ledgers.c.offloaded_at_ms.is_not(None))
        expect(connection.execute(update(ledgers).where(*tiered).values(hot_deleted_at_ms=now_ms)).rowcount, len(both))
        if both:
            doom_segments(connection, partition_id, both[0], both[-1], now_ms)
        count += len(both)
    return count


def _with_both(connection: Connection, partition_id: int, ledger_ids: Sequence[int]) -> list[int]:
    """Return those of some ledgers that may lose one of their copies, ascending."""
    query = select(ledgers).where(ledgers.c.partition_id == partition_id, ledgers.c.ledger_id.in_(ledger_ids))
    rows = connection.execute(query.order_by(ledgers.c.ledger_id))
    return [ledger.ledger_id for ledger in map(Ledger.of, rows) if may_lose_a_copy(ledger)]


def purge(connection: Connection, partition_id: int, now_ms: int) -> None:
    """Drop the rows of entries whose hot copies were deleted, once no retried append can ask for them any more.

    The footer of the tiered object has them.
    """
    due = connection.execute(
        select(ledgers.c.ledger_id).where(
            ledgers.c.partition_id == partition_id,
            ledgers.c.hot_deleted_at_ms.is_not(None),
            ledgers.c.purged == 0,
            ledgers.c.closed_at_ms < now_ms - _PURGE_AFTER_MS,
        )
    ).scalars()
    for ledger_id in due.all():
        drop_entries(connection, partition_id, Position(ledger_id, 0).key, Position(ledger_id, MAX_ENTRY_ID).key)
        connection.execute(update(ledgers).where(ledgers.c.ledger_id == ledger_id).values(purged=1))


def drop_entries(connection: Connection, partition_id: int, start: int, end: int) -> None:
    """Drop the rows of the entries with keys in ``[start, end]``; their producers' sequences stay refused."""
    inside = (entries.c.partition_id == partition_id, entries.c.position.between(start, end))
    highest = connection.execute(
        select(entries.c.producer_id, func.max(entries.c.base_sequence + entries.c.messages - 1))
        .where(*inside, entries.c.producer_id.is_not(None))
        .group_by(entries.c.producer_id)
    ).all()
    for producer_id, sequence in highest:
        connection.execute(
            update(producers)
            .where(producers.c.producer_id == producer_id, producers.c.purged_sequence < sequence)
            .values(purged_sequence=sequence)
        )
    connection.execute(delete(entries).where(*inside))
    connection.execute(
        delete(entry_pages).where(
            entry_pages.c.partition_id == partition_id, entry_pages.c.first_position.between(start, end)
        )
    )


def doom_segments(
    connection: Connection, partition_id: int, first_ledger_id: int, last_ledger_id: int, now_ms: int
) -> None:
    """Doom the segments that reach into a span of ledgers and hold nothing of any other hot ledger.

    The rows stay: a producer may still hold one open, and what it appends there must be refused. Of a segment of
    several partitions the part goes, and the segment with its last part.
    """
    _doom_parts(connection, partition_id, first_ledger_id, last_ledger_id, now_ms)
    hot = select(ledgers.c.ledger_id).where(
        ledgers.c.partition_id == segments.c.partition_id,
        ledgers.c.ledger_id.between(segments.c.first_ledger_id, segments.c.last_ledger_id),
        ledgers.c.hot_deleted_at_ms.is_(None),
    )
    rows = connection.execute(
        select(segments.c.segment_id, segments.c.path).where(
            segments.c.partition_id == partition_id,
            segments.c.deleted == 0,
            segments.c.last_ledger_id >= first_ledger_id,
            segments.c.first_ledger_id <= last_ledger_id,
            ~hot.exists(),
        )
    ).all()
    _doom_rows(connection, rows, now_ms)


def _doom_parts(
    connection: Connection, partition_id: int, first_ledger_id: int, last_ledger_id: int, now_ms: int
) -> None:
    hot = select(ledgers.c.ledger_id).where(
        ledgers.c.partition_id == segment_parts.c.partition_id,
        ledgers.c.ledger_id.between(segment_parts.c.first_ledger_id, segment_parts.c.last_ledger_id),
        ledgers.c.hot_deleted_at_ms.is_(None),
    )
    unused = select(segment_parts.c.segment_id).where(
        segment_parts.c.partition_id == partition_id,
        segment_parts.c.last_ledger_id >= first_ledger_id,
        segment_parts.c.first_ledger_id <= last_ledger_id,
        ~hot.exists(),
    )
    for some in _portions(list(connection.execute(unused).scalars())):
        of_partition = (segment_parts.c.partition_id == partition_id, segment_parts.c.segment_id.in_(some))
        connection.execute(delete(segment_parts).where(*of_partition))
        left = select(segment_parts.c.segment_id).where(segment_parts.c.segment_id == segments.c.segment_id)
        rows = connection.execute(
            select(segments.c.segment_id, segments.c.path).where(
                segments.c.segment_id.in_(some), segments.c.deleted == 0, ~left.exists()
            )
        ).all()
        _doom_rows(connection, rows, now_ms)


def _doom_rows(connection: Connection, rows: Sequence[Any], now_ms: int) -> None:
    """Doom segments (id, path), and have nothing registered from them any more. What the log has lost may lie in one:
    then it isn't doomed, and is unknown until somebody has settled that."""
    for some in _portions([row.segment_id for row in rows]):
        connection.execute(update(segments).where(segments.c.segment_id.in_(some)).values(deleted=DELETED))
    kept = of_lost_time(connection, [row.path for row in rows])
    _insert_doomed(connection, [row.path for row in rows if row.path not in kept], now_ms)


def doomed(connection: Connection) -> list[tuple[int, str]]:
    """Return files that are to be deleted now (doomed_id, uri), at most a page of them: those whose doom is in a
    snapshot of the metadata, if there are snapshots."""
    query = select(doomed_files).where(~_waits()).order_by(doomed_files.c.doomed_id).limit(PAGE_ROWS)
    return [(row.doomed_id, row.uri) for row in connection.execute(query)]


def files_wait(connection: Connection) -> bool:
    """True if files wait for the next snapshot to be deleted."""
    return connection.execute(select(doomed_files.c.doomed_id).where(_waits()).limit(1)).first() is not None


def _waits() -> ColumnElement[bool]:
    in_no_snapshot = doomed_files.c.doomed_id > func.coalesce(log_info.c.snapshot_doomed_id, MAX_ENTRY_ID << 31)
    patient = log_info.c.measured_ms <= func.coalesce(log_info.c.snapshot_wait_until_ms, -1)
    return exists().where(in_no_snapshot, patient)


def note_snapshot(connection: Connection, doomed_id: int | None, activity: int, wait_ms: int) -> None:
    """Note how far the log had come at a snapshot, which doomed files it has, and for how long, in measured time, later
    ones wait for the next one."""
    until = None if doomed_id is None else log_info.c.measured_ms + wait_ms
    noted = {"snapshot_doomed_id": doomed_id, "snapshot_activity": activity, "snapshot_wait_until_ms": until}
    connection.execute(update(log_info).values(noted))


def progress(connection: Connection) -> int:
    """Return how far the log has come: transactions begun and ended, and measured time."""
    query = select(log_info.c.transactions + log_info.c.decisions + log_info.c.measured_ms)
    return int(connection.execute(query).scalar_one())


def tick(connection: Connection) -> None:
    """Let measured time pass, so that a copy of the database that was made before is behind a snapshot made after."""
    connection.execute(update(log_info).values(measured_ms=log_info.c.measured_ms + 1))


def forget(connection: Connection, doomed_ids: Sequence[int], now_ms: int) -> None:
    """Forget doomed files that were deleted, but for those that somebody may still be writing."""
    for some in _portions(doomed_ids):
        gone = and_(doomed_files.c.doomed_id.in_(some), doomed_files.c.forget_after_ms <= now_ms)
        connection.execute(delete(doomed_files).where(gone))


def _doom(connection: Connection, which: ColumnElement[bool], now_ms: int, *, still_written: bool = True) -> None:
    rows = connection.execute(select(copies).where(which)).all()
    for row in rows:
        writing = still_written and not row.complete
        _insert_doomed(connection, [row.uri], row.begun_at_ms + LEASE_MS if writing else now_ms)
    for some in _portions([row.copy_id for row in rows]):
        connection.execute(delete(copies).where(copies.c.copy_id.in_(some)))


def _insert_doomed(connection: Connection, uris: Sequence[str], forget_after_ms: int) -> None:
    if uris:
        connection.execute(insert(doomed_files), [{"uri": uri, "forget_after_ms": forget_after_ms} for uri in uris])


def _portions(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[start : start + 1000] for start in range(0, len(ids), 1000)]
