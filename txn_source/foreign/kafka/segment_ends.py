"""Where walks over a segment's batches begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from txn_source.foreign.kafka.batch_headers import (
    BEFORE_LENGTH,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeaders,
    Stop,
    find_batches,
)
from txn_source.foreign.kafka.index_files import OffsetIndex, TransactionIndex, parse_time_index
from txn_source.foreign.kafka.leader_epochs import LeaderEpochs
from txn_source.foreign.kafka.segment_reader import (
    ANY_OFFSET,
    CHUNK,
    Chunk,
    SegmentReader,
    is_old_message,
    wrong_checksums,
)
from txn_source.foreign.kafka.segments import INDEX, TIME_INDEX, TXN_INDEX, LogBytes, Segment
from txn_source.model.errors import SegmentUnreadableError

_TRIES = 10_000
"""Most places behind damage that are checked for a batch: bytes with a 2 where a batch has its format."""


@contextmanager
def opened(
    segment: Segment, limit: int | None, epochs: LeaderEpochs | None
) -> Iterator[tuple[SegmentReader, LogBytes]]:
    """The log of a segment, and a walk over it; arguments as of ``SegmentReader``."""
    log = segment.files.open_log()
    try:
        yield SegmentReader(log, segment.files.place, segment.base_offset, limit, epochs), log
    finally:
        log.close()


def offset_index(segment: Segment, log_size: int) -> OffsetIndex:
    """Return a segment's offset index; an empty one if there is none."""
    return OffsetIndex.parse(segment.files.small(INDEX) or b"", segment.base_offset, log_size)


def reach(segment: Segment, log: LogBytes, index: OffsetIndex, start: int, end: int) -> tuple[int, int | None]:
    """Return a position from which a walk comes to all of ``[start, end)``, and about where it may stop.

    The second is a hint; None: at the end, or it isn't known.
    """
    return start_position(segment, log, start, index), index.position_above(end)


def start_position(segment: Segment, log: LogBytes, offset: int, index: OffsetIndex) -> int:
    """Return a position, 0 or from the offset index, from which a walk comes to an offset.

    An index is believed where a whole batch lies that begins at or below the offset, and whose checksum is right.
    """
    if offset <= segment.base_offset:
        return 0
    position = index.position_below(offset)
    if position:
        head = log.read_at(position, HEADER_BYTES)
        if len(head) > MAGIC_AT and head[MAGIC_AT] < MAGIC:
            return position if is_old_message(log.read_at(position, BEFORE_LENGTH + _length(head, 0))) else 0
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


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the sound batches of a segment end."""

    end: int
    """The offset behind the last one; the segment's base offset if there is none."""
    position: int
    followed: bool
    """Whether anything but zeros follows."""
    other_leader: bool
    """Whether a batch of a leader that doesn't count follows."""


def tail_of(segment: Segment, epochs: LeaderEpochs | None) -> Tail:
    """Find the end of a segment's sound batches, from the last entry of its offset index on.

    Bytes with a sound batch behind them are damaged, and not the end: they were sound when that batch was written.
    """
    end, position = segment.base_offset, 0
    with opened(segment, None, epochs) as (reader, log):
        index = offset_index(segment, log.size)
        last = int(index.offsets[-1]) if len(index.offsets) else 0
        begin = at = start_position(segment, log, last, index)
        try:
            for chunk in reader.chunks(begin, start=ANY_OFFSET):
                end, position = _last_sound(chunk) or (end, position)
            if not position:
                end = max(end, reader.reached)  # messages of old formats
            at = position or reader.end
        except SegmentUnreadableError:  # base offsets that don't ascend
            end = max(end, reader.reached)
        if reader.stop != Stop.OTHER_LEADER and (behind := _sound_behind(log, at, end)) is not None:
            end, position = behind
        if reader.stop == Stop.OTHER_LEADER:
            # The index may lie in that leader's part: then the sound part is found from the beginning.
            if position == 0 and last:
                return _sound_part(segment, epochs)
            return Tail(end, position, True, True)
        return Tail(end, position, any(log.read_at(position, CHUNK)), False)


def _last_sound(chunk: Chunk) -> tuple[int, int] | None:
    """Return the end of the last batch with a right checksum: offset and position, both exclusive; None: no batch."""
    every = np.arange(len(chunk.headers))
    sound = np.setdiff1d(every, wrong_checksums(chunk, every))
    if not len(sound):
        return None
    headers, last = chunk.headers, int(sound[-1])
    return int(headers.last_offsets[last]) + 1, int(headers.positions[last] + headers.sizes[last])


