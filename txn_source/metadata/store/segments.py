"""Segment files in the database: whose may be registered from.

What was written to a file counts once it is registered, and a file may only be deleted once that is impossible
(``verdicts.py``): its writer has ended, or its ledgers are gone. No clock has a say in that.

An object of an object store has entries of several partitions. What it has of each is a row in ``segment_parts``: its
references. It may go when the last of them has gone (``copies.doom_segments``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sqlalchemy import Connection, bindparam, delete, func, literal_column, select, update

from txn_source.metadata.store.inserts import Insert, NewRows
from txn_source.metadata.store.partition_tail import Tail
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.metadata.store.tables import (
    CONDEMNED,
    LOST,
    SEVERAL_PARTITIONS,
    entries,
    log_info,
    segment_copies,
    segment_parts,
    segments,
)
from txn_source.model.entry import NewEntry
from txn_source.model.errors import InvalidArgumentError, StaleSegmentError, TxnLogError, shown
from txn_source.model.position import MAX_LEDGER_ID
from txn_source.model.roots import ONLY_MAIN
from txn_source.storage.segment import SegmentName

JOB = 0
"""In the place of a producer's id in the names of files that clients of earlier releases write for jobs."""


@dataclass(slots=True)
class Part:
    """The ledgers that a segment of several partitions reaches into on one of them, both inclusive."""

    first_ledger_id: int
    last_ledger_id: int
    is_new: bool = False
    changed: bool = False


@dataclass(slots=True)
class Segment:
    """A segment that entries are registered from. ``end`` is where the last one of them ends in it, and ``roots`` the
    set of the roots that have all of them; ``stored_roots`` is what the database says of that."""

    path: str
    topic_id: int
    partition_id: int
    deleted: int = 0
    first_ledger_id: int = MAX_LEDGER_ID
    last_ledger_id: int = 0
    segment_id: int | None = None
    end: int | None = None
    stored_roots: int = ONLY_MAIN
    roots: int = -1
    changed: bool = False
    parts: dict[int, Part] = field(default_factory=dict)
    """By partition, if it is of several."""

    def __post_init__(self) -> None:
        if self.segment_id is not None:
            self.roots = self.stored_roots

    def reach(self, partition_id: int, ledger_id: int, end: int) -> None:
        """Note that an entry lies in a ledger of a partition, whose ledgers only go up."""
        self.end = max(self.end or 0, end)
        if self.partition_id == SEVERAL_PARTITIONS:
            part = self.parts.get(partition_id)
            if part is None:
                part = self.parts[partition_id] = Part(ledger_id, ledger_id, is_new=True)
            elif ledger_id != part.last_ledger_id:
                part.first_ledger_id = min(part.first_ledger_id, ledger_id)
                part.last_ledger_id = ledger_id
                part.changed = True
        if ledger_id != self.last_ledger_id:
            self.first_ledger_id = min(self.first_ledger_id, ledger_id)
            self.last_ledger_id = ledger_id
            self.changed = True


