"""A partition of a Kafka log: bounds, transactions, and rows of any range of its offsets.

Offsets are positions: ``Position.key`` is the offset. Which entries a level shows is decided by the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from txn_source.foreign.foreign_log import (
    Decisions,
    ForeignPartition,
    ForeignTransaction,
    NoTraces,
    PartitionName,
    ReadUnit,
    Taken,
    TransactionSpans,
)
from txn_source.foreign.kafka.batch_reader import BatchReader
from txn_source.foreign.kafka.decided import DecidedTransactions
from txn_source.foreign.kafka.index_files import parse_time_index
from txn_source.foreign.kafka.producer_states import ProducerStates, SnapshotFile
from txn_source.foreign.kafka.segment_list import MAX_OFFSET, SegmentList
from txn_source.foreign.kafka.segments import TIME_INDEX, Segment
from txn_source.foreign.kafka.taking import take
from txn_source.foreign.kafka.transactions import Begun, Ended, replay
from txn_source.model.bounds import Bounds
from txn_source.model.errors import TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.model.transaction import TransactionState

UNIT_BYTES = 8 << 20


@dataclass(frozen=True)
class KafkaPartition(NoTraces):
    """A partition as its files showed it when they were listed.

    Args:
        name: topic and number.
        segments: its segments, wherever they lie.
        snapshots: states of its producers on brokers' disks.
        log_start: what the broker's checkpoint says; None if there is none. Inclusive.
        high_watermark: likewise; exclusive.
        topic_id: 22 letters that tell it from a topic of the same name before or after it; None if that isn't known.
        trust_indexes: whether a transaction index that looks sound is believed; else the markers are read.
    """

    name: PartitionName
    segments: SegmentList
    snapshots: Sequence[SnapshotFile] = ()
    log_start: int | None = None
    high_watermark: int | None = None
    topic_id: str | None = None
    trust_indexes: bool = True
    _known: dict[str, Bounds] = field(default_factory=dict, compare=False, repr=False)

    def bounds(self) -> Bounds:
        """Return the four bounds; those of a partition without a segment are all where its log starts.

        The high watermark is the checkpoint's, which a broker writes every few seconds, and without one the log's end.

        Raises:
            SegmentUnreadableError: a segment that the bounds follow from is damaged.
        """
        if "bounds" not in self._known:
            start, end = self.log_start or 0, self.log_start or 0
            if self.segments:
                start = max(start, self.segments.bases[0])
                end = max(self.segments.end, start)
                if self.high_watermark is not None and self.segments.has_damaged_end(self.high_watermark):
                    end = self.high_watermark  # who reads so far is told
            mark = end if self.high_watermark is None else min(max(self.high_watermark, start), end)
            firsts = [Position.from_key(begun.first) for begun in self._states.at(mark).values()]
            self._known["bounds"] = Bounds.of(
                Position.from_key(start), Position.from_key(end), firsts, Position.from_key(mark)
            )
        return self._known["bounds"]

    @property
    def identity(self) -> str | None:
        """The topic's id."""
        return self.topic_id

    def resume(self, before: ForeignPartition) -> None:
        """Take over what was learnt of the same partition when it was looked at before."""
        if isinstance(before, KafkaPartition) and before.topic_id == self.topic_id:
            self._states.resume(before._states)

    @cached_property
    def _states(self) -> ProducerStates:
        return ProducerStates(self.segments, self.snapshots)

    def decisions(self, of: PositionRange, as_of: Position | None = None) -> Decisions:
        """Return the aborted transactions that a read of a range needs, and those that are undecided.

        Only markers below the high watermark count, or below ``as_of`` if that is less.
        """
        mark = self.bounds().high_watermark
        until = mark.key if as_of is None else min(mark, as_of).key
        undecided = self._states.at(until)
        aborted = DecidedTransactions(self.segments, self._states, self.trust_indexes).aborted(
            of.start.key, of.end.key, until
        )
        return Decisions(
            _spans([(ended.producer_id, ended.first, ended.marker) for ended in aborted]),
            _spans([(producer, begun.first, MAX_OFFSET) for producer, begun in undecided.items()]),
        )

    def take(self, of: PositionRange, rows: int, size: int) -> Taken:
        """Return the beginning of a range that has at most so many records; its end may lie inside a batch.

        Behind it no markers come, which would be a batch of a stream without records.
        """
        return take(self.segments, of, rows, size)

    def transactions(self, of: PositionRange) -> list[ForeignTransaction]:
        """Return the transactions that touch a range, by their first offset.

        The headers of batches are read until all of them have ended. Of those that begin before the range the data's
        last offset may be unknown. If it reaches above the high watermark, what has data there is undecided.
        """
        bounds = self.bounds()
        start, mark = of.start.key, bounds.high_watermark.key
        opened = self._states.at(start)
        found: list[ForeignTransaction] = []
        for scanned in self.segments.headers(start, mark):
            found += [_ended(ended) for ended in replay(opened, scanned.headers, scanned.kinds)]
            is_behind = int(scanned.headers.last_offsets[-1]) + 1 >= of.end.key
            if is_behind and all(begun.first >= of.end.key for begun in opened.values()):
                break
        if of.end.key > mark:
            for scanned in self.segments.headers(max(start, mark), bounds.log_end.key):
                for ended in replay(opened, scanned.headers, scanned.kinds):
                    found.append(_open(ended.producer_id, Begun(ended.first, ended.last, ended.epoch)))
        found += [_open(producer, begun) for producer, begun in opened.items()]
        return sorted((txn for txn in found if txn.first < of.end), key=lambda txn: txn.first)

    def firsts(self, identities: Collection[tuple[int, int]], of: PositionRange) -> Mapping[tuple[int, int], Position]:
        """Return where transactions have their first data, of those that have some in a range.

        Identities are producer ids and epochs. The range is gone through from its end, segment by segment, as long as a
        snapshot of the producers doesn't say that a transaction began later; one that knows nothing of the producer
        says so, too.
        """
        found: dict[tuple[int, int], int] = {}
        left = set(identities)
        end = of.end.key
        for base in reversed(self.segments.bases_over(of.start.key, end)):
            if not left:
                break
            for scanned in self.segments.headers(max(base, of.start.key), end):
                headers = scanned.headers
                data = headers.transactional & ~headers.control & (headers["base_offset"] < end)
                data &= np.isin(headers["producer_id"], [producer for producer, _ in left])
                rows = (headers["producer_id"][data], headers["producer_epoch"][data], headers["base_offset"][data])
                for producer, epoch, first in zip(*(column.tolist() for column in rows), strict=True):
                    if (producer, epoch) in left:
                        found[producer, epoch] = min(first, found.get((producer, epoch), first))
            end = base
            known = self._states.exactly_at(base)
            if known is not None:
                open_at = {(int(p["producer_id"]), int(p["epoch"])): int(p["txn_first"]) for p in known}
                found |= {name: open_at[name] for name in left & open_at.keys() if open_at[name] >= 0}
                later = dict(open_at.keys())
                left = {name for name in left if later.get(name[0], -1) > name[1]}
        return {name: Position.from_key(first) for name, first in found.items()}

    def units(self, of: PositionRange, unit_bytes: int = UNIT_BYTES) -> list[ReadUnit]:
        """Return ranges that make up a range, in order; large segments are cut at entries of their offset index."""
        units: list[ReadUnit] = []
        start, end = of.start.key, of.end.key
        for base in self.segments.bases_over(start, end):
            segment = self.segments.copies(base)[0]
            low, high = max(start, base), min(end, self.segments.next_base(base) or end)
            if low >= high:
                continue
            for first, last, position, size in _pieces(self.segments, segment, low, high, unit_bytes):
                at, until = Position.from_key(first), Position.from_key(last)
                before = units[-1] if units else None
                if before is not None and before.bytes + size <= unit_bytes:
                    joined = PositionRange(before.of.start, until)
                    units[-1] = ReadUnit(
                        joined, before.rows + last - first, before.bytes + size, before.place, before.at
                    )
                else:
                    units.append(ReadUnit(PositionRange(at, until), last - first, size, segment.files.place, position))
        return units

    def read(
        self,
        unit: ReadUnit | PositionRange,
        level: IsolationLevel,
        decisions: Decisions,
        columns: Sequence[str],
        skipped: Callable[[TxnLogError], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range that the level shows, in the order of their offsets.

        Args:
            unit: what to read; it lies below the level's bound.
            level: the reader's isolation level.
            decisions: those of a range that has this one in it.
            columns: names out of ``records.COLUMNS``.
            skipped: is told of each batch that is damaged, and of what is lost, and the read goes on behind it. None:
                the first one raises.

        Raises:
            SegmentUnreadableError: a batch is damaged.
            DataLossError: a segment has gone.
            LogVersionError: messages have a format that can't be read.
        """
        of = unit.of if isinstance(unit, ReadUnit) else unit
        return BatchReader(self.segments, self._states, level, decisions, columns, skipped).read(of)

    def count(self, unit: ReadUnit | PositionRange, level: IsolationLevel, decisions: Decisions) -> int | None:
        """Return how many rows ``read`` would yield, by the headers of batches; None: they must be read.

        Large batches aren't read, so damage behind their headers isn't found.
        """
        of = unit.of if isinstance(unit, ReadUnit) else unit
        return BatchReader(self.segments, self._states, level, decisions, ["offset"]).count(of)

    def position_at(self, timestamp: int) -> Position | None:
        """Return the first position of a record whose time is at or after one; None if none is.

        Markers count, as they do for Kafka's own answer; what is below a level's bound is the model's matter.
        """
        bounds = self.bounds()
        start = bounds.log_start.key
        for base in self.segments.bases_over(start, bounds.log_end.key):
            segment = self.segments.copies(base)[0]
            times, offsets = parse_time_index(segment.files.small(TIME_INDEX) or b"", base)
            following = self.segments.next_base(base)
            if following is not None and len(times) and times[-1] < timestamp:
                continue
            at = int(np.searchsorted(times, timestamp)) - 1
            low = max(start, base if at < 0 else int(offsets[at]))
            found = self._first_at(timestamp, low, min(bounds.log_end.key, following or MAX_OFFSET))
            if found is not None:
                return Position.from_key(found)
        return None

    def _first_at(self, timestamp: int, start: int, end: int) -> int | None:
        for scanned in self.segments.headers(start, end):
            late = np.flatnonzero(scanned.headers["max_timestamp"] >= timestamp)
            for index in late.tolist():
                headers = scanned.headers.where(np.array([index]))
                first, last = int(headers["base_offset"][0]), int(headers.last_offsets[0])
                if headers.has_append_time[0] or headers.control[0]:
                    return max(first, start)
                found = BatchReader.first_time(self.segments, timestamp, max(first, start), last + 1)
                if found is not None:
                    return found
        return None


def _pieces(
    segments: SegmentList, segment: Segment, low: int, high: int, unit_bytes: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield ranges of offsets of one segment, each with a position to begin at and about its bytes."""
    if segment.size <= unit_bytes:
        yield low, high, 0, segment.size
        return
    index = segments.index(segment, segment.size)
    first, position = low, index.position_below(low)
    ends = index.offsets + 1  # an entry has its batch's last offset: what is cut behind that cuts no batch
    inside = int(np.searchsorted(ends, high))
    while True:
        far, behind = np.searchsorted(index.positions, position + unit_bytes), np.searchsorted(ends, first, "right")
        at = int(max(far, behind))
        if at >= inside:
            break
        end, place = int(ends[at]), int(index.positions[at])
        yield first, end, position, place - position
        first, position = end, place
    stop = int(index.positions[inside]) if inside < len(ends) else segment.size
    yield first, high, position, max(stop - position, 0)


def _spans(rows: Sequence[tuple[int, int, int]]) -> TransactionSpans:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return TransactionSpans(*(np.ascontiguousarray(columns[:, index]) for index in range(3)))


def _open(producer: int, begun: Begun) -> ForeignTransaction:
    last = None if begun.last is None else Position.from_key(begun.last)
    first, named = Position.from_key(begun.first), (producer, begun.epoch)
    return ForeignTransaction(producer, begun.epoch, first, last, None, TransactionState.OPEN, named)


def _ended(ended: Ended) -> ForeignTransaction:
    return ForeignTransaction(
        ended.producer_id,
        ended.epoch,
        Position.from_key(ended.first),
        None if ended.last is None else Position.from_key(ended.last),
        Position.from_key(ended.marker),
        TransactionState.ABORTED if ended.aborted else TransactionState.COMMITTED,
        (ended.producer_id, ended.epoch) if ended.own_epoch else None,
    )
