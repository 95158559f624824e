"""The segments of a partition in the log's order, and walks over the batches of a range of offsets.

A segment may be there twice, on a broker's disk and in the remote tier, or on two brokers' disks. Either copy gives the
same batches. So if one is gone or damaged, the walk goes on in the other from the offset that it had come to.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from txn_source.foreign.kafka.batch_headers import HEADER_BYTES, BatchHeaders, Stop, find_batches
from txn_source.foreign.kafka.index_files import OffsetIndex
from txn_source.foreign.kafka.segment_reader import CHUNK, Chunk, SegmentReader, damaged, wrong_checksums
from txn_source.foreign.kafka.segments import INDEX, LogBytes, Segment
from txn_source.foreign.kafka.transactions import UNKNOWN, marker_kinds
from txn_source.foreign.kafka.varints import Ints
from txn_source.model.errors import DataLossError, SegmentUnreadableError, TxnLogError
from txn_source.model.position import Position, PositionRange

MAX_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Scanned:
    """Headers of batches that follow each other, and what each is as a marker."""

    headers: BatchHeaders
    kinds: Ints
    place: str


T = TypeVar("T")
Cut = Callable[[T, int, int], tuple[T | None, int]]
"""Returns what of a piece lies in ``[from, to)``, and the last offset of the whole piece; None if nothing does."""


class WrongChecksum(Exception):
    """No copy of a batch has the checksum that its header says."""

    def __init__(self, place: str, position: int, offset: int) -> None:
        self.told = damaged(place, position, offset, "its checksum is wrong")
        super().__init__(self.told)
        self.offset = offset


class SegmentList:
    """Segments, ascending by base offset; of those with the same one, the local ones first."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = sorted(segments, key=lambda segment: (segment.base_offset, segment.remote, segment.folder))
        self.bases = sorted({segment.base_offset for segment in segments})
        self._copies: dict[int, list[Segment]] = {}
        self._folders: dict[str, list[Segment]] = {}
        for segment in self.segments:
            self._copies.setdefault(segment.base_offset, []).append(segment)
            self._folders.setdefault(segment.folder, []).append(segment)

    def __bool__(self) -> bool:
        return bool(self.segments)

    def copies(self, base: int) -> list[Segment]:
        """Return the segments that begin at a base offset, and of other folders those that may reach over it."""
        exact = self._copies[base]
        if len(self._folders) == 1:
            return exact
        return exact + [
            segments[at - 1]
            for segments in self._folders.values()
            if (at := bisect_right(segments, base, key=lambda segment: segment.base_offset))
            if segments[at - 1].base_offset < base
        ]

    def next_base(self, base: int) -> int | None:
        """Return the base offset behind one; None if it is the last."""
        at = bisect_right(self.bases, base)
        return self.bases[at] if at < len(self.bases) else None

    def limit(self, segment: Segment) -> int | None:
        """Return an offset above all of a segment's; None if it is its folder's last, or in the remote tier.

        There a segment may be in two copies that leaders rolled at different offsets.
        """
        if segment.remote:
            return None
        segments = self._folders[segment.folder]
        at = bisect_right(segments, segment.base_offset, key=lambda other: other.base_offset)
        return segments[at].base_offset if at < len(segments) else None

    def bases_over(self, start: int, end: int) -> list[int]:
        """Return the base offsets of the segments that can have an offset of ``[start, end)``."""
        first = max(bisect_right(self.bases, start) - 1, 0)
        return self.bases[first : bisect_left(self.bases, end)]

    def chunks(
        self, start: int, end: int, skipped: Callable[[SegmentUnreadableError], None] | None = None
    ) -> Iterator[tuple[Chunk, str]]:
        """Yield the whole batches that have an offset in ``[start, end)``, with the path of their file.

        Their checksums are right. With ``skipped``, that is told of a batch of which no copy has the right one, and the
        walk goes on behind it.

        Raises:
            SegmentUnreadableError: no copy of a segment can be read as far as the range goes.
            DataLossError: a segment has gone.
        """

        def walk(reader: SegmentReader, at: int, segment: Segment) -> Iterator[Chunk]:
            for chunk in reader.chunks(at):
                wrong = wrong_checksums(chunk, _overlapping(chunk.headers, start, end))
                last = -1
                for index in wrong.tolist():
                    if index > last + 1:
                        yield _part(chunk, last + 1, index)
                    last = index
                    raise_or_skip(chunk.headers, index, segment)
                if last < len(chunk.headers) - 1:
                    yield _part(chunk, last + 1, len(chunk.headers)) if last >= 0 else chunk

        passed: set[int] = set()

        def raise_or_skip(headers: BatchHeaders, index: int, segment: Segment) -> None:
            position, offset = int(headers.positions[index]), int(headers["base_offset"][index])
            if offset not in passed:
                raise WrongChecksum(segment.files.place, position, offset)

        while True:
            try:
                for chunk, place in self._over(start, end, walk, _cut_chunk):
                    start = max(start, int(chunk.headers.last_offsets[-1]) + 1)
                    yield chunk, place
                return
            except WrongChecksum as error:
                if skipped is None:
                    raise error.told from None
                skipped(error.told)
                passed.add(error.offset)

    def headers(self, start: int, end: int) -> Iterator[Scanned]:
        """Yield the headers of the batches that have an offset in ``[start, end)``; errors as of ``chunks``.

        Large batches on local disks are passed over unread, so nothing but their order is checked.
        """

        def scan(reader: SegmentReader, at: int, segment: Segment) -> Iterator[Scanned]:
            place = segment.files.place
            for headers, whole in reader.headers(at, sparse=segment.files.sparse):
                kinds = np.full(len(headers), UNKNOWN)
                inside = _overlapping(whole.headers, start, end)
                for index in wrong_checksums(whole, inside)[:1].tolist():
                    raise WrongChecksum(place, int(headers.positions[index]), int(headers["base_offset"][index]))
                if len(inside):
                    kinds[inside] = marker_kinds(_part(whole, int(inside[0]), int(inside[-1]) + 1), place)
                yield Scanned(headers, kinds, place)

        try:
            for scanned, _ in self._over(start, end, scan, _cut_scanned):
                yield scanned
        except WrongChecksum as error:
            raise error.told from None

    def _over(
        self,
        start: int,
        end: int,
        walk: Callable[[SegmentReader, int, Segment], Iterator[T]],
        cut: Cut[T],
    ) -> Iterator[tuple[T, str]]:
        cursor = start
        for base in self.bases_over(start, end):
            failure: Exception | None = None
            for segment in self.copies(base):
                limit = self.limit(segment)
                try:
                    with opened(segment, limit) as (reader, log):
                        for piece in walk(reader, start_position(segment, log, cursor), segment):
                            part, last = cut(piece, cursor, end)
                            if part is not None:
                                yield part, segment.files.place
                            cursor = max(cursor, last + 1)
                            if cursor >= end:
                                return
                        self._check_end(segment, reader, log)
                    failure = None
                    break
                except (OSError, SegmentUnreadableError, WrongChecksum) as error:
                    failure = error
            if failure is not None:
                if isinstance(failure, WrongChecksum):
                    raise failure
                raise _failed(segment.files.place, failure, cursor, min(end, self.next_base(base) or end))

    def _check_end(self, segment: Segment, reader: SegmentReader, log: LogBytes) -> None:
        """Raise if a segment is no longer readable before its end, and the range that was asked for goes on.

        What a broker was writing when it was killed lies at or above the log's end, and so above all ranges.
        """
        if reader.end < log.size:
            why = "a batch is cut off" if reader.stop == Stop.INCOMPLETE else "there is no batch"
            raise damaged(segment.files.place, reader.end, reader.reached, why)

    def check_tail(self, high_watermark: int) -> None:
        """Raise SEGMENT_UNREADABLE if the log's end is damaged below the high watermark, where it can't be torn.

        A log that is only shorter, or ends with zeros, lost what hadn't reached the disk when the power failed.
        """
        if high_watermark > self.end:
            for segments in self._folders.values():
                end, position, followed = _tail(segments[-1])
                if followed and end == self.end:
                    why = f"no sound batch follows, below the high watermark {high_watermark}"
                    raise damaged(segments[-1].files.place, position, end, why)

    @cached_property
    def end(self) -> int:
        """The offset behind the last whole batch; the last segment's base offset if it has none.

        Raises:
            SegmentUnreadableError: no copy of the last segment can be read.
        """
        return max(segment_end(segments[-1]) for segments in self._folders.values())


