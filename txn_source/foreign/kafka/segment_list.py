"""The segments of a partition in the log's order, and walks over the batches of a range of offsets.

A segment may be there twice, on a broker's disk and in the remote tier, or on two brokers' disks. Either copy gives the
same batches. So if one is gone or damaged, the walk goes on in the other from the offset that it had come to.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np

from txn_source.foreign.kafka.batch_headers import BatchHeaders, Stop
from txn_source.foreign.kafka.index_files import OffsetIndex
from txn_source.foreign.kafka.leader_epochs import LeaderEpochs, segment_epochs
from txn_source.foreign.kafka.segment_ends import gap_behind, offset_index, opened, reach, tail_of
from txn_source.foreign.kafka.segment_reader import Chunk, SegmentReader, damaged, wrong_checksums
from txn_source.foreign.kafka.segments import LogBytes, Segment
from txn_source.foreign.kafka.transactions import UNKNOWN, marker_kinds
from txn_source.foreign.kafka.varints import Ints
from txn_source.model.errors import DataLossError, SegmentUnreadableError, TxnLogError
from txn_source.model.position import Position, PositionRange

MAX_OFFSET = (1 << 63) - 1
_MARKER_SIZES = np.arange(70, 90)
"""A marker takes 78 bytes; what is added to it later would be little."""
_BEFORE = 3
"""So many remote segments before one are looked at for what that lacks: leaders rolled theirs elsewhere."""
_FAR = 64
"""So many are, where those don't have it."""
_ATTEMPTS = 3
"""How often segments are listed anew without coming further."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """Headers of batches that follow each other, and what each is as a marker."""

    headers: BatchHeaders
    kinds: Ints
    place: str


T = TypeVar("T")
Reach = tuple[int, int | None]
"""Where a walk begins in a segment, and about where it may stop, if that is known."""
Cut = Callable[[T, int, int], tuple[T | None, int]]
"""Returns what of a piece lies in ``[from, to)``, and the last offset of the whole piece; None if nothing does."""


class WrongChecksum(Exception):
    """No copy of a batch has the checksum that its header says."""

    def __init__(self, place: str, position: int, offset: int) -> None:
        self.told = damaged(place, position, offset, "its checksum is wrong")
        super().__init__(self.told)
        self.offset = offset


class _Unreadable(Exception):
    """Nothing has the offsets ``[start, end)``; ``told`` says why."""

    def __init__(self, told: TxnLogError, end: int) -> None:
        super().__init__(told)
        self.told = told
        self.end = end


class SegmentList:
    """Segments, ascending by base offset; of those with the same one, the local ones first.

    Args:
        segments: in any order.
        epochs: the leaders whose batches count; None: there is one copy of each segment.
        compacted: offsets may be missing.
        relist: returns what is there now, None if nothing is; None: that can't be asked.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        epochs: LeaderEpochs | None = None,
        *,
        compacted: bool = False,
        relist: Callable[[], SegmentList | None] | None = None,
    ) -> None:
        self.epochs = epochs
        self._compacted = compacted
        self._relist = relist
        self.segments = sorted(segments, key=lambda segment: (segment.base_offset, segment.remote, segment.folder))
        self.bases = sorted({segment.base_offset for segment in segments})
        self._index: tuple[tuple[str, int], OffsetIndex] | None = None
        self._copies: dict[int, list[Segment]] = {}
        self._folders: dict[str, list[Segment]] = {}
        for segment in self.segments:
            self._copies.setdefault(segment.base_offset, []).append(segment)
            self._folders.setdefault(segment.folder, []).append(segment)

    def __bool__(self) -> bool:
        return bool(self.segments)

    def copies(self, base: int) -> list[Segment]:
        """Return the segments that begin at a base offset, and behind these those that may reach over it."""
        exact = self._copies[base]
        if len(self._folders) == 1 and not exact[0].remote:
            return exact
        before: list[Segment] = []
        for segments in self._folders.values():
            at = bisect_left(segments, base, key=lambda segment: segment.base_offset)
            before += segments[max(at - (_BEFORE if segments[0].remote else 1), 0) : at]
        if not exact[0].remote:
            before = [segment for segment in before if segment.folder != exact[0].folder]
        return exact + before

    def _far(self, base: int) -> Iterator[Segment]:
        """Yield the remote segments before those of ``copies``, the nearest first: one may reach over many others."""
        for segments in self._folders.values():
            if segments[0].remote:
                at = bisect_left(segments, base, key=lambda segment: segment.base_offset)
                yield from reversed(segments[max(at - _FAR, 0) : max(at - _BEFORE, 0)])

    def next_base(self, base: int) -> int | None:
        """Return the base offset behind one; None if it is the last."""
        at = bisect_right(self.bases, base)
        return self.bases[at] if at < len(self.bases) else None

    def limit(self, segment: Segment) -> int | None:
        """Return an offset above all of a segment's; None if it is its folder's last, or may reach over the next one.

        In the remote tier segments do, that leaders rolled at different offsets.
        """
        if segment.remote or segment.reaches_over:
            return None
        segments = self._folders[segment.folder]
        at = bisect_right(segments, segment.base_offset, key=lambda other: other.base_offset)
        return segments[at].base_offset if at < len(segments) else None

    def of_its_leaders(self, segment: Segment) -> bool:
        """True if all of a segment is known to be of the leaders that count."""
        if self.epochs is None or not segment.remote:
            return not segment.diverges
        entries = segment_epochs(segment)
        if entries is None:
            return False
        following = self.next_base(segment.base_offset)
        later = [start for epoch, start in self.epochs.entries if epoch > entries[-1][0]]
        if self.epochs.divergence(LeaderEpochs(tuple(entries))) not in (None, *later[:1]):
            return False
        return not later or following is None or following <= later[0]

    def reaches(self, segment: Segment, offset: int) -> bool:
        """True if a segment has what there is up to an offset, which isn't above the next base offset.

        The last one of a replica that is behind, or of an older copy, has not.
        """
        if segment.remote or self.limit(segment) is not None or len(self._folders) == 1:
            return True
        try:
            return tail_of(segment, self.epochs).end >= offset
        except OSError:
            return False

    def index(self, segment: Segment, log_size: int) -> OffsetIndex:
        """Return a segment's offset index. It is kept for the next range of the same segment: it is a hint only."""
        kept, name = self._index, (segment.files.place, log_size)
        if kept is None or kept[0] != name:
            kept = self._index = name, offset_index(segment, log_size)
        return kept[1]

    def _reach(self, segment: Segment, log: LogBytes, start: int, end: int) -> Reach:
        if start <= segment.base_offset and end == self.next_base(segment.base_offset):
            return 0, None
        return reach(segment, log, self.index(segment, log.size), start, end)

    def bases_over(self, start: int, end: int) -> list[int]:
        """Return the base offsets of the segments that can have an offset of ``[start, end)``."""
        first = max(bisect_right(self.bases, start) - 1, 0)
        return self.bases[first : bisect_left(self.bases, end)]

    def chunks(
        self, start: int, end: int, skipped: Callable[[TxnLogError], None] | None = None
    ) -> Iterator[tuple[Chunk, str]]:
        """Yield the whole batches that have an offset in ``[start, end)``, with the path of their file.

        Their checksums are right. With ``skipped``, that is told of a batch of which no copy has the right one, and of
        what can't be read at all, and the walk goes on behind it.

        Raises:
            SegmentUnreadableError: no copy of a segment can be read as far as the range goes.
            DataLossError: a segment has gone.
        """

        def walk(reader: SegmentReader, of: Reach, segment: Segment) -> Iterator[Chunk]:
            for chunk in reader.chunks(*of, start=start):
                wrong = wrong_checksums(chunk, _near(chunk.headers, start, end))
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

        first = self.bases[0] if self.bases else end
        while True:
            try:
                if start < min(first, end):
                    raise _lost(f"the log begins at {first} now", start, min(first, end))
                for chunk, place in self._over(start, end, walk, _cut_chunk):
                    start = max(start, int(chunk.headers.last_offsets[-1]) + 1)
                    yield chunk, place
                return
            except _Unreadable as error:
                if skipped is None:
                    raise error.told from None
                skipped(error.told)
                start = max(start, error.end)
            except WrongChecksum as error:
                if skipped is None:
                    raise error.told from None
                skipped(error.told)
                passed.add(error.offset)

    def headers(self, start: int, end: int, *, over_gaps: bool = False, strict: bool = False) -> Iterator[Scanned]:
        """Yield the headers of the batches that have an offset in ``[start, end)``.

        Large batches on local disks are passed over unread, so nothing but their order is checked. A damaged batch that
        is too large or too small for a marker is left out: who reads it is told. With ``strict`` it is told at once.
        With ``over_gaps`` offsets that are lost are passed over, too.

        Raises:
            SegmentUnreadableError: a batch that could be a marker is damaged; others as of ``chunks``.
            DataLossError: a segment has gone.
        """

        def scan(reader: SegmentReader, of: Reach, segment: Segment) -> Iterator[Scanned]:
            place = segment.files.place
            for headers, whole, which in reader.headers(of[0], sparse=segment.files.sparse):
                kinds = np.full(len(headers), UNKNOWN)
                inside = _near(whole.headers, start, end)
                wrong = wrong_checksums(whole, inside)
                markers = np.isin(whole.headers.sizes[wrong], _MARKER_SIZES) | whole.headers.control[wrong]
                for index in which[wrong if strict else wrong[markers]][:1].tolist():
                    raise WrongChecksum(place, int(headers.positions[index]), int(headers["base_offset"][index]))
                for first, last in _runs(np.setdiff1d(inside, wrong) if len(wrong) else inside):
                    kinds[which[first:last]] = marker_kinds(_part(whole, first, last), place)
                if len(wrong) < len(headers):
                    sound = np.delete(np.arange(len(headers)), which[wrong])
                    yield Scanned(headers.where(sound), kinds[sound], place)

        try:
            for scanned, _ in self._over(start, end, scan, _cut_scanned, over_gaps):
                yield scanned
        except (WrongChecksum, _Unreadable) as error:
            raise error.told from None

    def _over(
        self,
        start: int,
        end: int,
        walk: Callable[[SegmentReader, Reach, Segment], Iterator[T]],
        cut: Cut[T],
        over_gaps: bool = False,
    ) -> Iterator[tuple[T, str]]:
        """Walk over a range; where a segment can't be read, list them anew, since a broker may have moved it."""
        cursor, listing, attempts = start, self, 0
        while True:
            try:
                for piece, place, reached in listing._walk(cursor, end, walk, cut, over_gaps):
                    cursor, attempts = reached, 0
                    if piece is not None:
                        yield piece, place
                return
            except _Unreadable:
                newer = listing.listed_anew() if attempts < _ATTEMPTS else None
                if newer is None:
                    raise
                listing, attempts = newer, attempts + 1
                if cursor < listing.bases[0]:
                    raise _lost(
                        f"the log begins at {listing.bases[0]} now", cursor, min(end, listing.bases[0])
                    ) from None

    def _walk(
        self,
        cursor: int,
        end: int,
        walk: Callable[[SegmentReader, Reach, Segment], Iterator[T]],
        cut: Cut[T],
        over_gaps: bool,
    ) -> Iterator[tuple[T | None, str, int]]:
        """Yield pieces, and how far each comes."""
        for base in self.bases_over(cursor, end):
            until = min(end, self.next_base(base) or end)
            failure: Exception | None = None
            whole = False
            for segment in chain(self.copies(base), self._far(base)):
                try:
                    with opened(segment, self.limit(segment), self.epochs) as (reader, log):
                        for piece in walk(reader, self._reach(segment, log, cursor, until), segment):
                            part, last = cut(piece, cursor, end)
                            cursor = max(cursor, last + 1)
                            yield part, segment.files.place, cursor
                            if cursor >= end:
                                return
                        self._check_end(segment, reader, log)
                    whole = True
                except (OSError, SegmentUnreadableError, WrongChecksum) as error:
                    failure = failure or error
                if cursor >= until:
                    break
            if cursor < until:
                if failure is not None and not whole:
                    raise failure if isinstance(failure, WrongChecksum) else _failed(failure, cursor, until)
                if not over_gaps:
                    self._check_gap(base, cursor, until)

    def listed_anew(self) -> SegmentList | None:
        """Return the segments that are there now, if they aren't these."""
        newer = None if self._relist is None else self._relist()
        return newer if newer and newer._places != self._places else None

    @cached_property
    def _places(self) -> set[str]:
        return {segment.files.place for segment in self.segments}

    def _check_end(self, segment: Segment, reader: SegmentReader, log: LogBytes) -> None:
        """Raise if a segment is no longer readable before its end, and the range that was asked for goes on.

        What a broker was writing when it was killed lies at or above the log's end, and so above all ranges.
        """
        if reader.end < log.size and reader.stop != Stop.OTHER_LEADER:
            why = "a batch is cut off" if reader.stop == Stop.INCOMPLETE else "there is no batch"
            raise damaged(segment.files.place, reader.end, reader.reached, why)

    def _check_gap(self, base: int, start: int, end: int) -> None:
        """Raise if nothing has offsets behind a segment and below the next one, and compaction can't have taken them.

        Raises:
            SegmentUnreadableError: an index of the segment knows more than its log has.
            DataLossError: neither it nor the next one has lost an offset by compaction.
        """
        following = self.next_base(base)
        if following is None:
            return  # what the log's last segment has is the log
        try:
            gaps = [gap_behind(self.copies(other)[0], self.epochs) for other in (base, following)]
        except OSError as error:
            raise _failed(error, start, end) from None
        if gaps[0].end >= end:
            return  # damaged batches were passed over
        if gaps[0].known > gaps[0].end:
            why = f"an index of it knows an offset {gaps[0].known - 1}, which isn't there"
            place = self.copies(base)[0].files.place
            raise _Unreadable(damaged(place, gaps[0].position, gaps[0].end, why), end)
        if not (self._compacted or gaps[0].empty or gaps[0].compacted or gaps[1].compacted):
            raise _lost("no segment has them, and nothing else in the log was compacted", gaps[0].end, following)

    def has_damaged_end(self, high_watermark: int) -> bool:
        """True if the log's end is damaged below the high watermark, where it can't be what was being written.

        A log that is only shorter, or ends with zeros, lost what hadn't reached the disk when the power failed.
        """
        if high_watermark <= self.end:
            return False
        tails = [tail_of(segments[-1], self.epochs) for segments in self._folders.values()]
        return any(tail.followed and not tail.other_leader and tail.end == self.end for tail in tails)

    @cached_property
    def end(self) -> int:
        """The offset behind the last whole batch; the last segment's base offset if it has none.

        Raises:
            SegmentUnreadableError: the last segment can't be read.
            DataLossError: it has gone.
        """
        try:
            tails = [tail_of(segment, self.epochs) for segment in self._last()]
            sound = [tail.end for tail in tails if tail.position or not tail.other_leader]
            return max(sound, default=self.bases[0])
        except OSError as error:
            newer = self.listed_anew()
            if newer is None:
                raise _failed(error, self.bases[-1], MAX_OFFSET).told from None
            return newer.end

    def _last(self) -> Iterator[Segment]:
        """Yield the segments that can have the log's last offset: in the remote tier one may reach over the last."""
        for segments in self._folders.values():
            yield from segments[-1 - _BEFORE if segments[0].remote else -1 :]


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


