"""Reads a range of a partition at a level: which batches it shows, their checksums, and their records as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from txn_source.foreign.foreign_log import Decisions, TransactionSpans
from txn_source.foreign.kafka.batch_headers import HEADER_BYTES, BatchHeaders
from txn_source.foreign.kafka.compression import MAX_BATCH, CompressionError, decompress
from txn_source.foreign.kafka.decoding_turn import decoding_turn
from txn_source.foreign.kafka.producer_states import ProducerStates
from txn_source.foreign.kafka.record_walk import DamagedRecords
from txn_source.foreign.kafka.records import COLUMNS, decode
from txn_source.foreign.kafka.segment_list import SegmentList
from txn_source.foreign.kafka.segment_reader import Chunk, damaged
from txn_source.foreign.kafka.span_check import SpanCheck, covering
from txn_source.foreign.kafka.transactions import marker_kinds
from txn_source.foreign.kafka.varints import Bytes, Ints
from txn_source.model.errors import InvalidArgumentError, SegmentUnreadableError, TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.model.visibility import NO_TXN, visible

_GROUP = 8 << 20
"""Bytes of uncompressed records that make one batch of rows."""
PLAIN, COMMITTED, ABORTED, OPEN = -1, 0, 1, 2


class BatchReader:
    """Reads ranges of a partition.

    Args:
        segments: the partition's.
        states: what its producers have open, to check what the decisions say.
        level: the reader's isolation level.
        decisions: what is known of the transactions of all ranges that are read.
        columns: names out of ``COLUMNS``.
        skipped: is told of damaged batches and of what is lost, which is passed over; None: the first one raises.
    """

    def __init__(
        self,
        segments: SegmentList,
        states: ProducerStates,
        level: IsolationLevel,
        decisions: Decisions,
        columns: Sequence[str],
        skipped: Callable[[TxnLogError], None] | None = None,
    ) -> None:
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown:
            raise InvalidArgumentError(f"There is no column {unknown[0]}.", f"Use some of {', '.join(COLUMNS)}.")
        self._segments = segments
        self._states = states
        self._level = level
        self._decisions = decisions
        self._columns = columns
        self._skipped = skipped

    def read(self, of: PositionRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range that the level shows, in the order of their offsets."""
        start, end = of.start.key, of.end.key
        check = self._check(start)
        for chunk, place in self._segments.chunks(start, end, self._skipped):
            if check is not None:
                check.check(chunk.headers, marker_kinds(chunk, place), place)
            which, aborted = self._shown(chunk.headers, of)
            if len(which):
                shown = Chunk(chunk.data, chunk.begins[which], chunk.headers.where(which), chunk.position)
                yield from self._rows(shown, self._statuses(shown.headers, aborted[which]), place, (start, end))

    def count(self, of: PositionRange) -> int | None:
        """Return how many rows a range has, by the headers of its batches; only one that the range cuts is decoded.

        None: the headers don't say, and the rows must be read.
        """
        start, end = of.start.key, of.end.key
        check = self._check(start)
        rows = 0
        for scanned in self._segments.headers(start, end, strict=True):
            if check is not None:
                check.check(scanned.headers, scanned.kinds, scanned.place)
            shown = scanned.headers.where(self._shown(scanned.headers, of)[0])
            bases, lasts, counts = shown["base_offset"], shown.last_offsets, shown["count"]
            if (counts > lasts - bases + 1).any():
                return None
            whole = (bases >= start) & (lasts < end)
            rows += int(counts[whole].sum())
            for base, last in zip(bases[~whole].tolist(), lasts[~whole].tolist(), strict=True):
                part = PositionRange(Position.from_key(max(base, start)), Position.from_key(min(last + 1, end)))
                rows += sum(batch.num_rows for batch in self.read(part))
        return rows

    def _check(self, start: int) -> SpanCheck | None:
        if self._level is IsolationLevel.READ_COMMITTED or "__txn_status" in self._columns:
            return SpanCheck(self._decisions.aborted, self._states, start)
        return None

    def _shown(self, headers: BatchHeaders, of: PositionRange) -> tuple[Ints, Ints]:
        """Return the indexes of the batches that the level shows, and of all which aborted transaction each is in."""
        aborted = numbers(headers, self._decisions.aborted)
        # A batch that reaches into the range begins, for the model, where the range does.
        positions = np.maximum(headers["base_offset"], of.start.key)
        known = np.arange(len(self._decisions.aborted))
        some = visible(positions, aborted, headers.control, of, self._level, known)
        return np.flatnonzero(some & (headers["count"] > 0)), aborted

    def _skip(self, error: SegmentUnreadableError) -> None:
        if self._skipped is None:
            raise error
        self._skipped(error)

    def _statuses(self, headers: BatchHeaders, aborted: Ints) -> Ints | None:
        """Return how the transaction of each batch ended, as far as the decisions know."""
        if "__txn_status" not in self._columns:
            return None
        undecided = numbers(headers, self._decisions.undecided) != NO_TXN
        known = np.where(aborted != NO_TXN, ABORTED, np.where(undecided, OPEN, COMMITTED))
        return np.where(headers.transactional, known, PLAIN)

    def _rows(self, chunk: Chunk, statuses: Ints | None, place: str, of: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        for data, begins, ends, which in self._uncompressed(chunk, place):
            while len(which):
                headers = chunk.headers.where(which)
                status = None if statuses is None else statuses[which]
                try:
                    with decoding_turn():
                        rows = decode(data, headers, begins, ends, self._columns, of, status)
                except DamagedRecords as error:
                    self._skip(_damaged(headers, error.batch, place, error.why))
                    begins, ends, which = (np.delete(array, error.batch) for array in (begins, ends, which))
                    continue
                if rows.num_rows:
                    yield rows
                break

    def _uncompressed(self, chunk: Chunk, place: str) -> Iterator[tuple[Bytes, Ints, Ints, Ints]]:
        """Yield the records of batches as bytes, where each batch's begin and end in them, and which batches they are.

        Batches that aren't compressed are used where they lie.
        """
        codecs = chunk.headers.codecs
        ends = chunk.begins + chunk.headers.sizes
        if not codecs.any():
            yield chunk.data, chunk.begins + HEADER_BYTES, ends, np.arange(len(codecs))
            return
        group: list[bytes | memoryview | pa.Buffer] = []
        sizes: list[int] = []
        which: list[int] = []
        total = 0
        rows = zip(codecs.tolist(), chunk.begins.tolist(), ends.tolist(), strict=True)
        for index, (codec, begin, end) in enumerate(rows):
            try:
                part = decompress(codec, chunk.data.data[begin + HEADER_BYTES : end])
            except CompressionError as error:
                self._skip(_damaged(chunk.headers, index, place, str(error)))
                continue
            if group and total + len(part) > min(_GROUP, MAX_BATCH):
                yield _joined(group, sizes, which)
                group, sizes, which, total = [], [], [], 0
            group.append(part)
            sizes.append(len(part))
            which.append(index)
            total += len(part)
        if group:
            yield _joined(group, sizes, which)

    @classmethod
    def first_time(cls, segments: SegmentList, timestamp: int, start: int, end: int) -> int | None:
        """Return the first offset in ``[start, end)`` whose record's time, in milliseconds, is at or after one."""
        nothing = Decisions(TransactionSpans.none(), TransactionSpans.none())
        reader = cls(
            segments,
            ProducerStates(segments, ()),
            IsolationLevel.READ_UNCOMMITTED,
            nothing,
            ["offset", "__timestamp_ms"],
        )
        for rows in reader.read(PositionRange(Position.from_key(start), Position.from_key(end))):
            for offset, time in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True):
                if time >= timestamp:
                    return int(offset)
        return None


def _joined(
    group: list[bytes | memoryview | pa.Buffer], sizes: list[int], which: list[int]
) -> tuple[Bytes, Ints, Ints, Ints]:
    data = np.frombuffer(group[0] if len(group) == 1 else b"".join(group), np.uint8)
    ends = np.cumsum(np.array(sizes, np.int64))
    return data, ends - sizes, ends, np.array(which, np.int64)


def numbers(headers: BatchHeaders, spans: TransactionSpans) -> Ints:
    """Return of each batch which of some transactions it belongs to, by index, or ``NO_TXN``.

    It is its producer's whose first entry lies at or below it, and whose marker above it.
    """
    which = np.flatnonzero(headers.transactional & ~headers.control)
    found = np.full(len(headers), NO_TXN, np.int64)
    found[which] = covering(headers["producer_id"][which], headers["base_offset"][which], spans)
    return found


def _damaged(headers: BatchHeaders, index: int, place: str, why: str) -> SegmentUnreadableError:
    return damaged(place, int(headers.positions[index]), int(headers["base_offset"][index]), why)