class Segments:
    """The files that are registered from in one step: what is known of them, and what is new."""

    def __init__(self, connection: Connection, paths: Iterable[str]) -> None:
        self._known = {row[0]: Segment(*row) for row in _SEGMENTS.rows(connection, paths)}
        shared = {s.segment_id: s for s in self._known.values() if s.partition_id == SEVERAL_PARTITIONS}
        for segment_id, partition_id, first, last in _PARTS.rows(connection, shared):
            shared[segment_id].parts[partition_id] = Part(first, last)
        self._new: list[Segment] = []

    def of(self, topic_id: int, entry: NewEntry) -> Segment:
        """Return the segment of an entry, which was checked."""
        segment = self._known.get(entry.segment)
        if segment is None:
            name = SegmentName.parse(entry.segment)
            of = SEVERAL_PARTITIONS if name is not None and name.partition is None else entry.partition_id
            segment = self._known[entry.segment] = Segment(entry.segment, topic_id, of)
            self._new.append(segment)
        return segment

    def store(self, connection: Connection) -> None:
        """Write what is new of them."""
        new, self._new = self._new, []
        rows = [{name: getattr(segment, name) for name in _INSERTED} for segment in new]
        for path, segment_id in _INSERT.rows(connection, rows):
            self._known[path].segment_id = segment_id
        for segment in new:
            segment.changed = False
        reached = [segment for segment in self._known.values() if segment.changed]
        _REACH.run_many(
            connection,
            [{"id": s.segment_id, "first": s.first_ledger_id, "last": s.last_ledger_id} for s in reached],
        )
        for segment in reached:
            segment.changed = False
        self._store_parts(connection)
        self._store_roots(connection)

    def _store_roots(self, connection: Connection) -> None:
        moved = [s for s in self._known.values() if s.segment_id is not None and s.roots != s.stored_roots]
        _DROP_ROOTS.run_many(connection, [{"id": s.segment_id} for s in moved if s.stored_roots != ONLY_MAIN])
        rows = [{"segment_id": s.segment_id, "roots": s.roots} for s in moved if s.roots != ONLY_MAIN]
        _NEW_ROOTS.add(connection, rows)
        for segment in moved:
            segment.stored_roots = segment.roots

    def _store_parts(self, connection: Connection) -> None:
        new: list[dict[str, int | None]] = []
        longer: list[dict[str, int | None]] = []
        for segment in self._known.values():
            for partition_id, part in segment.parts.items():
                if part.is_new or part.changed:
                    of = {"segment_id": segment.segment_id, "partition_id": partition_id}
                    row = of | {"first_ledger_id": part.first_ledger_id, "last_ledger_id": part.last_ledger_id}
                    (new if part.is_new else longer).append(row)
                    part.is_new = part.changed = False
        _NEW_PARTS.add(connection, new)
        _LENGTHEN_PART.run_many(
            connection,
            [
                {"id": row["segment_id"], "of_partition": row["partition_id"], "first": row["first_ledger_id"],
                 "last": row["last_ledger_id"]}
                for row in longer
            ],
        )  # fmt: skip

    def check(
        self,
        connection: Connection,
        topic_id: int,
        owner: int | None,
        new: Sequence[NewEntry],
        tails: Mapping[int, Tail],
        store: Callable[[], None],
    ) -> None:
        """Check that entries may be registered from their files.

        Args:
            connection: a write transaction.
            topic_id: whose entries they are.
            owner: the producer whose files they must be; None: a job's tasks wrote them, who were looked at.
            new: the entries.
            tails: of the partitions that are there.
            store: stores what was placed and isn't stored yet, before the database is asked for it.

        Raises:
            StaleSegmentError: one of the files was deleted, or is going to be.
            InvalidArgumentError: a path that isn't the producer's, or bytes that are an entry already.
        """
        by_path: dict[str, list[NewEntry]] = {}
        for entry in new:
            by_path.setdefault(entry.segment, []).append(entry)
        for path, of_path in by_path.items():
            known = self._known.get(path)
            if known is not None:
                if known.deleted or not known.roots & _roots_of(of_path):
                    raise _stale(known, owner)
                if owner is None:
                    raise InvalidArgumentError(
                        f"The job's file {path} has been registered before.",
                        "Commit what a job wrote once; write it anew.",
                    )
                partition_ids = {entry.partition_id for entry in of_path}
                if known.topic_id != topic_id or known.partition_id not in (SEVERAL_PARTITIONS, *partition_ids):
                    raise _not_its_own(path)
                if known.partition_id != SEVERAL_PARTITIONS and len(partition_ids) > 1:
                    raise _not_its_own(path)
        for entry in new:
            tail = tails.get(entry.partition_id)
            if tail is None or tail.topic_id != topic_id:
                raise InvalidArgumentError(
                    f"Partition id {entry.partition_id} is not one of the topic's.",
                    "Use a partition of the producer's own topic.",
                )
        for path, of_path in by_path.items():
            name, known = SegmentName.parse(path), self._known.get(path)
            if name is None or owner not in (None, name.producer_id) or name.topic_id != topic_id:
                raise _not_its_own(path)
            if (
                known is None
                and name.partition is not None
                and {name.partition} != {tails[entry.partition_id].index for entry in of_path}
            ):
                raise _not_its_own(path)
            _check_bytes(connection, path, of_path, known, store)


def _roots_of(of_path: Iterable[NewEntry]) -> int:
    """Return the set of the roots that have all of some entries."""
    found = -1
    for entry in of_path:
        found &= entry.roots
    return found


def _check_bytes(
    connection: Connection, path: str, new: list[NewEntry], known: Segment | None, store: Callable[[], None]
) -> None:
    """Raise INVALID_ARGUMENT if any of a segment's bytes would be two entries."""
    ordered = sorted(new, key=lambda entry: entry.offset) if len(new) > 1 else new
    clash = next((b for a, b in pairwise(ordered) if a.offset + a.length > b.offset), None)
    if clash is None and known is not None and known.end is not None and ordered[0].offset < known.end:
        store()
        clash = next((e for e in ordered if _is_stored(connection, known.segment_id, e.offset, e.length)), None)
    if clash is not None:
        raise InvalidArgumentError(
            f"Bytes {clash.offset} to {clash.offset + clash.length} of {path} are another entry already.",
            "Register each entry once; a repetition has the same sequence.",
        )


