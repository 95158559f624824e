"""What the database knows of a file, by its name; and the only statements that doom one that nothing refers to.

A segment's name has the id of its writer, which the database gave out before the first byte. So what a writer left that
has ended is known to be garbage, and what has no writer, or one of a time that the log has lost, is known to nobody:
that is deleted only at the operator's word. Files are judged and doomed in one transaction, so no late registration
comes between; of an idle writer, which may append again, a doomed file is kept in mind as one that it may not use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from txn_source.metadata.store import checkup
from txn_source.metadata.store.segments import JOB, of_lost_time, recovered_at_ms
from txn_source.metadata.store.tables import (
    CONDEMNED,
    IDLE,
    LOST,
    SEVERAL_PARTITIONS,
    copies,
    doomed_files,
    log_info,
    producers,
    segments,
    topics,
)
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.verdict import Doom, Verdict
from txn_source.storage.object_names import ledger_of_object
from txn_source.storage.segment import SegmentName, topic_prefix

_PORTION = 500


def judge(connection: Connection, uris: Sequence[str]) -> list[Verdict]:
    """Return what is known of each file: segments by their paths, objects by their URIs; others are UNKNOWN."""
    names = {uri: name for uri in uris if (name := SegmentName.parse(uri)) is not None}
    given = checkup.given(connection)
    doomed = _those(connection, doomed_files.c.uri, {*uris, *(topic_prefix(n.topic_id) for n in names.values())})
    of_segments = {row.path: row.deleted for row in _rows(connection, segments, segments.c.path, names)}
    of_writers = {
        row.producer_id: row
        for row in _rows(connection, producers, producers.c.producer_id, {n.producer_id for n in names.values()})
    }
    lost = of_lost_time(connection, names)
    there = _those(connection, topics.c.topic_id, {n.topic_id for n in names.values()})
    complete = _those(connection, copies.c.uri, set(uris) - names.keys())

    def of(uri: str) -> Verdict:
        if of_segments.get(uri) == 0 or uri in complete:
            return Verdict.KNOWN
        if uri in doomed:
            return Verdict.RELEASED
        name = names.get(uri)
        if name is None:
            ledger_id = ledger_of_object(uri)
            return Verdict.UNKNOWN if ledger_id is None or ledger_id <= given.ledger_id else Verdict.AHEAD
        if (
            name.topic_id > given.topic_id
            or name.producer_id > given.producer_id
            or (name.ledger_id or 0) > given.ledger_id
        ):
            return Verdict.AHEAD
        if uri in of_segments and uri not in lost:
            return Verdict.LEFTOVER  # it was deleted, and is there again, as after a power cut
        if name.topic_id not in there:
            return Verdict.LEFTOVER if topic_prefix(name.topic_id) in doomed else Verdict.UNKNOWN
        return _of_writer(name, of_writers.get(name.producer_id))

    return [of(uri) for uri in uris]


def doom(connection: Connection, uris: Sequence[str], which: Doom | None, now_ms: int) -> list[Verdict]:
    """Judge files and doom those that are to go; return what was known of each before.

    Raises:
        InvalidArgumentError: unknown ones are to go, and nobody has settled what the log lost.
    """
    found = judge(connection, uris)
    if which is Doom.UNKNOWN and recovered_at_ms(connection) is not None:
        raise InvalidArgumentError(
            "The log was put back to an earlier moment, and what it lost may lie among its unknown files.",
            "Look at them (`txnlog salvage`); then add --recovered.",
        )
    going = {Doom.LEFTOVER: (Verdict.LEFTOVER,), Doom.UNKNOWN: (Verdict.LEFTOVER, Verdict.UNKNOWN), None: ()}[which]
    new = [{"uri": uri, "forget_after_ms": now_ms} for uri, of in zip(uris, found, strict=True) if of in going]
    if new:
        connection.execute(insert(doomed_files), new)
        _condemn(connection, [row["uri"] for row in new])
    return found


def _condemn(connection: Connection, uris: Sequence[Any]) -> None:
    """Have nothing registered any more from those of some segments whose writers are idle."""
    names = {uri: name for uri in uris if (name := SegmentName.parse(uri)) is not None}
    writers = _rows(connection, producers, producers.c.producer_id, {name.producer_id for name in names.values()})
    idle = {row.producer_id for row in writers if row.ended == IDLE}
    known = _those(connection, segments.c.path, names)
    of_none = {"partition_id": SEVERAL_PARTITIONS, "first_ledger_id": 0, "last_ledger_id": 0, "deleted": CONDEMNED}
    rows = [
        {"topic_id": name.topic_id, "path": uri, **of_none}
        for uri, name in names.items()
        if name.producer_id in idle and uri not in known
    ]
    if rows:
        connection.execute(insert(segments), rows)


def settle(connection: Connection) -> None:
    """Note that what the log has lost was looked at."""
    connection.execute(update(log_info).values(recovered_at_ms=None))


def _of_writer(name: SegmentName, writer: Row[Any] | None) -> Verdict:
    if name.producer_id == JOB or writer is None or writer.topic_id != name.topic_id or writer.ended == LOST:
        return Verdict.UNKNOWN
    return Verdict.LEFTOVER if writer.ended else Verdict.WRITING


def _rows(connection: Connection, table: Any, column: Any, values: Collection[Any]) -> list[Row[Any]]:
    found: list[Row[Any]] = []
    wanted = list(values)
    for start in range(0, len(wanted), _PORTION):
        found += connection.execute(select(table).where(column.in_(wanted[start : start + _PORTION])))
    return found


def _those(connection: Connection, column: Any, values: Collection[Any]) -> set[Any]:
    return {row[0] for row in _rows(connection, column, column, values)}