@contextmanager
def opened(segment: Segment, limit: int | None) -> Iterator[tuple[SegmentReader, LogBytes]]:
    """The log of a segment, and a walk over it."""
    log = segment.files.open_log()
    try:
        yield SegmentReader(log, segment.files.place, segment.base_offset, limit), log
    finally:
        log.close()


def offset_index(segment: Segment, log_size: int) -> OffsetIndex:
    """Return a segment's offset index; an empty one if there is none."""
    return OffsetIndex.parse(segment.files.small(INDEX) or b"", segment.base_offset, log_size)


def start_position(segment: Segment, log: LogBytes, offset: int) -> int:
    """Return a position, 0 or from the index, from which a walk comes to an offset.

    An index is believed where a whole batch lies that begins at or below the offset, and whose checksum is right.
    """
    if offset <= segment.base_offset:
        return 0
    position = offset_index(segment, log.size).position_below(offset)
    if position:
        head = log.read_at(position, HEADER_BYTES)
        run = find_batches(head)
        base = int.from_bytes(head[:8], "big", signed=True)
        if run.stop not in (Stop.INCOMPLETE, Stop.END) or not segment.base_offset <= base <= offset:
            return 0
        data = log.read_at(position, max(run.wanted, HEADER_BYTES))
        batch = np.frombuffer(data, np.uint8)
        if not find_batches(data).begins:
            return 0
        headers = BatchHeaders.at(batch, np.zeros(1, np.int64), position)
        if len(wrong_checksums(Chunk(batch, np.zeros(1, np.int64), headers, position), np.zeros(1, np.int64))):
            return 0
    return position