def _is_stored(connection: Connection, segment_id: int | None, offset: int, length: int) -> bool:
    """True if an entry of the segment has some of these bytes."""
    before = connection.execute(_LAST_BEFORE, {"segment_id": segment_id, "end": offset + length}).first()
    return before is not None and before.offset + before.length > offset


def _stale(segment: Segment, owner: int | None) -> TxnLogError:
    if segment.deleted == CONDEMNED:
        fact = (
            f"The file {segment.path} was taken for garbage, since nothing had been registered from it, and is deleted."
        )
    elif not segment.deleted:
        fact = f"Segment {segment.path} has no copy left in the roots that it was written to."
    else:
        fact = f"Segment {segment.path} was deleted after its ledgers had been offloaded or trimmed."
    if owner is None:
        remedy = "Run the job again: nothing of it was registered."
    else:
        remedy = "Write the messages to a new segment; none of them was registered."
    return StaleSegmentError(fact, remedy)


def _not_its_own(path: str) -> TxnLogError:
    return InvalidArgumentError(
        f"{shown(path)} is no file that this producer may register on these partitions.",
        "Use segments/<topic id>/<partition>/<ledger id>-<producer id>-<12 hexadecimal digits>.arrow of its own, or, on"
        " an object store, segments/<topic id>/<producer id>-<12 hexadecimal digits>.arrows.",
    )


# Built once: for statements as short as these, building one costs as much as running it.
_END = (
    select(entries.c.offset + entries.c.length)
    .where(entries.c.segment_id == segments.c.segment_id)
    .order_by(entries.c.offset.desc())
    .limit(1)
    .scalar_subquery()
    .label("end")
)
_OF_ROOTS = func.coalesce(
    select(segment_copies.c.roots).where(segment_copies.c.segment_id == segments.c.segment_id).scalar_subquery(),
    literal_column(str(ONLY_MAIN)),
)
_SEGMENTS = Lookup(
    lambda names: select(
        segments.c.path,
        segments.c.topic_id,
        segments.c.partition_id,
        segments.c.deleted,
        segments.c.first_ledger_id,
        segments.c.last_ledger_id,
        segments.c.segment_id,
        _END,
        _OF_ROOTS,
    ).where(segments.c.path.in_([bindparam(name) for name in names]))
)
_INSERTED = ("topic_id", "path", "partition_id", "first_ledger_id", "last_ledger_id", "deleted")
_INSERT = Insert(segments, _INSERTED, ("path", "segment_id"))
_LAST_BEFORE = (
    select(entries.c.offset, entries.c.length)
    .where(entries.c.segment_id == bindparam("segment_id"), entries.c.offset < bindparam("end"))
    .order_by(entries.c.offset.desc())
    .limit(1)
)
_REACH = Prepared(
    update(segments)
    .where(segments.c.segment_id == bindparam("id"))
    .values(first_ledger_id=bindparam("first"), last_ledger_id=bindparam("last"))
)
_PARTS = Lookup(
    lambda names: select(
        segment_parts.c.segment_id,
        segment_parts.c.partition_id,
        segment_parts.c.first_ledger_id,
        segment_parts.c.last_ledger_id,
    ).where(segment_parts.c.segment_id.in_([bindparam(name) for name in names]))
)
_NEW_ROOTS = NewRows(segment_copies)
_DROP_ROOTS = Prepared(delete(segment_copies).where(segment_copies.c.segment_id == bindparam("id")))
_NEW_PARTS = NewRows(segment_parts)
_LENGTHEN_PART = Prepared(
    update(segment_parts)
    .where(segment_parts.c.segment_id == bindparam("id"), segment_parts.c.partition_id == bindparam("of_partition"))
    .values(first_ledger_id=bindparam("first"), last_ledger_id=bindparam("last"))
)


def recovered_at_ms(connection: Connection) -> int | None:
    """Return when the log was put back, since the epoch; None: it wasn't, or that is settled."""
    found: int | None = connection.execute(select(log_info.c.recovered_at_ms)).scalar()
    return found


def of_lost_time(connection: Connection, paths: Iterable[str]) -> set[str]:
    """Return the segments that may have something behind what the log knows of them: it was put back to an earlier
    moment, which isn't settled, and was still being written to by their writers then."""
    if recovered_at_ms(connection) is None:
        return set()
    names = {path: name for path in paths if (name := SegmentName.parse(path)) is not None}
    ids = {name.producer_id for name in names.values()}
    others = {id_ for id_, state in _STATES.rows(connection, ids) if state != LOST}
    return {path for path, name in names.items() if name.producer_id not in others}


_STATES = Lookup("SELECT producer_id, ended FROM producers WHERE producer_id IN (:values)")
