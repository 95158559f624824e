"""Reads a segment's log: whole batches in runs, or their headers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

import crc32c
import numpy as np

from txn_source.foreign.kafka.batch_headers import (
    BEFORE_LENGTH,
    CHECKED_FROM,
    HEADER_BYTES,
    MAGIC_AT,
    BatchHeaders,
    Run,
    Stop,
    find_batches,
)
from txn_source.foreign.kafka.leader_epochs import LeaderEpochs
from txn_source.foreign.kafka.segments import LogBytes
from txn_source.foreign.kafka.varints import Bytes, Ints
from txn_source.model.errors import LogVersionError, SegmentUnreadableError

CHUNK = 4 << 20
_SCAN_CHUNK, _PEEK = 64 << 10, 4 << 10
_LARGE_BATCH = 16 << 10
ANY_OFFSET = (1 << 63) - 1
_STRIDE = 512
"""Headers that are looked at together."""
_OLD_CRC_AT, _OLD_CHECKED_FROM = 12, 16


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches that follow each other in a segment, with their bytes."""

    data: Bytes
    begins: Ints
    """Where each begins in the data."""
    headers: BatchHeaders
    position: int
    """Where the data lies in the file."""


@dataclass(slots=True)
class _Found:
    """Batches that follow each other: where their headers lie in some bytes, and where they lie in the file."""

    data: bytes
    begins: list[int]
    positions: list[int]
    whole: list[int]
    """Indexes of those that are in the bytes whole."""
    end: int
    """Where the last one ends in the file."""

    def add(self, run: Run, at: int, position: int, passed: int) -> None:
        """Add a run whose bytes lie at some place of these; and the batch behind it, if its size isn't 0."""
        self.whole += range(len(self.begins), len(self.begins) + len(run.begins))
        begins = [*run.begins, run.end] if passed else run.begins
        self.begins += [at + begin for begin in begins]
        self.positions += [position + begin for begin in begins]
        self.end = position + run.end + passed