def segment_end(segment: Segment) -> int:
    """Return the offset behind a segment's last whole batch whose checksum is right."""
    return _tail(segment)[0]


def _tail(segment: Segment) -> tuple[int, int, bool]:
    """Return the offset and the position behind the last sound batch, and whether anything but zeros follows."""
    end, position = segment.base_offset, 0
    with opened(segment, None) as (reader, log):
        index = offset_index(segment, log.size)
        last = int(index.offsets[-1]) if len(index.offsets) else 0
        try:
            for chunk in reader.chunks(start_position(segment, log, last)):
                wrong = wrong_checksums(chunk, np.arange(len(chunk.headers)))
                count = int(wrong[0]) if len(wrong) else len(chunk.headers)
                if count:
                    end = int(chunk.headers.last_offsets[count - 1]) + 1
                    position = int(chunk.headers.positions[count - 1] + chunk.headers.sizes[count - 1])
                if len(wrong):
                    break
        except SegmentUnreadableError:  # base offsets that don't ascend: what was being written
            end = max(end, reader.reached)
        return end, position, any(log.read_at(position, CHUNK))


def _cut_chunk(chunk: Chunk, start: int, end: int) -> tuple[Chunk | None, int]:
    which = _overlapping(chunk.headers, start, end)
    last = int(chunk.headers.last_offsets[-1])
    if not len(which):
        return None, last
    return _part(chunk, int(which[0]), int(which[-1]) + 1), last


def _cut_scanned(scanned: Scanned, start: int, end: int) -> tuple[Scanned | None, int]:
    which = _overlapping(scanned.headers, start, end)
    last = int(scanned.headers.last_offsets[-1])
    if not len(which):
        return None, last
    return Scanned(scanned.headers.where(which), scanned.kinds[which], scanned.place), last


def _overlapping(headers: BatchHeaders, start: int, end: int) -> Ints:
    """Return the indexes of the batches that have an offset in ``[start, end)``; they follow each other."""
    return np.flatnonzero((headers.last_offsets >= start) & (headers["base_offset"] < end))


def _part(chunk: Chunk, first: int, last: int) -> Chunk:
    """Return some batches of a chunk, the second bound exclusive."""
    if first == 0 and last == len(chunk.headers):
        return chunk
    return Chunk(chunk.data, chunk.begins[first:last], chunk.headers.where(np.arange(first, last)), chunk.position)


def _failed(place: str, error: Exception, start: int, end: int) -> TxnLogError:
    if isinstance(error, FileNotFoundError):
        lost = DataLossError(
            f"{place} has gone, and with it offsets [{start}, {end}), while they were read.",
            "Read again from what is there; give kept segments a longer time if this was retention.",
        )
        lost.lost = PositionRange(Position.from_key(start), Position.from_key(end))
        return lost
    if isinstance(error, TxnLogError):
        return error
    return SegmentUnreadableError(f"{place} can't be read: {error}.", "Check that it is there and may be read.")
