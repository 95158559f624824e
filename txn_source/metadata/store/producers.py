"""Producers in the database: opening with fencing, and registering what they wrote."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from txn_source.metadata.store import owners, transactions
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.metadata.store.segments import JOB
from txn_source.metadata.store.tables import (
    CLOSED,
    IDLE,
    LOST,
    WRITING,
    log_info,
    producers,
    segments,
    sink_producers,
)
from txn_source.model.caller import Caller
from txn_source.model.entry import OpenedProducer
from txn_source.model.errors import InvalidArgumentError, StaleSegmentError, shown
from txn_source.model.kinds import OPEN
from txn_source.model.transaction import EndReason
from txn_source.storage.segment import SegmentName

_IDLE_MS = 7 * 24 * 3600 * 1000
"""A producer that hasn't appended for so long, in measured time, is idle: its unregistered files are garbage."""
_FORGET_MS = _IDLE_MS
"""Of one that has ended the row stays for so long, and until nothing names it."""
_PORTION = 500
_REGISTERED = Lookup("SELECT path, segment_id FROM segments WHERE path IN (:values)")
_MEASURED = select(log_info.c.measured_ms).scalar_subquery()
_INSERT = Prepared("""
    INSERT INTO producers (topic_id, name, transactional_id, epoch, purged_sequence, seen_ms)
    VALUES (:topic_id, :name, :transactional_id, :epoch, -1, (SELECT measured_ms FROM log_info))
    RETURNING producer_id""")
_END_OF = f"""
    UPDATE producers SET ended = :how, seen_ms = (SELECT measured_ms FROM log_info)
    WHERE producer_id = :producer_id AND ended IN ({WRITING}, {IDLE})"""
_END = Prepared(_END_OF)
_CLOSE = Prepared(f"{_END_OF} AND epoch = :epoch")
_NOTE_IDLE = Prepared(f"UPDATE producers SET ended = {IDLE} WHERE ended = {WRITING} AND seen_ms < :before_ms")
_FORGOTTEN = Prepared(f"""
    SELECT producer_id FROM producers AS one
    WHERE ended IN ({CLOSED}, {LOST}) AND seen_ms < :before_ms
        AND (transactional_id IS NULL OR EXISTS (
            SELECT 1 FROM producers AS newer
            WHERE newer.topic_id = one.topic_id AND newer.transactional_id = one.transactional_id
                AND newer.epoch > one.epoch))
        AND NOT EXISTS (SELECT 1 FROM entries WHERE entries.producer_id = one.producer_id)
        AND NOT EXISTS (SELECT 1 FROM sink_producers WHERE sink_producers.producer_id = one.producer_id)
        AND NOT EXISTS (
            SELECT 1 FROM transaction_producers JOIN transactions ON transactions.txn = transaction_producers.txn
            WHERE transaction_producers.producer_id = one.producer_id AND transactions.state = {OPEN})""")
_DELETED = Prepared("SELECT segment_id, path FROM segments WHERE deleted > 0")


def open_producer(
    connection: Connection,
    topic_id: int,
    transactional_id: str | None,
    name: str | None,
    now_us: int,
    caller: Caller | None = None,
) -> OpenedProducer:
    """Register a producer of a topic, which belongs to the caller.

    With a transactional id that is known already it gets the next epoch, which fences the older producer, and the
    transactions that the older one left open are aborted. It is a producer of its own: its sequences begin anew, and
    what the older one stored keeps that one's name.

    Raises:
        PermissionDeniedError: the transactional id is another identity's.
    """
    if transactional_id == "":
        raise InvalidArgumentError("The transactional id is empty.", "Give it a name, or leave it out.")
    name = name or transactional_id or f"producer-{uuid.uuid4().hex[:12]}"
    epoch = 0
    if transactional_id is not None:
        older = _newest(connection, topic_id, transactional_id)
        if older is not None:
            what = f"The transactional id {shown(transactional_id)}"
            owners.check(connection, owners.PRODUCER, older.producer_id, caller, what)
            for txn in transactions.open_of_producer(connection, older.producer_id):
                transactions.end(connection, txn, commit=False, reason=EndReason.FENCED, now_us=now_us)
            epoch = older.epoch + 1
            end(connection, [older.producer_id])
    values = {"topic_id": topic_id, "name": name, "transactional_id": transactional_id, "epoch": epoch}
    [(producer_id,)] = _INSERT.rows(connection, values)
    owners.note(connection, owners.PRODUCER, producer_id, caller, topic_id)
    return OpenedProducer(producer_id, epoch, name)