class SegmentReader:
    """Walks over the batches of a log. What stands in its headers is held against its neighbours.

    A batch's checksum doesn't cover its base offset. So a base offset that isn't above the last batch's, and one that
    isn't below the next one's, is damage, too.

    Args:
        log: its bytes.
        place: its path, for errors.
        base_offset: the smallest offset that it can have.
        limit: an offset above all that it can have; None if it isn't known.
        epochs: the leaders that count; None: there is one copy only. A batch of another leader ends the log.
    """

    def __init__(
        self, log: LogBytes, place: str, base_offset: int, limit: int | None, epochs: LeaderEpochs | None = None
    ) -> None:
        self._epochs = epochs
        self._log = log
        self._place = place
        self._limit = limit
        self._floor = base_offset
        self.end = 0
        """Where the last whole batch ends, once all were read."""
        self.stop = Stop.END
        """Why it was the last one."""

    def chunks(self, position: int, stop: int | None = None, start: int = 0) -> Iterator[Chunk]:
        """Yield the batches from a position on, at which one begins, in runs of some megabytes.

        Args:
            position: where a batch begins.
            stop: behind what is wanted, as far as that is known: what lies there isn't read along with it.
            start: messages of formats 0 and 1 below this offset are passed over.

        Raises:
            SegmentUnreadableError: base offsets don't ascend.
            LogVersionError: there are messages of formats 0 and 1 from the start on.
        """
        while position < self._log.size:
            left = CHUNK if stop is None or stop <= position else stop + HEADER_BYTES - position
            data = self._log.read_at(position, left if left < CHUNK * 3 // 2 else CHUNK)
            run = find_batches(data)
            if not run.begins and run.stop == Stop.INCOMPLETE and position + run.wanted <= self._log.size:
                data = self._log.read_at(position, run.wanted)
                run = find_batches(data)
            if not run.begins:
                behind = self._behind_old_messages(position, start) if run.stop == Stop.OLD_MAGIC else position
                if behind > position:
                    position = behind
                    continue
                self._stopped(data, position, run)
                return
            array = np.frombuffer(data, np.uint8)
            begins = np.array(run.begins, np.int64)
            headers = BatchHeaders.at(array, begins, position)
            sound = self._of_its_leaders(headers)
            if sound < len(headers):
                if sound:
                    headers = headers.where(np.arange(sound))
                    chunk = Chunk(array, begins[:sound], headers, position)
                    self._check_order(headers, chunk, np.arange(sound), None)
                    yield chunk
                return
            chunk = Chunk(array, begins, headers, position)
            self._check_order(headers, chunk, np.arange(sound), self._next_base(data, position, run))
            yield chunk
            position += run.end
        self.end = position

    def headers(self, position: int, *, sparse: bool) -> Iterator[tuple[BatchHeaders, Chunk, Ints]]:
        """Yield the headers of batches from a position on; and those that were read whole, all markers among them.

        The last are a chunk, and their indexes among the headers.

        Args:
            position: where a batch begins.
            sparse: pass over large batches without reading them.
        """
        strides = False
        while position < self._log.size:
            found = self._stride(position) if strides else self._run(position, _SCAN_CHUNK if sparse else CHUNK, sparse)
            if not found.begins:
                if strides:
                    strides = False
                    continue
                behind = self._behind_old_messages(position)
                if behind > position:
                    position = behind
                    continue
                self._stopped(found.data, position, find_batches(found.data))
                return
            array = np.frombuffer(found.data, np.uint8)
            begins, which = np.array(found.begins, np.int64), np.array(found.whole, np.int64)
            headers = BatchHeaders.at_places(array, begins, np.array(found.positions, np.int64))
            sound = self._of_its_leaders(headers)
            ended = sound < len(headers)
            if ended:
                headers, which = headers.where(np.arange(sound)), which[which < sound]
            if sound:
                chunk = Chunk(array, begins[which], headers.where(which), position)
                self._check_order(headers, chunk, which, None if ended else self._base_at(found.end))
                yield headers, chunk, which
            if ended:
                return
            strides = sparse and found.end - position > _LARGE_BATCH * len(begins)
            position = found.end
        self.end = position

    def _run(self, position: int, size: int, sparse: bool) -> _Found:
        """Return the batches in one read of some bytes, and the header of a large one behind them."""
        data = self._log.read_at(position, size)
        run = find_batches(data)
        cut_off = not run.begins and run.stop == Stop.INCOMPLETE and not (sparse and run.wanted > _PEEK)
        if cut_off and position + run.wanted <= self._log.size:
            data = self._log.read_at(position, run.wanted)
            run = find_batches(data)
        found = _Found(data, [], [], [], position)
        found.add(run, 0, position, self._passes(data, run, position) if sparse else 0)
        return found

    def _stride(self, position: int) -> _Found:
        """Return the headers of large batches, and the small ones between them, by one small read for each."""
        parts: list[bytes] = []
        found, length = _Found(b"", [], [], [], position), 0
        while len(found.begins) < _STRIDE and found.end < self._log.size:
            data = self._log.read_at(found.end, _PEEK)
            run = find_batches(data)
            passed = self._passes(data, run, found.end)
            if not run.begins and not passed:
                break
            found.add(run, length, found.end, passed)
            parts.append(data[: run.end + HEADER_BYTES])
            length += len(parts[-1])
        found.data = b"".join(parts)
        return found

    def _passes(self, data: bytes, run: Run, position: int) -> int:
        """Return the size of a batch behind a run if it is large, whole and its header was read; else 0."""
        large = run.stop == Stop.INCOMPLETE and run.wanted > _PEEK and len(data) - run.end >= HEADER_BYTES
        return run.wanted if large and position + run.end + run.wanted <= self._log.size else 0

    @property
    def reached(self) -> int:
        """The offset behind the last batch that was found sound; at first the smallest that there can be."""
        return self._floor

    def _of_its_leaders(self, headers: BatchHeaders) -> int:
        """Return how many batches come before one of another leader; that one ends the log."""
        sound = len(headers) if self._epochs is None else self._epochs.sound(headers)
        if sound < len(headers):
            self.end, self.stop = int(headers.positions[sound]), Stop.OTHER_LEADER
        return sound

    def _next_base(self, data: bytes, position: int, run: Run) -> int | None:
        """Return the base offset of the batch behind a run; None if none follows."""
        following = data[run.end : run.end + HEADER_BYTES]
        return self._base_at(position + run.end) if len(following) < HEADER_BYTES else self._base_in(following)

    def _base_at(self, position: int) -> int | None:
        return self._base_in(self._log.read_at(position, HEADER_BYTES))

    def _base_in(self, following: bytes) -> int | None:
        if len(following) < HEADER_BYTES or find_batches(following).stop not in (Stop.INCOMPLETE, Stop.END):
            return self._limit
        return int.from_bytes(following[:8], "big", signed=True)

    def _check_order(self, headers: BatchHeaders, whole: Chunk, which: Ints, next_base: int | None) -> None:
        """Raise if base offsets don't ascend, but for batches whose checksum is wrong: who reads these is told.

        ``whole`` has those of the batches that were read whole, ``which`` their indexes.
        """
        failure = self._disorder(headers, next_base)
        if failure is not None:
            wrong = which[wrong_checksums(whole, np.arange(len(which)))]
            headers = headers.where(np.delete(np.arange(len(headers)), wrong))
            failure = self._disorder(headers, next_base) if len(wrong) else failure
        if failure is not None:
            raise failure
        if len(headers):
            self._floor = int(headers.last_offsets[-1]) + 1

    def _disorder(self, headers: BatchHeaders, next_base: int | None) -> SegmentUnreadableError | None:
        if not len(headers):
            return None
        bases, lasts = headers["base_offset"], headers.last_offsets
        floors = np.concatenate([[self._floor], lasts[:-1] + 1])
        sound = (bases >= floors) & (lasts >= bases)
        if not sound.all():
            index = int(np.argmin(sound))
            return self.damaged(
                headers, index, f"its first offset is not above the last one before it, {floors[index] - 1}"
            )
        if next_base is not None and next_base <= lasts[-1]:
            return self.damaged(
                headers, len(headers) - 1, f"its last offset, {lasts[-1]}, is not below {next_base}, the next one"
            )
        return None

    def _stopped(self, data: bytes, position: int, run: Run) -> None:
        self.end, self.stop = position, run.stop
        if run.stop == Stop.OLD_MAGIC and self._old_end(position) > position:
            raise LogVersionError(
                f"{self._place} has messages of format {data[16]} at position {position}, from before Kafka 0.11.",
                "Read from a later offset, or let a broker of Kafka 0.11 to 3 copy the topic.",
            )
        if run.stop == Stop.NEW_MAGIC and self._fits(data, position):
            raise LogVersionError(
                f"{self._place} has batches of format {data[16]} at position {position}; formats up to 2 are known.",
                "Update txnlog.",
            )

    def _behind_old_messages(self, position: int, below: int = ANY_OFFSET) -> int:
        """Return where messages of formats 0 and 1 end that begin at a position, and have offsets below another one.

        None of them has a transaction.
        """
        while (end := self._old_end(position)) > position:
            offset = int.from_bytes(self._log.read_at(position, 8), "big")
            if offset >= below:
                break
            position, self._floor = end, max(self._floor, offset + 1)
        return position

    def _old_end(self, position: int) -> int:
        """Return where a message of format 0 or 1 ends that begins at a position; the position if there is none."""
        head = self._log.read_at(position, MAGIC_AT + 1)
        if len(head) <= MAGIC_AT or head[MAGIC_AT] not in (0, 1):
            return position
        end = position + BEFORE_LENGTH + int.from_bytes(head[8:BEFORE_LENGTH], "big")
        is_message = end <= self._log.size and is_old_message(self._log.read_at(position, end - position))
        return end if is_message else position

    def _fits(self, data: bytes, position: int) -> bool:
        """True if what has a new format is as long as it says: else it is no batch at all."""
        end = position + BEFORE_LENGTH + int.from_bytes(data[8:12], "big")
        return data[16] < 16 and end <= self._log.size and int.from_bytes(data[:8], "big") >= self._floor

    def damaged(self, headers: BatchHeaders, index: int, why: str) -> SegmentUnreadableError:
        """Return the error for a batch."""
        return damaged(self._place, int(headers.positions[index]), int(headers["base_offset"][index]), why)


def damaged(place: str, position: int, offset: int, why: str) -> SegmentUnreadableError:
    """Return the error for a batch that can't be read."""
    return SegmentUnreadableError(
        f"{place} is damaged in the batch at position {position}, offset {offset}: {why}.",
        "Restore the file from another replica or a backup, or skip what can't be read.",
    )


def wrong_checksums(chunk: Chunk, which: Ints) -> Ints:
    """Return which of some batches don't have the CRC-32C that their header says, as indexes of the chunk's."""
    data = chunk.data.data
    headers = chunk.headers.where(which)
    begins, sizes, sums = chunk.begins[which].tolist(), headers.sizes.tolist(), headers["crc"].tolist()
    checksum = crc32c.crc32c
    wrong = [
        index
        for index, begin, size, crc in zip(which.tolist(), begins, sizes, sums, strict=True)
        if checksum(data[begin + CHECKED_FROM : begin + size]) != crc
    ]
    return np.array(wrong, np.int64)


def is_old_message(data: bytes) -> bool:
    """True if a message of magic 0 or 1 lies at the beginning of bytes: its own checksum says so."""
    end = BEFORE_LENGTH + int.from_bytes(data[8:BEFORE_LENGTH], "big")
    if end <= _OLD_CHECKED_FROM or end > len(data):
        return False
    return crc32(data[_OLD_CHECKED_FROM:end]) == int.from_bytes(data[_OLD_CRC_AT:_OLD_CHECKED_FROM], "big")
