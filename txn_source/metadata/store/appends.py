"""Registering what producers wrote: for many writers in one go, each of them wholly or not at all.

1. All that the checks need is read for all writes together, in a few statements.
2. Each write is checked against that, and against what the ones before it have placed; one that is refused changes
   nothing. One that is taken gets its positions, in memory.
3. What was placed is stored, again in a few statements.

So a hundred small transactions that wait at the same time cost little more than one (``group_commit.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from txn_source.metadata.store import roots, sequences, transactions
from txn_source.metadata.store.inserts import NewRows
from txn_source.metadata.store.partition_tail import Tail
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.metadata.store.segments import Segment, Segments
from txn_source.metadata.store.sequences import Writer
from txn_source.metadata.store.tables import (
    IDLE,
    WRITING,
    short_entries,
    transaction_partitions,
    transaction_producers,
)
from txn_source.metadata.store.transactions import Counts, Whole
from txn_source.model.entry import Appended, NewEntry
from txn_source.model.errors import InvalidArgumentError, StaleSegmentError, TxnLogError, UnavailableError
from txn_source.model.kinds import COMMIT_MARKER, COMMITTED, DATA, OPEN
from txn_source.model.policies import OF_COPIES
from txn_source.model.position import Position
from txn_source.model.roots import ONE_COPY
from txn_source.model.transaction import check_timeout
from txn_source.model.units import MAX_TOTAL

SEEN_EVERY_MS = 3600 * 1000
"""That a producer appends is noted so often, in measured time."""
STORED_AT_ONCE = 20_000
"""So many entries are placed before they are stored: a database gives up a session that is silent for long."""


@dataclass(frozen=True, slots=True)
class Append:
    """Entries of one producer."""

    producer_id: int
    epoch: int
    entries: Sequence[NewEntry]


@dataclass(frozen=True, slots=True)
class Write:
    """What is registered together: one append of each of some producers.

    ``txn`` is the open transaction that all entries belong to. With ``timeout_ms`` it is a new one, which begins with
    this write and is committed with it. ``of_job``: the files are those of a job, which had no producer yet when it
    wrote them.
    """

    appends: Sequence[Append]
    txn: int | None = None
    timeout_ms: int | None = None
    of_job: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What came of each append, and the transaction that was committed with them.

    ``repeated``: it was stored before.
    """

    appended: list[Appended]
    txn: int | None = None
    repeated: bool = False


def write(connection: Connection, one: Write, now_us: int, configured: Mapping[str, Any]) -> Written:
    """Register one write, see ``write_all``, or raise what is wrong with it."""
    [done] = write_all(connection, [one], now_us, configured)
    if isinstance(done, TxnLogError):
        raise done
    return done


def check_copies(done: Written) -> None:
    """Raise UNAVAILABLE if something was registered with too few copies by somebody who can't wait for more."""
    if any(appended.needs_copies for appended in done.appended):
        raise UnavailableError(
            "What was written has too few copies (policy acknowledge_copies). Nothing of it was registered.",
            "Run it again when all roots can be written (`txnlog roots list`).",
        )


def write_all(
    connection: Connection, writes: Sequence[Write], now_us: int, configured: Mapping[str, Any]
) -> list[Written | TxnLogError]:
    """Register writes, in their order; return for each what came of it.

    A write that was stored before is answered as the first time. A transaction is registered on a partition in the
    same step as its first entry there. ``configured`` are the broker's policies: what has fewer copies than are to be
    acknowledged is registered, too, and lies above the high watermark.
    """
    together = _Together(connection, writes, now_us, configured)
    done: list[Written | TxnLogError] = []
    for one in writes:
        try:
            done.append(together.add(one))
        except TxnLogError as error:
            done.append(error)
    together.store()
    return done


@dataclass(slots=True)
class _Trace:
    """What a transaction has on a partition. ``begun`` and ``decided`` are what ``tables.py`` says they are."""

    txn: int
    partition_id: int
    first_position: int
    last_position: int
    messages: int
    bytes: int
    begun: int = 0
    decided: int = 0
    state: int = OPEN
    marker_position: int | None = None
    decision: int | None = None
    sealed: int = 0

    def went_on(self, position: int, entry: NewEntry) -> None:
        self.last_position = position
        self.messages += entry.messages
        self.bytes += entry.length


