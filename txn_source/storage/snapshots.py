"""Snapshots of a log's metadata in a root: their names, which are there, and putting, reading and removing one whole.

<root>/snapshots/<log id>/metadata-<time>-<progress>-<CRC-32C>.db.zst

The name says all that there is to know of one: when it was taken, how far the log had come (``progress`` only grows in
a log's life), and the checksum of the file. Unpacked (``zstd -d``) it is the SQLite file of one moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c

from txn_source.model.errors import SegmentUnreadableError
from txn_source.storage.folders import sync_file
from txn_source.storage.object_root import Root
from txn_source.storage.root_files import files_of

FOLDER = "snapshots"
_NAME = re.compile(r"metadata-([0-9]{8}T[0-9]{6}Z)-([0-9]{1,19})-([0-9a-f]{8})\.db\.zst")
_MARK = re.compile(r"mark-[0-9]{8}T[0-9]{6}Z-([0-9]{1,19})")
_TIME = "%Y%m%dT%H%M%SZ"
_CHUNK_BYTES = 4 << 20
_KEPT = 3
_KEPT_DAYS = 7


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot: of which log, when it was taken (seconds since the epoch), how far the log had come, and the
    CRC-32C of its file."""

    log_id: str
    taken_at_s: int
    progress: int
    crc32c: int

    @property
    def path(self) -> str:
        """Where it lies, relative to the root."""
        at = datetime.fromtimestamp(self.taken_at_s, UTC).strftime(_TIME)
        return f"{FOLDER}/{self.log_id}/metadata-{at}-{self.progress}-{self.crc32c:08x}.db.zst"

    @property
    def shown(self) -> str:
        """When it was taken, for people."""
        return datetime.fromtimestamp(self.taken_at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def snapshots_in(root: Root, log_id: str | None = None) -> list[Snapshot]:
    """Return the snapshots that lie in a root, of one log or of all, the log's furthest last.

    Raises:
        OSError: it can't be listed.
    """
    found = []
    for path in files_of(root).listed(FOLDER if log_id is None else f"{FOLDER}/{log_id}"):
        parts = path.split("/")
        name = _NAME.fullmatch(parts[-1])
        if name is not None and len(parts) == 3 and parts[0] == FOLDER:
            at = datetime.strptime(name[1], _TIME).replace(tzinfo=UTC)
            found.append(Snapshot(parts[1], int(at.timestamp()), int(name[2]), int(name[3], 16)))
    return sorted(found, key=lambda each: (each.progress, each.taken_at_s))


def mark(root: Root, log_id: str, taken_at_s: int, progress: int) -> None:
    """Note how far a log had come whose metadata has its own backups, in place of a snapshot; older marks go."""
    older = list(_marks(root, log_id))
    path = f"{FOLDER}/{log_id}/mark-{datetime.fromtimestamp(taken_at_s, UTC).strftime(_TIME)}-{progress}"
    files_of(root).put(path, b"")
    for _, left in older:
        if left != path:
            files_of(root).remove(left)


def marked(root: Root, log_id: str) -> tuple[int, str] | None:
    """Return the highest progress that is noted of a log, and where; None if there is none."""
    return max(_marks(root, log_id), default=None)


def _marks(root: Root, log_id: str) -> Iterator[tuple[int, str]]:
    for path in files_of(root).listed(f"{FOLDER}/{log_id}"):
        if (name := _MARK.fullmatch(path.rpartition("/")[2])) is not None:
            yield int(name[1]), path


def pack(database: Path, packed: Path) -> int:
    """Compress a database file to another file, which is synced; return its CRC-32C."""
    with (
        database.open("rb") as source,
        pa.OSFile(str(packed), "wb") as sink,
        pa.CompressedOutputStream(sink, "zstd") as stream,
    ):
        while chunk := source.read(_CHUNK_BYTES):
            stream.write(chunk)
    sync_file(packed)
    return _checksum_of(packed)


def unpack(root: Root, snapshot: Snapshot, target: Path) -> None:
    """Write the database of a snapshot to a new file, which is synced.

    Raises:
        SegmentUnreadableError: its bytes aren't what was written.
        OSError: it can't be read, or the file can't be written.
    """
    packed = target.with_name(f"{target.name}.zst")
    try:
        files_of(root).fetch(snapshot.path, packed)
        found = _checksum_of(packed)
        if found != snapshot.crc32c:
            raise SegmentUnreadableError(
                f"The snapshot {snapshot.path} has checksum {found:08x} where its name has {snapshot.crc32c:08x}.",
                "Use an earlier one.",
            )
        with (
            pa.OSFile(str(packed), "rb") as source,
            pa.CompressedInputStream(source, "zstd") as stream,
            target.open("wb") as sink,
        ):
            while chunk := stream.read(_CHUNK_BYTES):
                sink.write(chunk)
        sync_file(target)
    finally:
        packed.unlink(missing_ok=True)


def put(root: Root, snapshot: Snapshot, packed: Path) -> None:
    """Put a packed file into a root, whole; it is safe when this returns. OSError says why it isn't."""
    files_of(root).put(snapshot.path, packed)


def prune(root: Root, log_id: str) -> None:
    """Remove the snapshots of a log that needn't be kept: all but the furthest three, and the newest one of each of the
    last seven days. OSError says why one stays."""
    there = snapshots_in(root, log_id)
    kept = set(there[-_KEPT:])
    newest = there[-1].taken_at_s if there else 0
    by_day = {each.taken_at_s // 86_400: each for each in sorted(there, key=lambda each: each.taken_at_s)}
    kept.update(each for day, each in by_day.items() if day > newest // 86_400 - _KEPT_DAYS)
    for each in there:
        if each not in kept:
            files_of(root).remove(each.path)


def _checksum_of(file: Path) -> int:
    found = 0
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            found = crc32c(chunk, found)
    return int(found)