def _near(headers: BatchHeaders, start: int, end: int) -> Ints:
    """Return the indexes of the batches that may have an offset in ``[start, end)``, by base offsets alone.

    Where a batch ends is a field that isn't checked yet.
    """
    bases = headers["base_offset"]
    first = max(int(np.searchsorted(bases, start, "right")) - 1, 0)
    return np.arange(first, max(first, int(np.searchsorted(bases, end))))


def _part(chunk: Chunk, first: int, last: int) -> Chunk:
    """Return some batches of a chunk, the second bound exclusive."""
    if first == 0 and last == len(chunk.headers):
        return chunk
    return Chunk(chunk.data, chunk.begins[first:last], chunk.headers.where(np.arange(first, last)), chunk.position)


def _runs(indexes: Ints) -> list[tuple[int, int]]:
    """Return the runs of indexes that follow each other, the second bound exclusive."""
    parts = np.split(indexes, np.flatnonzero(np.diff(indexes) > 1) + 1)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts if len(part)]


def _failed(error: Exception, start: int, end: int) -> _Unreadable:
    if isinstance(error, FileNotFoundError):
        return _lost(f"{error.filename or error} has gone", start, end)
    if isinstance(error, TxnLogError):
        return _Unreadable(error, end)
    told = SegmentUnreadableError(f"Offsets [{start}, {end}) can't be read: {error}.", "Check that they may be read.")
    return _Unreadable(told, end)


def _lost(why: str, start: int, end: int) -> _Unreadable:
    lost = DataLossError(
        f"Offsets [{start}, {end}) are lost: {why}.",
        "Restore them, or read without what is lost; give kept segments a longer time if this was retention.",
    )
    lost.lost = PositionRange(Position.from_key(start), Position.from_key(end))
    return _Unreadable(lost, end)