class _Together:
    """Writes of one database transaction: what is known, and what was placed and isn't stored yet."""

    def __init__(
        self, connection: Connection, writes: Sequence[Write], now_us: int, configured: Mapping[str, Any]
    ) -> None:
        appends = [append for one in writes for append in one.appends]
        new = [entry for append in appends for entry in append.entries]
        txns = {one.txn for one in writes if one.txn is not None}
        self._connection = connection
        self._now_us = now_us
        self._writers = sequences.writers(connection, {append.producer_id for append in appends})
        self._tails = Tail.load_all(connection, {entry.partition_id for entry in new}, now_us)
        self._segments = Segments(connection, {entry.segment for entry in new})
        self._counts = Counts(connection, now_us // 1000)
        there = roots.all_roots(connection) if self._counts.has_roots else []
        self._known_roots = roots.known_bits(there)
        self._copies = {}
        if there or not OF_COPIES.isdisjoint(configured):
            of_topics = {writer.topic_id for writer in self._writers.values()}
            self._copies = roots.copies_of_topics(connection, of_topics, configured, there)
        self._open = transactions.still_open(connection, txns)
        self._traces = {(row[0], row[1]): _Trace(*row) for row in _TRACES.rows(connection, txns)}
        self._joined = set(_JOINED.rows(connection, txns))
        # not stored yet
        self._changed: set[int] = set()
        self._in_files: list[tuple[dict[str, Any], Segment]] = []
        self._short: list[tuple[dict[str, Any], Segment]] = []
        self._whole: list[Whole] = []
        self._new_traces: dict[tuple[int, int], _Trace] = {}
        self._longer_traces: dict[tuple[int, int], _Trace] = {}
        self._joining: list[tuple[int, int]] = []
        self._seen: list[int] = []

    def add(self, one: Write) -> Written:
        """Check a write, and place it unless it was stored before."""
        writers = [sequences.checked(self._writers, append.producer_id, append.epoch) for append in one.appends]
        if len({writer.producer_id for writer in writers}) < len(writers):
            raise InvalidArgumentError("A producer is in the call more than once.", "Give it one append.")
        pairs = [(writer, append) for writer, append in zip(writers, one.appends, strict=True) if append.entries]
        repeated = self._repetition(one, writers, pairs) if pairs else None
        if repeated is not None:  # also of a producer that is fenced by now: what it did before that counts
            return repeated
        for writer in writers:
            sequences.check_newest(writer, of_job=one.of_job)
        if not pairs:
            return Written([Appended([], writer.partitions) for writer in writers])
        if one.txn is not None and one.txn not in self._open:
            transactions.check_open(self._connection, one.txn)
        if one.timeout_ms is not None:
            check_timeout(one.timeout_ms)
        for writer, append in pairs:
            owner = None if one.of_job else writer.producer_id
            self._segments.check(self._connection, writer.topic_id, owner, append.entries, self._tails, self.store)
            if not all(entry.roots & self._known_roots for entry in append.entries):
                raise StaleSegmentError(
                    "Entries lie in roots alone that were removed from the log.", "Write them to a new segment."
                )
        self._check_room([entry for _, append in pairs for entry in append.entries])
        return self._place(one, writers, pairs)

    def store(self) -> None:
        """Store what was placed."""
        connection = self._connection
        self._segments.store(connection)
        for row, segment in self._in_files:
            row["segment_id"] = segment.segment_id
        for row, segment in self._short:
            row["segment_id"] = segment.segment_id
        rolled = {partition_id for partition_id, tail in self._tails.items() if tail.closed}
        changed = [self._tails[partition_id] for partition_id in sorted(self._changed | rolled)]
        Tail.store_all(connection, changed)
        _SHORT.add(connection, [row for row, _ in self._short])
        self._counts.store(connection)
        transactions.insert_whole(connection, self._whole)
        _NEW_TRACES.add(connection, [_row(trace) for trace in self._new_traces.values()])
        _LENGTHEN_TRACE.run_many(
            connection,
            [
                {"of_txn": t.txn, "of_partition": t.partition_id, "last": t.last_position, "messages": t.messages,
                 "bytes": t.bytes}
                for t in self._longer_traces.values()
            ],
        )  # fmt: skip
        _JOINING.add(connection, [{"txn": txn, "producer_id": producer} for txn, producer in self._joining])
        _SEEN.run_many(connection, [{"id": id_, "now": self._counts.measured_ms} for id_ in self._seen])
        for tail in changed:
            tail.seal(connection)
        for waiting in (
            *(self._changed, self._in_files, self._short, self._whole),
            *(self._new_traces, self._longer_traces, self._joining, self._seen),
        ):
            waiting.clear()

    def _repetition(self, one: Write, writers: Sequence[Writer], pairs: _Pairs) -> Written | None:
        """Return what was stored of a write, None if nothing was; raise if it was another one."""
        found: list[Mapping[int, Row[Any]] | None] = []
        for writer, append in pairs:
            ordered = sequences.in_order(append.entries)
            if sequences.are_new(writer, ordered):
                found.append(None)
                continue
            self.store()  # what it repeats may have come together with it
            found.append(sequences.stored_before(self._connection, writer, ordered))
        if all(stored is None for stored in found):
            return None
        rows = [row for stored in found if stored is not None for row in stored.values()]
        txn = one.txn
        if one.of_job:  # a new one with each commit
            txn = rows[0].txn
        elif one.timeout_ms is not None:
            txn = transactions.committed_of(self._connection, rows[0].txn)
        positions = {}
        for (writer, append), stored in zip(pairs, found, strict=True):
            if stored is None:
                raise InvalidArgumentError(
                    "Only some of the appends of this call are stored already.",
                    "Repeat a call with exactly the entries of the first try, or use new sequences.",
                )
            sequences.check_same(self._connection, append.entries, stored, txn)
            positions[writer.producer_id] = [
                Position.from_key(stored[entry.base_sequence].position) for entry in append.entries
            ]
        short = self._short_of([row for stored in found if stored is not None for row in stored.values()])
        of_all = [
            Appended(at := positions.get(writer.producer_id, []), writer.partitions, not short.isdisjoint(at))
            for writer in writers
        ]
        return Written(of_all, None if one.timeout_ms is None else txn, repeated=True)

    def _short_of(self, rows: Sequence[Row[Any]]) -> set[Position]:
        """Return the positions of those of some stored entries that have too few copies."""
        if not self._copies:
            return set()
        of = {(row.partition_id, row.position) for row in rows}
        found = {(row[0], row[1]) for row in _SHORT_OF.rows(self._connection, {row.segment_id for row in rows})}
        return {Position.from_key(position) for _, position in of & found}

    def _check_room(self, new: Sequence[NewEntry]) -> None:
        """Raise INVALID_ARGUMENT if a partition's totals would leave their bounds; no real one comes near."""
        more: dict[int, tuple[int, int]] = {}
        for entry in new:
            size, messages = more.get(entry.partition_id, (0, 0))
            more[entry.partition_id] = (size + entry.length, messages + entry.messages)
        for partition_id, (size, messages) in more.items():
            tail = self._tails[partition_id]
            for name, before, of_these in (
                ("bytes", tail.bytes_before + tail.bytes, size),
                ("messages", tail.messages_before + tail.messages, messages),
            ):
                if before + of_these > MAX_TOTAL:
                    raise InvalidArgumentError(
                        f"Partition id {partition_id} has {before} {name}, and {of_these} more are too many.",
                        f"A partition takes {MAX_TOTAL} at most.",
                    )

    def _place(self, one: Write, writers: Sequence[Writer], pairs: _Pairs) -> Written:
        """Give the entries of a write, which was checked, their positions, and commit its own transaction."""
        txn = one.txn if one.timeout_ms is None else self._counts.begin()
        positions: dict[int, list[Position]] = {}
        touched: set[int] = set()
        short: set[int] = set()
        for writer, append in pairs:
            by_partition: dict[int, list[int]] = defaultdict(list)
            for index, entry in enumerate(append.entries):
                by_partition[entry.partition_id].append(index)
            placed: dict[int, Position] = {}
            for partition_id in sorted(by_partition):
                for index in by_partition[partition_id]:
                    placed[index], is_short = self._place_entry(writer, append.entries[index], txn)
                    if is_short:
                        short.add(writer.producer_id)
                    if len(self._in_files) >= STORED_AT_ONCE and one.timeout_ms is None:
                        self._changed |= {entry.partition_id for entry in append.entries}
                        self.store()
            touched |= by_partition.keys()
            positions[writer.producer_id] = [placed[index] for index in range(len(placed))]
            writer.went_to(sequences.in_order(append.entries))
            if self._counts.measured_ms - writer.seen_ms > SEEN_EVERY_MS:
                writer.seen_ms = self._counts.measured_ms
                self._seen.append(writer.producer_id)
            if txn is not None and (txn, writer.producer_id) not in self._joined:
                self._joined.add((txn, writer.producer_id))
                self._joining.append((txn, writer.producer_id))
        self._changed |= touched
        of_all = [
            Appended(positions.get(of := writer.producer_id, []), writer.partitions, of in short) for writer in writers
        ]
        if txn is None or one.timeout_ms is None:
            return Written(of_all)
        self._commit(txn, one.timeout_ms, sorted(touched))
        return Written(of_all, txn)

    def _place_entry(self, writer: Writer, entry: NewEntry, txn: int | None) -> tuple[Position, bool]:
        """Return the position of an entry, and whether it has too few copies."""
        tail = self._tails[entry.partition_id]
        segment = self._segments.of(writer.topic_id, entry)
        position = tail.place(
            self._connection,
            DATA,
            entry.messages,
            entry.length,
            txn=txn,
            producer_id=writer.producer_id,
            base_sequence=entry.base_sequence,
            offset=entry.offset,
            crc32c=entry.crc32c,
        )
        self._in_files.append((tail.rows[-1], segment))
        segment.reach(entry.partition_id, position.ledger_id, entry.offset + entry.length)
        segment.roots &= entry.roots & self._known_roots
        if txn is not None:
            self._trace(txn, entry, position.key)
        wanted = self._copies.get(writer.topic_id, ONE_COPY)
        if not wanted.lacks(segment.roots):
            return position, False
        row = {"partition_id": entry.partition_id, "position": position.key, "needed": wanted.acknowledge}
        self._short.append((row, segment))
        return position, True

    def _trace(self, txn: int, entry: NewEntry, position: int) -> None:
        key = txn, entry.partition_id
        trace = self._traces.get(key)
        if trace is None:
            counts = self._counts
            trace = _Trace(txn, entry.partition_id, position, position, 0, 0, counts.begun, counts.decided)
            self._traces[key] = trace
            self._new_traces[key] = trace
        elif key not in self._new_traces:
            self._longer_traces[key] = trace
        trace.went_on(position, entry)

    def _commit(self, txn: int, timeout_ms: int, partition_ids: Sequence[int]) -> None:
        """Put a marker on every partition that a new transaction has written to."""
        decision = self._counts.decide()
        for partition_id in partition_ids:
            marker = self._tails[partition_id].place(self._connection, COMMIT_MARKER, messages=0, length=0, txn=txn)
            trace = self._traces[txn, partition_id]
            trace.state, trace.marker_position, trace.decision = COMMITTED, marker.key, decision
        self._whole.append(Whole(txn, timeout_ms, self._now_us // 1000, self._counts.last_ended_at_ms, decision))


def _row(trace: _Trace) -> dict[str, Any]:
    return {name: getattr(trace, name) for name in _COLUMNS}


_Pairs = Sequence[tuple[Writer, Append]]
_COLUMNS = tuple(column.name for column in transaction_partitions.c)

_TRACES = Lookup(
    lambda names: select(
        transaction_partitions.c.txn,
        transaction_partitions.c.partition_id,
        transaction_partitions.c.first_position,
        transaction_partitions.c.last_position,
        transaction_partitions.c.messages,
        transaction_partitions.c.bytes,
    ).where(transaction_partitions.c.txn.in_([bindparam(name) for name in names]))
)
_JOINED = Lookup(
    lambda names: select(transaction_producers.c.txn, transaction_producers.c.producer_id).where(
        transaction_producers.c.txn.in_([bindparam(name) for name in names])
    )
)
_NEW_TRACES = NewRows(transaction_partitions)
_LENGTHEN_TRACE = Prepared(
    update(transaction_partitions)
    .where(
        transaction_partitions.c.txn == bindparam("of_txn"),
        transaction_partitions.c.partition_id == bindparam("of_partition"),
    )
    .values(last_position=bindparam("last"), messages=bindparam("messages"), bytes=bindparam("bytes"))
)
_SHORT = NewRows(short_entries)
_SHORT_OF = Lookup(
    lambda names: select(short_entries.c.partition_id, short_entries.c.position).where(
        short_entries.c.segment_id.in_([bindparam(name) for name in names])
    )
)
_JOINING = NewRows(transaction_producers)
_SEEN = Prepared(
    f"""UPDATE producers SET seen_ms = :now, ended = CASE ended WHEN {IDLE} THEN {WRITING} ELSE ended END
    WHERE producer_id = :id"""
)
