"""Where hot segments lie: files that grow, in a folder, or objects that are put whole, on an object store.

An object is what a writer had at once, of all partitions together: eight bytes that say what it is, then entries one
after the other. Each is an Arrow stream of its own, a schema message and a record batch message, so whoever has an
entry's bytes needs no others of the object. Its CRC-32C covers both, as it does in a file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa
from crc32c import crc32c

from txn_source.model.errors import SegmentUnreadableError, StorageWriteError, TxnLogError
from txn_source.model.position import Position
from txn_source.storage.folders import make_folder, sync_folder
from txn_source.storage.object_root import ObjectRoot, Root
from txn_source.storage.segment import (
    SHARED_SUFFIX,
    Data,
    SegmentName,
    SegmentReader,
    shared_path,
    stored_segments,
    topic_prefix,
)
from txn_source.storage.store_errors import StoreError
from txn_source.storage.untrusted import first_odd

MAGIC = b"TXNLOG\x00\x01"
_MOST_SCHEMAS = 256
_MAX_HEADER_BYTES = 16 << 20
_PUT_AT_ONCE = 64 << 20
"""A longer segment is put into a store in parts."""
Rows: TypeAlias = list[tuple[pa.Schema, list[pa.RecordBatch]]]
"""Entries in a row that have one schema."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment that is there, by its path relative to the root; ``modified_at_s`` is since the epoch."""

    path: str
    size: int
    modified_at_s: float


class EntryReader(Protocol):
    """Reads entries of one segment."""

    def read(
        self, starts: Sequence[int], ends: Sequence[int], checksums: Sequence[int], positions: Sequence[int]
    ) -> Rows:
        """Read entries that lie close together, ascending, at once, and check each; SegmentUnreadableError says which
        is damaged."""

    def close(self) -> None:
        """Let go of what is open; closing again is harmless."""


class SegmentStore(Protocol):
    """The segments below a log's root, by their paths relative to it."""

    is_remote: bool
    """True if each request takes long, so that several are better made at once, and before they are needed."""

    def open(self, path: str) -> EntryReader:
        """Return a reader of a segment; SegmentUnreadableError if it is known not to be there."""

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return a run of a segment's bytes, unchecked; OSError says why it can't be read."""

    def fill(self, path: str, start: int, into: memoryview) -> None:
        """Fill a buffer with a segment's bytes from an offset on, unchecked; OSError says why it can't."""

    def put(self, path: str, data: bytes) -> None:
        """Store a segment whole; it is safe when this returns. OSError says why it isn't."""

    def put_all(self, path: str, size: int, parts: Iterable[bytes]) -> None:
        """Store a segment of a size whole, of its parts one after the other, as ``put`` does."""

    def size(self, path: str) -> int | None:
        """Return a segment's length; None if it isn't there."""

    def delete(self, path: str) -> None:
        """Delete a segment; harmless if it isn't there. OSError says why it stays."""

    def stored(self) -> Iterator[StoredSegment]:
        """Yield all segments that are there, and whatever else lies among them."""

    def delete_topic(self, topic_id: int) -> None:
        """Delete all segments of a topic that is gone, with what lies among them. OSError says why some stay."""


