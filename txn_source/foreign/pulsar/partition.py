"""One topic, or partition of one, of which Pulsar offloaded ledgers: bounds, units, rows."""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as fs

from txn_source.foreign.foreign_log import (
    Decisions,
    ForeignPartition,
    ForeignTransaction,
    PartitionName,
    ReadUnit,
    Taken,
)
from txn_source.foreign.pulsar.chunks import Chunk, whole_messages
from txn_source.foreign.pulsar.entries import PUBLISH_TIME, Entries, look_into, txn_bits, txn_number
from txn_source.foreign.pulsar.listing import OffloadedLedger, TopicLedgers
from txn_source.foreign.pulsar.managed_ledger import Snapshot
from txn_source.foreign.pulsar.map_file import UnfinishedError
from txn_source.foreign.pulsar.messages import Decoder
from txn_source.foreign.pulsar.outcomes import Outcomes, as_known, decisions, outcomes
from txn_source.foreign.pulsar.payloads import Chunked
from txn_source.foreign.pulsar.raw_entries import EntrySource, Stretch, threads_for
from txn_source.foreign.pulsar.summary import LedgerSummary, summarize
from txn_source.foreign.pulsar.summary_cache import SUMMARIES
from txn_source.foreign.pulsar.trace import follows, late_ledgers, trace_of
from txn_source.foreign.pulsar.value_schema import TopicSchema
from txn_source.model.bounds import Bounds
from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    SegmentUnreadableError,
    TxnLogError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange, entry_of, ledger_of
from txn_source.model.visibility import BoolArray, visible

_log = logging.getLogger(__name__)
_told: set[str] = set()
"""Warnings that were given: a stream looks every few seconds."""
_WHOLE = "Read a range that leaves the ledger out, or restore its object."


@dataclass(frozen=True, slots=True)
class PulsarUnit(ReadUnit):
    """A unit of one ledger, with the chunks of the messages that end in it.

    ``at`` is the place of the entry ``at_entry``, the first one of the unit or one before it, and ``stop`` one behind
    its last; 0 if that isn't known.
    """

    at_entry: int = 0
    stop: int = 0
    chunked: tuple[tuple[Chunk, ...], ...] = ()