def end(connection: Connection, producer_ids: Collection[int], how: int = CLOSED) -> None:
    """Let producers append no more; those that have ended stay as they are. Ending again is harmless."""
    _END.run_many(connection, [{"producer_id": producer_id, "how": how} for producer_id in producer_ids])


def close(connection: Connection, producer_id: int, epoch: int) -> None:
    """End a producer at its own wish; one that isn't there, or is another, is left alone."""
    _CLOSE.run(connection, {"producer_id": producer_id, "epoch": epoch, "how": CLOSED})


def lose_all(connection: Connection) -> None:
    """End all producers of a log that is put back to an earlier moment."""
    is_sink = select(sink_producers.c.producer_id)
    open_ones = (producers.c.ended.in_((WRITING, IDLE)), producers.c.producer_id.not_in(is_sink))
    connection.execute(update(producers).where(*open_ones).values(ended=LOST, seen_ms=_MEASURED))


def look_after(connection: Connection, measured_ms: int) -> None:
    """Note which producers are idle, and forget those that ended long ago and that nothing names any more, with the
    rows of deleted segments that nobody can register from.

    Of a transactional id the newest producer stays: the next one's epoch goes by it.
    """
    _NOTE_IDLE.run(connection, {"before_ms": measured_ms - _IDLE_MS})
    gone = [producer_id for (producer_id,) in _FORGOTTEN.rows(connection, {"before_ms": measured_ms - _FORGET_MS})]
    _forget_segments(connection)
    for start in range(0, len(gone), _PORTION):
        some = gone[start : start + _PORTION]
        owners.forget_producers(connection, some)
        connection.execute(delete(producers).where(producers.c.producer_id.in_(some)))


def _forget_segments(connection: Connection) -> None:
    """Forget deleted segments of writers that have ended, or are gone: what they have is garbage by its name."""
    deleted = _DELETED.rows(connection, {})
    writer_of = {segment_id: name.producer_id for segment_id, path in deleted if (name := SegmentName.parse(path))}
    writing = {JOB, *_in_state(connection, set(writer_of.values()), (WRITING, IDLE))}
    gone = [segment_id for segment_id, writer in writer_of.items() if writer not in writing]
    for start in range(0, len(gone), _PORTION):
        connection.execute(delete(segments).where(segments.c.segment_id.in_(gone[start : start + _PORTION])))


def _in_state(connection: Connection, ids: Collection[int], states: Collection[int]) -> set[int]:
    found: set[int] = set()
    listed = sorted(ids)
    for start in range(0, len(listed), _PORTION):
        some = producers.c.producer_id.in_(listed[start : start + _PORTION])
        found.update(
            connection.execute(select(producers.c.producer_id).where(some, producers.c.ended.in_(states))).scalars()
        )
    return found


def check_tasks(connection: Connection, topic_id: int, paths: Collection[str], caller: Caller | None) -> set[int]:
    """Look at who wrote the files of a job's tasks; return these writers, who are to be ended with the job's commit.

    Raises:
        StaleSegmentError: one has ended, so its files may be gone.
        InvalidArgumentError: a file is of no writer of the topic.
        PermissionDeniedError: a writer is another identity's.
    """
    names = {path: name for path in paths if (name := SegmentName.parse(path))}
    registered = {path for path, _ in _REGISTERED.rows(connection, names)}
    ids = {name.producer_id for name in names.values()} - {JOB}
    known: dict[int, Row[Any]] = {}
    listed = sorted(ids)
    for start in range(0, len(listed), _PORTION):
        some = producers.c.producer_id.in_(listed[start : start + _PORTION])
        known |= {row.producer_id: row for row in connection.execute(select(producers).where(some))}
    for id_ in listed:
        row = known.get(id_)
        if row is None or row.topic_id != topic_id:
            raise InvalidArgumentError(
                f"Files of the job name the writer {id_}, and the topic has none such.", "Run the job again."
            )
        owners.check(connection, owners.PRODUCER, id_, caller, f"The writer {id_} of the job's files")
        if row.ended and not registered.issuperset(path for path, name in names.items() if name.producer_id == id_):
            raise StaleSegmentError(
                f"The writer {id_} of the job's files has ended, so they may be gone.",
                "Run the job again: nothing of it was registered.",
            )
    return ids


def _newest(connection: Connection, topic_id: int, transactional_id: str) -> Row[Any] | None:
    """Return the producer that holds a transactional id; ids are per topic."""
    query = select(producers).where(producers.c.topic_id == topic_id, producers.c.transactional_id == transactional_id)
    return connection.execute(query.order_by(producers.c.epoch.desc()).limit(1)).first()
