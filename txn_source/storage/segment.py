"""Hot segments: Arrow IPC streams that producers append entries to.

A segment starts with an Arrow schema message; each entry after it is one record batch message, so the file is a valid
Arrow stream for any reader. Nothing in it counts until the metadata service has registered it: a torn tail, or a file
that was never registered, does not exist for readers. An entry's CRC-32C (Castagnoli) covers the schema message and its
whole own one: the same bytes under another schema would be other rows. It is kept with the metadata and checked at
every read.

Life cycle of a segment:
1. created by its producer with a name of its own, header written;
2. appended to and synced, then registered, again and again;
3. closed when the producer moves to the partition's next ledger; it never changes again.

A writer is broken from the beginning of each write or sync to its end. So after an error, wherever it came, it stays
broken, and nothing is ever written behind an end that may not be the file's.
"""

from __future__ import annotations

import errno
import io
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c

from txn_source.model.errors import InternalError, SegmentUnreadableError, StorageWriteError
from txn_source.model.position import Position
from txn_source.storage.encoding_turn import encoding_turn
from txn_source.storage.folders import files_below, make_folder, sync_folder
from txn_source.storage.untrusted import first_odd

_FOLDER = "segments"
_SUFFIX = ".arrow"
_NUMBER = "(0|[1-9][0-9]{0,18})"
SHARED_SUFFIX = ".arrows"
_UNIQUE = "[0-9a-f]{12}"
_PATH = re.compile(rf"{_FOLDER}/{_NUMBER}/{_NUMBER}/{_NUMBER}-{_NUMBER}-{_UNIQUE}{re.escape(_SUFFIX)}")
_SHARED_PATH = re.compile(rf"{_FOLDER}/{_NUMBER}/{_NUMBER}-{_UNIQUE}{re.escape(SHARED_SUFFIX)}")
_PREFIX = re.compile(rf"{_FOLDER}/{_NUMBER}")
_OLD_NOTES = re.compile(rf"{_FOLDER}/{_NUMBER}/(topic\.json|{_NUMBER}-{_UNIQUE}\.notes)")
_MAX_HEADER_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10
Data = memoryview | bytes


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """Where an entry's message lies in a segment, and its checksum."""

    offset: int
    length: int
    crc32c: int


def segment_path(topic_id: int, partition: int, ledger_id: int, producer_id: int) -> str:
    """Return a fresh path, relative to the root, for a segment of one producer and ledger."""
    name = f"{ledger_id}-{producer_id}-{uuid.uuid4().hex[:12]}{_SUFFIX}"
    return f"{_FOLDER}/{topic_id}/{partition}/{name}"


def shared_path(topic_id: int, producer_id: int) -> str:
    """Return a fresh path, relative to the root, for an object with entries of all partitions of a topic."""
    return f"{topic_prefix(topic_id)}/{producer_id}-{uuid.uuid4().hex[:12]}{SHARED_SUFFIX}"


def topic_prefix(topic_id: int) -> str:
    """Return where all segments of a topic lie, relative to the root; topic ids are never used again."""
    return f"{_FOLDER}/{topic_id}"


def topic_of_prefix(path: str) -> int | None:
    """Return the topic of which a path is ``topic_prefix``; None if it is none."""
    found = _PREFIX.fullmatch(path)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class SegmentName:
    """What a segment's path says: whose it is, and the ledger that was open when it was made.

    Files of jobs, which have no producer until they are committed, have producer 0. Objects, which have entries of all
    partitions, name neither partition nor ledger.
    """

    topic_id: int
    partition: int | None
    ledger_id: int | None
    producer_id: int

    @classmethod
    def parse(cls, path: str) -> SegmentName | None:
        """Return what a path says that ``segment_path`` or ``shared_path`` can have made; None for every other one."""
        found = _PATH.fullmatch(path)
        if found is not None:
            return cls(*map(int, found.groups()))
        shared = _SHARED_PATH.fullmatch(path)
        return None if shared is None else cls(int(shared[1]), None, None, int(shared[2]))


def is_old_note(path: str) -> bool:
    """True for a file that earlier releases put beside segments, so that metadata could be made anew. Nothing reads it,
    and it goes with its topic; so does what they wrote into segments, as padding and behind the last entry."""
    return _OLD_NOTES.fullmatch(path) is not None