class PulsarPartition:
    """The offloaded part of one managed ledger. All its entries are looked at when bounds or units are asked for."""

    def __init__(
        self,
        system: fs.FileSystem,
        name: PartitionName,
        topic: str,
        ledgers: TopicLedgers,
        snapshot: Snapshot | None,
        *,
        keep_encrypted: bool = False,
        schema: TopicSchema | None = None,
        own_snapshot: Callable[[], Snapshot | None] = lambda: None,
    ) -> None:
        self.name = name
        self.schema = schema
        self.topic = topic
        self.ledgers = ledgers
        self._system = system
        self._snapshot = snapshot
        self._own_snapshot = own_snapshot
        self._keep_encrypted = keep_encrypted
        self._summaries: dict[int, LedgerSummary] = {}
        self._known: Outcomes | None = None
        self._whole: list[tuple[Chunk, ...]] | None = None

    def add_summaries(self, summaries: Sequence[LedgerSummary]) -> None:
        """Take what others learnt of ledgers, so that they aren't looked at again; an object never changes."""
        self._summaries.update({summary.ledger_id: summary for summary in summaries})
        self._known = self._whole = None

    def summaries(self) -> list[LedgerSummary]:
        """Return what lies in the ledgers, in their order; several are looked at at once."""
        unknown = [ledger for ledger in self.ledgers.ledgers if ledger.ledger_id not in self._summaries]
        if unknown:
            with ThreadPoolExecutor(threads_for(self._system)) as pool:
                tasks = [pool.submit(self._look_at, ledger) for ledger in unknown]
                try:
                    for ledger, task in zip(unknown, tasks, strict=True):
                        try:
                            self._summaries[ledger.ledger_id] = task.result()
                        except UnfinishedError:
                            if not self.ledgers.is_unfinished(self._system, ledger):
                                raise
                            self.ledgers = self.ledgers.without_last()
                finally:
                    for task in tasks:
                        task.cancel()
            self.ledgers = _without_gaps(self.topic, self.ledgers, self._summaries)
        return [self._summaries[ledger.ledger_id] for ledger in self.ledgers.ledgers]

    def _look_at(self, ledger: OffloadedLedger) -> LedgerSummary:
        source = ledger.source(self._system)
        return SUMMARIES.get((source.uri, ledger.bytes, ledger.modified), lambda: summarize(source, ledger.ledger_id))

    def outcomes(self) -> Outcomes:
        """Return the topic's transactions by number (``entries.txn_bits`` tells the id)."""
        if self._known is None:
            self._known = outcomes(self.summaries(), self._snapshot)
            if len(self._known.undecided_from()):
                own = self._own_snapshot()
                if own is not None and (self._snapshot is None or self._snapshot.last_key < own.last_key):
                    self._known = outcomes(self.summaries(), own)
        return self._known

    def resume(self, before: ForeignPartition) -> None:
        """Nothing: the process keeps what was learnt of ledgers."""

    def bounds(self) -> Bounds:
        """Return the four bounds of what is offloaded; it ends before the first ledger that is not."""
        undecided = self.outcomes().undecided_from()
        places = sorted(
            [(ledger.ledger_id, ledger.entries) for ledger in self.ledgers.ledgers] + list(self.ledgers.lost)
        )
        if not places:
            start = end = Position(self.ledgers.next_ledger or 0, 0)
        else:
            start, end = Position(places[0][0], 0), Position(*places[-1])
        return Bounds.of(start, end, [Position.from_key(key) for key in undecided.tolist()])

    def decisions(self, of: PositionRange, as_of: Position | None = None) -> Decisions:
        """Return what a read of a range needs to know of transactions."""
        return decisions(self.outcomes() if as_of is None else as_known(self.outcomes(), as_of), of)

    def trace(self, at: Position) -> Mapping[str, Any]:
        """Return what a stream is to keep with a position: see ``trace_of``."""
        return trace_of(at, self.ledgers, self._summaries)

    def follows(self, trace: Mapping[str, Any]) -> bool:
        """True if the first ledger is known to be the one behind the position of a trace."""
        first = next(iter(self.ledgers.ledgers), None)
        if first is None:
            return self.ledgers.next_ledger is not None and follows(trace, self.ledgers.next_ledger, -1)
        return follows(trace, first.ledger_id, self._summaries[first.ledger_id].first_index)

    def late(self, trace: Mapping[str, Any], at: Position) -> list[str]:
        """Return the ledgers that came after a stream had passed them."""
        return [f"ledger {ledger}" for ledger in late_ledgers(trace, at, self.ledgers)]

    def without_late(self, trace: Mapping[str, Any], at: Position) -> None:
        """Leave these out."""
        late = late_ledgers(trace, at, self.ledgers)
        kept = tuple(ledger for ledger in self.ledgers.ledgers if ledger.ledger_id not in late)
        self.ledgers = replace(self.ledgers, ledgers=kept)
        self._known = self._whole = None

    @property
    def identity(self) -> None:
        """Ledgers are never used again, so positions tell a topic from one before it."""
        return None

    def transactions(self, of: PositionRange) -> list[ForeignTransaction]:
        """Return the transactions with data in a range, or that end there, by their first position."""
        known = self.outcomes()
        found = []
        for txn in known.some(known.touching(of)):
            most, least = txn_bits(txn.txn)
            last, marker = (Position.from_key(key) if key >= 0 else None for key in (txn.last, txn.marker))
            first = Position.from_key(min(key for key in (txn.first, txn.marker) if key >= 0))
            found.append(ForeignTransaction(most, least, first, last, marker, txn.state, (most, least)))
        return sorted(found, key=lambda txn: txn.first)

    def firsts(self, identities: Collection[tuple[int, int]], of: PositionRange) -> Mapping[tuple[int, int], Position]:
        """Return where transactions have their first data, of those that have some in a range."""
        known = self.outcomes()
        found = [known[number] for most, least in identities if (number := txn_number(most, least)) in known]
        return {
            txn_bits(txn.txn): Position.from_key(txn.first)
            for txn in found
            if 0 <= txn.first < of.end.key and txn.last >= of.start.key
        }

    def check(self, of: PositionRange) -> None:
        """Raise DATA_LOSS if a ledger is missing in a range."""
        for ledger_id, entries in self.ledgers.lost:
            lost = PositionRange(Position(ledger_id, 0), Position(ledger_id, entries))
            if lost.start < of.end and of.start < lost.end:
                error = DataLossError(
                    f"Ledger {ledger_id} of {self.topic}, {lost}, was offloaded, and its object is gone.", _WHOLE
                )
                error.lost = lost
                raise error

    def incomplete_messages(self) -> list[Position]:
        """Return the first chunk that is left of each chunked message that was never whole.

        Its producer gave it up, or it was trimmed in part; nobody can read it, and no read tells of it.
        """
        chunks = [chunk for summary in self.summaries() for chunk in summary.chunks]
        whole = {(message[0].uuid, message[0].txn) for message in whole_messages(chunks)}
        firsts: dict[tuple[bytes, int], int] = {}
        for chunk in chunks:
            if (chunk.uuid, chunk.txn) not in whole:
                firsts.setdefault((chunk.uuid, chunk.txn), chunk.key)
        return [Position.from_key(key) for key in firsts.values()]

    def units(self, of: PositionRange, unit_bytes: int) -> list[ReadUnit]:
        """Return ranges that make up a range, in order, of about so many bytes each, each in one ledger.

        Raises:
            DataLossError: a ledger is missing in the range.
        """
        self.check(of)
        summaries = self.summaries()
        if self._whole is None:
            self._whole = list(whole_messages(chunk for summary in summaries for chunk in summary.chunks))
        keys = [message[-1].key for message in self._whole]
        units: list[ReadUnit] = []
        for ledger, summary in zip(self.ledgers.ledgers, summaries, strict=True):
            for first, end, where, rows, size in _pieces(summary, of, unit_bytes):
                span = PositionRange(Position(ledger.ledger_id, first), Position(ledger.ledger_id, end))
                low, high = bisect.bisect_left(keys, span.start.key), bisect.bisect_left(keys, span.end.key)
                chunked = tuple(self._whole[low:high])
                units.append(
                    PulsarUnit(
                        span,
                        rows,
                        size,
                        ledger.data or "",
                        where.place,
                        at_entry=where.entry,
                        stop=where.stop,
                        chunked=chunked,
                    )
                )
        return units

    def take(self, of: PositionRange, rows: int, size: int) -> Taken:
        """Return the first entries of a range that have so many messages or stored bytes at most, or the first one.

        Messages of aborted transactions count. Markers behind the last entry are taken along.
        """
        taken = Taken(of.start, 0, 0)
        units = self.units(of, 1)
        for unit in units:
            whole = unit is not units[0] and unit is not units[-1]  # of the others the range may have a part only
            if whole and taken.rows + unit.rows <= rows and taken.bytes + unit.bytes <= size:
                taken = Taken(unit.of.end, taken.rows + unit.rows, taken.bytes + unit.bytes)
                continue
            for at, messages, stored in self._entries(unit):
                full = taken.rows + messages > rows or taken.bytes + stored > size
                if messages and taken.rows and full:
                    return taken
                taken = Taken(at.plus(1), taken.rows + messages, taken.bytes + stored)
        return taken

    def _entries(self, unit: ReadUnit) -> Iterator[tuple[Position, int, int]]:
        """Yield the entries of a unit: position, messages, bytes."""
        ledger_id, first, end = unit.of.start.ledger_id, unit.of.start.entry_id, unit.of.end.entry_id
        source = self._ledger(ledger_id).source(self._system)
        within = Stretch(unit.at_entry, unit.at, unit.stop) if isinstance(unit, PulsarUnit) else None
        for raw in source.read(first, end, within):
            found = look_into(raw, source.uri, ledger_id)
            for key, messages, size in zip(
                found.keys.tolist(), found.messages.tolist(), (raw.ends - raw.starts).tolist(), strict=True
            ):
                if first <= entry_of(key) < end:
                    yield Position.from_key(key), messages, size

    def read(
        self,
        unit: ReadUnit,
        level: IsolationLevel,
        decisions: Decisions,
        columns: Sequence[str],
        skipped: Callable[[TxnLogError], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a unit that the level shows, in the log's order.

        The unit lies below the level's bound; what is undecided is shown, and said in ``__txn_status``. ``skipped`` is
        told of what can't be read, and then the rest of the unit is left out; None: it raises.

        Raises:
            SegmentUnreadableError: an entry is damaged, or the store doesn't answer.
            DataLossError: an object is gone.
            InvalidArgumentError: an entry is encrypted, and that is refused or the unit begins or ends inside it; or
                the unit lies in no ledger of the topic.
        """
        try:
            yield from self._rows(unit, level, decisions, columns)
        except SegmentUnreadableError as error:
            if skipped is None:
                raise
            skipped(error)

    def count(self, unit: ReadUnit, level: IsolationLevel, decisions: Decisions) -> None:
        """Return None: a batch may have messages that compaction took."""

    def _rows(
        self, unit: ReadUnit, level: IsolationLevel, decided: Decisions, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        decoder = Decoder.of(
            columns,
            decided.aborted.names,
            decided.undecided,
            keep_encrypted=self._keep_encrypted,
            typed=self.schema,
        )
        planned = unit if isinstance(unit, PulsarUnit) else None
        wanted = {m[-1].key: m for m in (planned.chunked if planned else ())}
        needs_chunks = bool(wanted) and not {"value", "__first_chunk"}.isdisjoint(columns)
        ledger_id, first, end = unit.of.start.ledger_id, unit.of.start.entry_id, unit.of.end.entry_id
        source = self._ledger(ledger_id).source(self._system)
        within = Stretch(planned.at_entry, planned.at, planned.stop) if planned else None
        for raw in source.read(first, end, within):
            found = look_into(raw, source.uri, ledger_id)
            seen = visible(found.keys, found.txns, found.markers, unit.of, level, decided.aborted.names)
            parts = found.chunks()
            if self._keep_encrypted:
                parts &= ~found.encrypted()
            last_chunks = parts & np.isin(found.keys, np.array(list(wanted), np.int64))
            seen &= ~parts | last_chunks
            chunked = self._chunked(found, seen & last_chunks, wanted) if needs_chunks else {}
            yield from decoder.batches(found, seen, chunked, unit.inside)

    def position_at(self, timestamp: int) -> Position | None:
        """Return the first position of an entry published, by its producer's clock, at a time (ms) or later."""
        summaries = self.summaries()
        for ledger, summary in zip(self.ledgers.ledgers, summaries, strict=True):
            for at in np.flatnonzero(summary.times >= timestamp).tolist():
                source = ledger.source(self._system)
                first, place = int(summary.firsts[at]), int(summary.places[at])
                for raw in source.read(first, ledger.entries, Stretch(first, place)):
                    found = look_into(raw, source.uri, ledger.ledger_id)
                    late = found.metadata.number(PUBLISH_TIME) >= timestamp
                    if late.any():
                        return Position.from_key(int(found.keys[np.argmax(late)]))
        return None

    def _ledger(self, ledger_id: int) -> OffloadedLedger:
        for ledger in self.ledgers.ledgers:
            if ledger.ledger_id == ledger_id:
                return ledger
        raise InvalidArgumentError(f"{self.topic} has no ledger {ledger_id}.", "Plan the read anew.")

    def _chunked(self, found: Entries, last: BoolArray, wanted: Mapping[int, tuple[Chunk, ...]]) -> dict[int, Chunked]:
        """Return what comes before last chunks, by their index in the entries; it is read anew, by its place."""
        whole = {}
        for at in np.flatnonzero(last).tolist():
            chunks = wanted[int(found.keys[at])][:-1]
            if chunks:
                data = b"".join(self._payload(chunk) for chunk in chunks)
                whole[at] = Chunked(data, Position.from_key(chunks[0].key))
        return whole

    def _payload(self, chunk: Chunk) -> bytes:
        ledger_id, entry = ledger_of(chunk.key), entry_of(chunk.key)
        source: EntrySource = self._ledger(ledger_id).source(self._system)
        for raw in source.read(entry, entry + 1, Stretch(entry, chunk.place, chunk.stop)):
            found = look_into(raw, source.uri, ledger_id)
            at = entry - raw.first
            if 0 <= at < len(found):
                return raw.data[found.bodies[at] : raw.ends[at]].tobytes()
        raise DataLossError(f"Entry {Position(ledger_id, entry)} of {self.topic} is gone.", _WHOLE)


def _pieces(summary: LedgerSummary, of: PositionRange, unit_bytes: int) -> Iterator[tuple[int, int, Stretch, int, int]]:
    """Yield the parts of a ledger that lie in a range, each of whole stretches but at the range's ends.

    Of each part: its first entry, its end, where the stretches lie, messages at most, and bytes.
    """
    if not of.start.ledger_id <= summary.ledger_id <= of.end.ledger_id:
        return
    low = of.start.entry_id if of.start.ledger_id == summary.ledger_id else 0
    high = min(of.end.entry_id, summary.entries) if of.end.ledger_id == summary.ledger_id else summary.entries
    ends = np.append(summary.firsts[1:], summary.entries)
    inside = np.flatnonzero((ends > low) & (summary.firsts < high)).tolist()
    while inside:
        count = max(int(np.searchsorted(np.cumsum(summary.sizes[inside]), unit_bytes, "right")), 1)
        part, inside = inside[:count], inside[count:]
        first, end = max(int(summary.firsts[part[0]]), low), min(int(ends[part[-1]]), high)
        rows, size = int(summary.rows[part].sum()), int(summary.sizes[part].sum())
        stop = int(summary.places[part[-1] + 1]) if part[-1] + 1 < len(summary.places) else 0
        yield first, end, Stretch(int(summary.firsts[part[0]]), int(summary.places[part[0]]), stop), rows, size


def _without_gaps(topic: str, ledgers: TopicLedgers, known: Mapping[int, LedgerSummary]) -> TopicLedgers:
    """Return the ledgers before one that isn't there, as far as the broker's own numbers of messages tell it.

    It may still come: where offloading a ledger fails, Pulsar goes on with the next one, and tries again later.
    """
    for at in range(1, len(ledgers.ledgers)):
        before, after = (known[ledger.ledger_id] for ledger in ledgers.ledgers[at - 1 : at + 1])
        between = any(before.ledger_id < lost < after.ledger_id for lost, _ in ledgers.lost)
        if ledgers.listed or between or min(before.next_index, after.first_index) < 0:
            continue
        if before.next_index < after.first_index:
            what = (
                f"{topic} ends at {before.ledger_id}:{before.entries} for now: the broker's number of the next message"
                f" is {before.next_index}, and ledger {after.ledger_id} begins with {after.first_index}. What is"
                " between isn't offloaded yet, or is gone; the option managedLedgers tells which."
            )
            if what not in _told:
                _told.add(what)
                _log.warning("%s", what)
            lost = tuple(ledger for ledger in ledgers.lost if ledger[0] < after.ledger_id)
            return replace(ledgers, ledgers=ledgers.ledgers[:at], lost=lost)
    return ledgers