def _sound_behind(log: LogBytes, position: int, floor: int) -> tuple[int, int] | None:
    """Return the end of the last sound batch behind damage: offset and position, both exclusive.

    None: no sound batch that begins at the position or above it ends above the offset ``floor``.
    """
    found = None
    while (begin := _next_batch(log, position, floor)) is not None:
        data = log.read_at(begin, CHUNK)
        array, begins = np.frombuffer(data, np.uint8), np.array(find_batches(data).begins, np.int64)
        chunk = Chunk(array, begins, BatchHeaders.at(array, begins, begin), begin)
        wrong = wrong_checksums(chunk, np.arange(len(begins)))
        last = (int(wrong[0]) if len(wrong) else len(begins)) - 1
        end, position = int(chunk.headers.last_offsets[last]) + 1, begin + int(begins[last] + chunk.headers.sizes[last])
        found = (end, position) if end > floor else found
    return found


def _next_batch(log: LogBytes, position: int, floor: int) -> int | None:
    """Return the position of the next sound batch with a first offset of ``floor`` or above.

    None: no such batch lies whole within 4 MiB from the position.
    """
    data = log.read_at(position, CHUNK)
    array = np.frombuffer(data, np.uint8)
    count = len(data) - HEADER_BYTES + 1
    if count <= 0:
        return None
    may_be = (array[MAGIC_AT : MAGIC_AT + count] == MAGIC) & (array[:count] == 0) & (array[8 : 8 + count] < 128)
    at: int
    for at in np.flatnonzero(may_be)[:_TRIES].tolist():
        offset = int.from_bytes(data[at : at + 8], "big")
        if offset >= floor and find_batches(memoryview(data)[at : at + BEFORE_LENGTH + _length(data, at)]).begins:
            begins = np.array([at])
            chunk = Chunk(array, begins, BatchHeaders.at(array, begins), position)
            if _last_sound(chunk) is not None:
                return position + at
    return None


def _length(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + 8 : at + BEFORE_LENGTH], "big")


def _sound_part(segment: Segment, epochs: LeaderEpochs | None) -> Tail:
    end = position = 0
    with opened(segment, None, epochs) as (reader, _):
        for chunk in reader.chunks(0):
            end = int(chunk.headers.last_offsets[-1]) + 1
            position = int(chunk.headers.positions[-1] + chunk.headers.sizes[-1])
    return Tail(end, position, True, True)


@dataclass(frozen=True, slots=True)
class Gap:
    """What a closed segment says of the offsets up to the next one that it doesn't have."""

    end: int
    """The offset behind its last batch."""
    position: int
    known: int
    """The offset behind the last one that its indexes know."""
    compacted: bool
    """Offsets are missing inside of it, too."""
    empty: bool


def gap_behind(segment: Segment, epochs: LeaderEpochs | None) -> Gap:
    """Read the headers of a segment to tell compaction from loss."""
    compacted = False
    reached = segment.base_offset
    with opened(segment, None, epochs) as (reader, _):
        for headers, _, _ in reader.headers(0, sparse=segment.files.sparse):
            bases, lasts = headers["base_offset"], headers.last_offsets
            compacted |= bool((bases != np.concatenate([[reached], lasts[:-1] + 1])).any())
            compacted |= bool((headers["count"] != lasts - bases + 1).any())
            reached = int(lasts[-1]) + 1
        known = reached if reader.stop == Stop.OTHER_LEADER else _known_end(segment)
        return Gap(reached, reader.end, known, compacted, reached == segment.base_offset)


def _known_end(segment: Segment) -> int:
    """Return the offset behind the last one that a closed segment's indexes know; cleaning makes them anew."""
    small, base = segment.files.small, segment.base_offset
    offsets = OffsetIndex.parse(small(INDEX) or b"", base, ANY_OFFSET).offsets
    times = parse_time_index(small(TIME_INDEX) or b"", base)[1]
    txns = TransactionIndex.parse(small(TXN_INDEX) or b"", base, ANY_OFFSET)
    markers = txns.markers if txns is not None else times[:0]
    return max([int(known[-1]) + 1 for known in (offsets, times, markers) if len(known)], default=base)