class SegmentWriter:
    """Appends entries to one segment file.

    After an error the file is left as it is: ``broken`` says so, and it takes nothing more.
    """

    _fd = -1  # of the class: the destructor finds it however early the constructor was interrupted

    def __init__(self, root: Path, path: str, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self.broken = True
        self._file = root / path
        header = schema.serialize()
        try:
            self._make(root)
        except OSError as error:
            self.close()
            raise _write_failed(self._file, error) from error
        self._end = 0
        self._header_crc32c = crc32c(header)
        try:
            self._write(header)
        except BaseException:
            self.close()
            raise
        self._end = header.size
        self.broken = False

    def __del__(self) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """True once it was closed."""
        return self._fd < 0

    def append(self, batch: pa.RecordBatch) -> StoredEntry:
        """Write one entry behind the last one; it is safe only after ``sync``."""
        with encoding_turn(batch.nbytes):
            message = batch.serialize()
            stored = StoredEntry(self._end, message.size, crc32c(message, self._header_crc32c))
        self._begin()
        self._write(message)
        self._end += stored.length
        self.broken = False
        return stored

    def sync(self) -> None:
        """Return when all that was appended would survive a power cut."""
        self._begin()
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise _write_failed(self._file, error) from error
        self.broken = False

    def close(self) -> None:
        """Close the file; harmless when it is closed."""
        fd, self._fd = self._fd, -1  # first: once it is closed, the number may be another file's
        if fd >= 0:
            os.close(fd)

    def _begin(self) -> None:
        if self.broken and not self.closed:
            raise InternalError(f"Segment {self._file} was written to after it was broken.", "Please report it.")
        self.broken = True

    def _write(self, data: pa.Buffer) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            raise _write_failed(self._file, error) from error

    def _make(self, root: Path) -> None:
        """Create the file durably. A deletion of the topic may remove the folder meanwhile: it is created again, and
        the service refuses the entries later."""
        for last in (False, False, True):
            try:
                make_folder(self._file.parent, root)
                self._fd = os.open(self._file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
                sync_folder(self._file.parent)
            except FileNotFoundError:
                self.close()
                if last:
                    raise
            else:
                return


class SegmentReader:
    """Reads entries of one segment file by offset. A context manager; the file may be deleted while it is open."""

    def __init__(self, root: Path, path: str) -> None:
        self.path = path
        self._file = root / path
        try:
            self._opened = io.FileIO(self._file)  # an object: should an interrupt take it, it closes itself
        except OSError as error:
            raise self._unreadable(f"it can't be opened ({error.strerror})") from error
        try:
            self._fd = self._opened.fileno()
            self._size = os.fstat(self._fd).st_size
            self.schema = self._read_schema()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; batches that were read stay valid."""
        self._opened.close()

    def read(
        self, starts: Sequence[int], ends: Sequence[int], checksums: Sequence[int], positions: Sequence[int]
    ) -> list[pa.RecordBatch]:
        """Read entries that lie close together, ascending, with one read of the file, and check each.

        Args:
            starts: the entries' first bytes, inclusive.
            ends: their last bytes, exclusive; what is between two entries is read too.
            checksums: their CRC-32C.
            positions: their ``Position.key``, to be named in errors.
        """
        base, size = starts[0], ends[-1] - starts[0]
        self._check_size(ends[-1], positions[-1])
        window = pa.allocate_buffer(size)
        whole, seed, filled = memoryview(window), self._header_crc32c, 0
        for start, end, wanted, position in zip(starts, ends, checksums, positions, strict=True):
            at, stop, found = start - base, end - base, seed
            while at < stop:
                step = min(stop, at + _CHUNK_BYTES)
                if step > filled:  # checked right after it was read, while it is in the processor's cache
                    upto = min(size, max(step, filled + _CHUNK_BYTES))
                    self._fill(whole[filled:upto], base + filled, position)
                    filled = upto
                found = crc32c(whole[at:step], found)
                at = step
            if found != wanted:
                raise self._unreadable(
                    f"{_named(position)} has checksum {found:08x} where {wanted:08x} was written (CRC-32C)"
                )
        if (odd := first_odd(window, [start - base for start in starts])) is not None:
            raise self._unreadable(f"{_named(positions[odd])} can't be decoded (it is compressed, or no batch of rows)")
        decode, schema = pa.ipc.read_record_batch, self.schema
        batches: list[pa.RecordBatch] = []
        try:
            for start, end in zip(starts, ends, strict=True):
                batch = decode(window.slice(start - base, end - start), schema)
                batch.validate()  # checks the first and last offset, enough to cut and join; SliceReader checks all
                batches.append(batch)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(f"{_named(positions[len(batches)])} can't be decoded ({error})") from error
        return batches

    def _read(self, length: int) -> pa.Buffer:
        """Read the first bytes of the file."""
        self._check_size(length, None)
        buffer = pa.allocate_buffer(length)
        self._fill(memoryview(buffer), 0, None)
        return buffer

    def _check_size(self, end: int, position: int | None) -> None:
        if end > self._size:
            raise self._unreadable(f"it is truncated: {_named(position)} ends at byte {end}, the file at {self._size}")

    def _fill(self, target: memoryview, offset: int, position: int | None) -> None:
        done = 0
        while done < len(target):
            try:
                got = os.preadv(self._fd, [target[done:]], offset + done)
            except OSError as error:
                raise self._unreadable(f"{_named(position)} can't be read ({error.strerror})") from error
            if got == 0:
                raise self._unreadable(f"it is truncated: it ends at byte {offset + done}, inside {_named(position)}")
            done += got

    def _read_schema(self) -> pa.Schema:
        header = self._read(min(self._size, 8))
        length = int.from_bytes(memoryview(header)[4:8], "little") + 8 if self._size >= 8 else 0
        if not 8 < length <= min(self._size, _MAX_HEADER_BYTES):
            raise self._unreadable("its header is damaged")
        message = self._read(length)
        self._header_crc32c = crc32c(message)
        try:
            return pa.ipc.read_schema(message)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(f"its header is damaged ({error})") from error

    def _unreadable(self, reason: str) -> SegmentUnreadableError:
        return SegmentUnreadableError(
            f"Segment {self._file} is unreadable: {reason}.",
            "Restore the file from a backup; the other entries of the topic can still be read by position.",
        )


def stored_segments(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Return the path, relative to the root, and the state of every segment file there is."""
    for file, state in files_below(root / _FOLDER):
        yield file.relative_to(root).as_posix(), state


def _named(position: int | None) -> str:
    return "its header" if position is None else f"entry {Position.from_key(int(position))}"


def _write_failed(file: Path, error: OSError) -> StorageWriteError:
    if error.errno == errno.EBADF:
        raise InternalError(f"Segment {file} was written to after it was closed.", "Please report it.")
    why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else (error.strerror or str(error)).lower()
    return StorageWriteError(
        f"Segment {file} can't be written: {why}. The messages were not registered.",
        "Free some space or mend the storage, then try again.",
    )