class LocalSegments:
    """Segments as files of a folder that all clients share."""

    is_remote = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, path: str) -> EntryReader:
        if has_own_schemas(path):
            return WholeReader(self.fill, f"{self._root}/{path}", path)
        return _FileReader(SegmentReader(self._root, path))

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return a run of a segment's bytes, unchecked; OSError says why it can't be read."""
        into = bytearray(end - start)
        self.fill(path, start, memoryview(into))
        return bytes(into)

    def put(self, path: str, data: bytes) -> None:
        """Store a segment whole, in place of what is there; it is safe when this returns. OSError says why it isn't."""
        self.put_all(path, len(data), [data])

    def put_all(self, path: str, size: int, parts: Iterable[bytes]) -> None:
        file = self._root / path
        make_folder(file.parent, self._root)
        name = SegmentName.parse(path)
        assert name is not None
        unfinished = self._root / shared_path(name.topic_id, name.producer_id)  # of our form: what stays is garbage
        make_folder(unfinished.parent, self._root)
        try:
            with open(unfinished, "xb", buffering=0) as sink:
                for part in parts:
                    rest = memoryview(part)
                    while rest:
                        rest = rest[sink.write(rest) :]
                os.fdatasync(sink.fileno())
            os.replace(unfinished, file)
            sync_folder(file.parent)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def fill(self, path: str, start: int, into: memoryview) -> None:
        """Fill a buffer with a segment's bytes from an offset on, unchecked; OSError says why it can't."""
        with open(self._root / path, "rb", buffering=0) as file:
            done = 0
            while done < len(into):
                got = os.preadv(file.fileno(), [into[done:]], start + done)
                if got == 0:
                    raise OSError(f"it is truncated: it ends at byte {start + done}")
                done += got

    def size(self, path: str) -> int | None:
        file = self._root / path
        return file.stat().st_size if file.is_file() else None

    def delete(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def stored(self) -> Iterator[StoredSegment]:
        for path, state in stored_segments(self._root):
            yield StoredSegment(path, state.st_size, state.st_mtime)

    def delete_topic(self, topic_id: int) -> None:
        folder = self._root / topic_prefix(topic_id)
        if folder.exists():
            shutil.rmtree(folder.resolve())  # which may lie on another disk
        folder.unlink(missing_ok=True) if folder.is_symlink() else None


class ObjectSegments:
    """Segments as objects below a prefix."""

    is_remote = True

    def __init__(self, root: ObjectRoot, log_id: str | None = None) -> None:
        """Prepare requests; with a log's id, nothing is put where that log isn't."""
        self._root = root
        self._log_id = log_id

    def open(self, path: str) -> WholeReader:
        shown = f"{self._root.shown}/{path}"
        return WholeReader(self.fill, shown, path, b"" if has_own_schemas(path) else self._header(path), self._absent)

    def read(self, path: str, start: int, end: int) -> bytes:
        """Return a run of a segment's bytes, unchecked; OSError says why it can't be read."""
        into = bytearray(end - start)
        self.fill(path, start, memoryview(into))
        return bytes(into)

    def put(self, path: str, data: bytes) -> None:
        """Store a segment whole; it is safe when this returns. OSError says why it isn't.

        Raises:
            InvalidArgumentError: the prefix is another log's.
            LogNotFoundError: it is no log's.
        """
        from txn_source.storage.object_requests import requests_for
        from txn_source.storage.root_marker import confirm

        if self._log_id is not None:
            confirm(self._root, self._log_id)
        requests_for(self._root.uri).put(path, data)

    def put_all(self, path: str, size: int, parts: Iterable[bytes]) -> None:
        if size <= _PUT_AT_ONCE:
            self.put(path, b"".join(parts))
            return
        from txn_source.storage.object_store import ObjectStore
        from txn_source.storage.root_marker import confirm

        if self._log_id is not None:
            confirm(self._root, self._log_id)
        try:
            with ObjectStore(self._root).write(path) as sink:  # in parts, of which nobody sees anything before the end
                for part in parts:
                    sink.write(part)
        except StorageWriteError as error:
            raise error.__cause__ if isinstance(error.__cause__, OSError) else StoreError(error.fact) from error

    def _absent(self) -> str:
        """Return why all objects are missing, if it isn't this one alone."""
        if self._log_id is None:
            return ""
        from txn_source.storage.root_marker import check_marker

        try:
            check_marker(self._root, self._log_id)
        except TxnLogError as other:
            return other.fact.rstrip(".")
        return ""

    def fill(self, path: str, start: int, into: memoryview) -> None:
        """Fill a buffer with a segment's bytes from an offset on, unchecked; OSError says why it can't."""
        from txn_source.storage.object_requests import requests_for

        requests_for(self._root.uri).get(path, start, into)

    def _header(self, path: str) -> bytes:
        """Return the schema message that all entries of a copied file have."""
        from txn_source.storage.object_store import reason

        try:
            length = int.from_bytes(self.read(path, 4, 8), "little") + 8
            return self.read(path, 0, min(length, _MAX_HEADER_BYTES))
        except OSError as error:
            why = f"its header can't be read ({reason(error)})"
            raise _unreadable(f"{self._root.shown}/{path}", why) from error

    def size(self, path: str) -> int | None:
        from txn_source.storage.object_requests import requests_for

        return requests_for(self._root.uri).size(path)

    def delete(self, path: str) -> None:
        from txn_source.storage.object_requests import requests_for

        requests_for(self._root.uri).delete(path)

    def stored(self) -> Iterator[StoredSegment]:
        return self._below("segments")

    def delete_topic(self, topic_id: int) -> None:
        for segment in list(self._below(topic_prefix(topic_id))):
            self.delete(segment.path)

    def _below(self, prefix: str) -> Iterator[StoredSegment]:
        from txn_source.storage.object_requests import requests_for

        for found in requests_for(self._root.uri).listed(prefix):
            yield StoredSegment(found.path, found.size, found.modified_at_s)


def segments_at(root: Root, log_id: str | None = None) -> SegmentStore:
    """Return the segments below a root, of a log that is known by its id."""
    return LocalSegments(root) if isinstance(root, Path) else ObjectSegments(root, log_id)


def has_own_schemas(path: str) -> bool:
    """True for a segment each of whose entries has a schema message of its own; False if the file's first one is
    that of all."""
    return path.endswith(SHARED_SUFFIX)


def encoded(batch: pa.RecordBatch) -> tuple[list[Data], int, int]:
    """Return an entry as objects have it: its parts, its bytes, and its CRC-32C."""
    parts: list[Data] = [memoryview(batch.schema.serialize()), memoryview(batch.serialize())]
    checksum = 0
    for part in parts:
        checksum = crc32c(part, checksum)
    return parts, sum(map(len, parts)), checksum


@dataclass(slots=True)
class _FileReader:
    """A file's entries, which all have its schema."""

    _file: SegmentReader

    def read(
        self, starts: Sequence[int], ends: Sequence[int], checksums: Sequence[int], positions: Sequence[int]
    ) -> Rows:
        return [(self._file.schema, self._file.read(starts, ends, checksums, positions))]

    def close(self) -> None:
        self._file.close()


Get = Callable[[str, int, memoryview], None]
"""Fills a buffer with a segment's bytes from an offset on; OSError says why it can't."""


class WholeReader:
    """Reads entries of a segment that was put whole, each range by one request; nothing is open between them.
    Thread-safe."""

    def __init__(
        self, get: Get, shown: str, path: str, header: bytes = b"", absent: Callable[[], str] = lambda: ""
    ) -> None:
        """``header`` is the schema message of all entries; empty: each begins with its own. ``absent`` says why all
        segments may be missing, if there is a cause."""
        self._get = get
        self._shown = shown
        self._path = path
        self._header = header
        self._seed = crc32c(header)
        self._absent = absent

    def close(self) -> None:
        """There is nothing to close."""

    def read(
        self, starts: Sequence[int], ends: Sequence[int], checksums: Sequence[int], positions: Sequence[int]
    ) -> Rows:
        try:
            window = self.fetch(starts[0], ends[-1])
        except OSError as error:
            raise self.failed(error, positions[0]) from error
        return self.decode(window, starts[0], starts, ends, checksums, positions)

    def fetch(self, start: int, end: int) -> pa.Buffer:
        """Return the bytes from ``start`` to ``end`` (exclusive), by one request; OSError says why it can't."""
        window = pa.allocate_buffer(end - start)
        self._get(self._path, start, memoryview(window))
        return window

    def failed(self, error: OSError, position: int) -> SegmentUnreadableError:
        """Return what a failed request means for the entry at a position."""
        from txn_source.storage.object_store import reason

        why = reason(error)
        if isinstance(error, FileNotFoundError) and (other := self._absent()):
            why = f"{why}: {other}"
        return self._unreadable(f"entry {Position.from_key(int(position))} can't be read ({why})")

    def decode(
        self,
        window: pa.Buffer,
        base: int,
        starts: Sequence[int],
        ends: Sequence[int],
        checksums: Sequence[int],
        positions: Sequence[int],
    ) -> Rows:
        """Return entries out of the object's bytes from ``base`` on, each checked."""
        lengths: list[int] = []
        for start, end, wanted, position in zip(starts, ends, checksums, positions, strict=True):
            entry = memoryview(window)[start - base : end - base]
            found = crc32c(entry, self._seed)
            if found != wanted:
                raise self._unreadable(
                    f"entry {Position.from_key(int(position))} has checksum {found:08x} where {wanted:08x} was written"
                    " (CRC-32C)"
                )
            lengths.append(0 if self._header else int.from_bytes(entry[4:8], "little") + 8)
        odd = first_odd(window, [start - base + length for start, length in zip(starts, lengths, strict=True)])
        if odd is not None:
            raise self._undecodable(positions[odd], "it is compressed, or no batch of rows")
        rows: Rows = []
        last: bytes | None = None
        for start, end, length, position in zip(starts, ends, lengths, positions, strict=True):
            try:
                header = self._header or window.slice(start - base, length).to_pybytes()
                schema = _schema(header)
                batch = pa.ipc.read_record_batch(window.slice(start - base + length, end - start - length), schema)
                batch.validate()  # checks the first and last offset, enough to cut and join; SliceReader checks all
            except (pa.ArrowException, OSError, IndexError, OverflowError) as error:
                raise self._undecodable(position, error) from error
            if header != last:
                rows.append((schema, []))
                last = header
            rows[-1][1].append(batch)
        return rows

    def _undecodable(self, position: int, why: object) -> SegmentUnreadableError:
        return self._unreadable(f"entry {Position.from_key(int(position))} can't be decoded ({why})")

    def _unreadable(self, why: str) -> SegmentUnreadableError:
        return _unreadable(self._shown, why)


def _unreadable(shown: str, why: str) -> SegmentUnreadableError:
    return SegmentUnreadableError(
        f"Segment {shown} is unreadable: {why}.",
        "Check the store and the credentials, or restore the object; the other entries of the topic can still be"
        " read by position.",
    )


_schemas: dict[bytes, pa.Schema] = {}


def _schema(header: bytes) -> pa.Schema:
    """Return the schema of a message; writers use few, so those that were seen are kept."""
    found = _schemas.get(header)
    if found is None:
        found = pa.ipc.read_schema(pa.py_buffer(header))
        if len(_schemas) >= _MOST_SCHEMAS:
            _schemas.clear()
        _schemas[header] = found
    return found
