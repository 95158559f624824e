"""Backup of an embedded log while it is used.

1. The database is copied as it is at one moment.
2. Each file that the copy refers to is copied. Segments only grow, and only at their ends; other files never change. So
   what is copied later has what the database knew, and more that isn't registered there.
3. If a file is gone, a trim, an offload or a deletion came between: the database is copied once more, and what is
   missing is copied, until a copy has all of its files.
4. The copy is read as a log's readers do, at both isolation levels.
5. The manifest is written. A folder without it is no backup.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from txn_source.client.hot_roots import Place
from txn_source.metadata.store.sqlite_backup import Needed, NeededSegment, copy_moment, read_needed
from txn_source.model.copies import TieredCopy
from txn_source.model.door import guard
from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    LogNotFoundError,
    SegmentUnreadableError,
    StorageWriteError,
)
from txn_source.model.roots import ONLY_MAIN
from txn_source.storage.copies_marker import check as check_copies
from txn_source.storage.object_names import aborted_uri
from txn_source.storage.object_root import root_at
from txn_source.storage.object_uri import is_object_uri, parts_of
from txn_source.storage.root import LogRoot
from txn_source.storage.segment import SegmentName
from txn_source.storage.segment_store import segments_at
from txn_source.storage.tiered import checked_footer
from txn_source.upkeep.building import building
from txn_source.upkeep.file_copies import Progress, checksum_of, copy_file, sync_all, write_file
from txn_source.upkeep.log_of_copy import log_of_copy
from txn_source.upkeep.manifest import CONFIGURATION, DATABASE, MANIFEST, BackedUp, Manifest
from txn_source.upkeep.scanning import mend, priorities, scan_all

_LOOKS = 5
_SCRATCH = ".scanned.db"


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A backup that was made: where, the moment that it shows (microseconds since the epoch), and what it has.

    ``reused`` are files that an earlier backup had. ``outside`` are tiered objects that lie outside of the root and are
    not in it. ``messages`` are those that each level sees, by its name; none if they were not scanned.
    """

    path: str
    log_id: str
    taken_at_us: int
    topics: int
    files: int
    bytes: int
    reused: int
    outside: tuple[str, ...]
    messages: dict[str, int]
    notes: tuple[str, ...]


@guard
def backup(
    root: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    check: bool = True,
    progress: Progress | None = None,
) -> BackupReport:
    """Back a log up while it is used; nobody waits for it.

    Args:
        root: the log's, a folder of this machine with its metadata in SQLite.
        target: a new or empty folder. It counts as a backup only when it is whole.
        base: an earlier backup of the log: files that haven't changed since are linked to those in it, where both are
            on one file system, so that they take neither time nor room. Either may be deleted then.
        check: read the backup at both isolation levels before it counts.
        progress: is told how many bytes were copied, and of how many.

    Raises:
        InvalidArgumentError: the target isn't empty, or lies in the log; the log lies on an object store or has its
            metadata in PostgreSQL; the base is another log's.
        LogNotFoundError: there is no log, or the base is no backup.
        UnavailableError: another backup is being made there.
        DataLossError: a file of the log is missing, or the scan found one damaged.
        StorageWriteError: the target can't be written, or is full.
    """
    log = _log_at(root)
    folder = _apart(LogRoot.at(target).path, log.path)
    earlier = None if base is None else _Base(LogRoot.at(base).path)
    with building(folder, "backup", (MANIFEST, "txnlog.json")):
        try:
            return _Backup(log, folder, earlier, progress or (lambda done, total: None)).make(check=check)
        except OSError as error:
            raise StorageWriteError(
                f"The backup in {folder} can't be written: {error.strerror or error}.",
                "Check the folder, its permissions and its free space.",
            ) from error


class _Base:
    """An earlier backup."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = Manifest.read(folder)

    def has(self, path: str, state: os.stat_result) -> BackedUp | None:
        """Return what an earlier backup has of a file that hasn't changed since."""
        found = self.manifest.files.get(path)
        if found is None or (found.size, found.written_ns) != (state.st_size, state.st_mtime_ns):
            return None
        return found


class _Backup:
    """One backup that is being made."""

    def __init__(self, log: LogRoot, folder: Path, base: _Base | None, progress: Progress) -> None:
        self._log, self._folder, self._base, self._progress = log, folder, base, progress
        self._files: dict[str, BackedUp] = {}
        self._reused: set[str] = set()
        self._seconds: set[str] = set()
        """Files with the aborted messages of objects that the last copy of the database refers to."""
        self._spared: set[str] = set()
        """Segments that are missing, and whose messages tiered objects have, too."""
        self._notes: dict[str, None] = {}
        self._done = self._total = 0

    def make(self, *, check: bool) -> BackupReport:
        """Make it."""
        missing: list[str] = []
        for _ in range(_LOOKS):
            taken_at_us = time.time_ns() // 1000
            copy_moment(self._log.database, self._folder / DATABASE, self._progress)
            needed = read_needed(self._folder / DATABASE)
            self._check_base(needed)
            objects, outside = _where(needed, self._log.path)
            self._seconds.clear()
            spared, self._spared = self._spared, set()
            missing = self._copy_files(needed, objects)
            if not missing and self._spared <= spared:  # what is deleted now is no file of the next moment
                break
        if missing:
            raise DataLossError(
                f"{len(missing)} files of the log at {self._log.path} are missing; the first is {missing[0]}.",
                "See what is lost with `txnlog doctor`; then delete what can't be read, or restore it.",
            )
        wanted = {segment.path for segment in needed.segments} | set(objects.values()) | self._seconds
        self._drop(self._files.keys() - wanted)
        self._copy_configuration()
        self._files[DATABASE] = checksum_of(self._folder / DATABASE)
        sync_all(self._folder, self._files)
        for path in sorted(self._spared):
            self._note(f"{path} is missing in the log; its messages are in tiered objects.")
        messages = self._scan(needed, objects, outside) if check else {}
        if needed.roots:
            names = ", ".join(name for _, name, _ in needed.roots)
            self._note(f"The log has copies in {names}; a log that is restored has its segments in its own root alone.")
        manifest = Manifest(
            needed.log_id,
            needed.schema_version,
            taken_at_us,
            self._files,
            objects,
            outside,
            tuple(self._notes),
        )
        manifest.write(self._folder)
        return BackupReport(
            str(self._folder),
            needed.log_id,
            taken_at_us,
            needed.topics,
            len(self._files),
            manifest.bytes,
            len(self._reused & self._files.keys()),
            tuple(outside),
            messages,
            manifest.notes,
        )

    def _check_base(self, needed: Needed) -> None:
        if self._base is not None and self._base.manifest.log_id != needed.log_id:
            raise InvalidArgumentError(
                f"{self._base.folder} is a backup of the log {self._base.manifest.log_id}, not of {needed.log_id}.",
                "Name an earlier backup of this log, or none.",
            )

    def _copy_files(self, needed: Needed, objects: dict[int, str]) -> list[str]:
        """Copy what isn't there yet; return what can't be found."""
        missing = []
        copies = {found.copy_id: found.copy for found in needed.objects}
        self._done = 0
        self._total = sum(s.end for s in needed.segments) + sum(copies[copy_id].size for copy_id in objects)
        for segment in needed.segments:
            if not self._copy_segment(segment, needed):
                if segment.is_spare:
                    self._spared.add(segment.path)
                else:
                    missing.append(segment.path)
        missing += [path for copy_id, path in objects.items() if not self._copy_object(path, copies[copy_id])]
        return missing

    def _copy_object(self, path: str, copy: TieredCopy) -> bool:
        """Copy an object, and the file with its aborted messages, if it has one."""
        if not self._copy(self._log.path / path, path, copy.size):
            return False
        second = aborted_uri(path)
        try:
            footer = checked_footer(self._folder, dataclasses.replace(copy, uri=path))
        except SegmentUnreadableError as error:
            self._note(f"A tiered object is damaged in the log, too: {error.fact}")
            self._seconds.add(second)
            self._copy(self._log.path / second, second, 0)
            return True
        if footer.aborted is None:
            return True
        self._seconds.add(second)
        return self._copy(self._log.path / second, second, footer.aborted.size)

    def _copy_segment(self, segment: NeededSegment, needed: Needed) -> bool:
        if SegmentName.parse(segment.path) is None:
            raise DataLossError(
                f"The database names a segment {segment.path!r:.200}, which is no name of one.",
                "Look at the log with `txnlog doctor`.",
            )
        if segment.roots & ONLY_MAIN and self._copy(self._log.path / segment.path, segment.path, segment.end):
            return True
        return any(
            segment.roots & bit and self._copy_from_root(segment, uri, needed.log_id) for bit, _, uri in needed.roots
        )

    def _copy_from_root(self, segment: NeededSegment, uri: str, log_id: str) -> bool:
        """Copy a segment from a root for copies."""
        try:
            root = root_at(uri)
            check_copies(root, log_id)
            if isinstance(root, Path):
                return self._copy(root / segment.path, segment.path, segment.end)
            data = segments_at(root).read(segment.path, 0, segment.end)
        except (OSError, InvalidArgumentError):
            return False
        target = self._folder / segment.path
        target.parent.mkdir(parents=True, exist_ok=True)
        self._files[segment.path] = write_file(target, data, self._told)
        return True

    def _copy(self, source: Path, path: str, at_least: int) -> bool:
        """Copy a file, unless it was copied already; return False if it isn't there, or is too short."""
        target, known = self._folder / path, self._files.get(path)
        if known is not None and known.size >= at_least:
            self._told(known.size)
            return True
        try:
            state = os.stat(source)
        except FileNotFoundError:
            return False
        if state.st_size < at_least:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        self._files.pop(path, None)
        if self._base is not None and (found := self._base.has(path, state)) is not None:
            with suppress(OSError):  # another file system, or one without links
                os.link(self._base.folder / path, target)
                if os.stat(target).st_size == found.size:
                    self._files[path] = found
                    self._reused.add(path)
                    self._told(found.size)
                    return True
                target.unlink()
        try:
            copied = copy_file(source, target, self._told)
        except FileNotFoundError:
            target.unlink(missing_ok=True)
            return False
        self._files[path] = copied
        self._reused.discard(path)
        return copied.size >= at_least

    def _copy_configuration(self) -> None:
        target = self._folder / CONFIGURATION
        with suppress(FileNotFoundError):
            self._files[CONFIGURATION] = copy_file(self._log.configuration, target, self._told)

    def _drop(self, paths: Iterable[str]) -> None:
        """Remove files that the last copy of the database doesn't refer to."""
        for path in list(paths):
            (self._folder / path).unlink()
            del self._files[path]

    def _scan(self, needed: Needed, objects: dict[int, str], outside: dict[str, int]) -> dict[str, int]:
        """Read all of the backup; what is damaged in it and sound in another root is replaced first."""
        scratch = self._folder / _SCRATCH
        log_of_copy(self._folder / DATABASE, scratch, time.time_ns() // 1000, objects)
        read_first = priorities(objects, outside, spared=bool(self._spared))
        others = [Place(bit, name, root_at(uri), needed.log_id) for bit, name, uri in needed.roots]
        try:
            try:
                messages, damaged = scan_all(self._folder, scratch, read_first)
            except DataLossError:
                if not others or not self._mend(scratch, others):
                    raise
                messages, damaged = scan_all(self._folder, scratch, read_first)
            if damaged and others and self._mend(scratch, others):
                messages, damaged = scan_all(self._folder, scratch, read_first)
        finally:
            for left in self._folder.glob(f"{_SCRATCH}*"):
                left.unlink()
        for why in damaged:
            self._note(f"A copy is damaged in the log, too; another one has its messages: {why}")
        return messages

    def _mend(self, scratch: Path, others: Sequence[Place]) -> bool:
        changed = mend(self._folder, scratch, others)
        for path in changed:
            self._files[path] = checksum_of(self._folder / path)
            self._reused.discard(path)
            self._note(f"{path} is damaged in the log's own root; a sound copy was taken.")
        sync_all(self._folder, changed)
        return bool(changed)

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def _told(self, count: int) -> None:
        self._done += count
        self._progress(self._done, self._total)


def _where(needed: Needed, root: Path) -> tuple[dict[int, str], dict[str, int]]:
    """Return the tiered objects below the root, as paths by id, and those outside, as sizes by URI."""
    inside: dict[int, str] = {}
    outside: dict[str, int] = {}
    for found in needed.objects:
        path = _inside(found.copy.uri, root)
        if path is None:
            outside[found.copy.uri.partition("?")[0]] = found.copy.size
        else:
            inside[found.copy_id] = path
    return inside, outside


def _inside(uri: str, root: Path) -> str | None:
    """Return the path of an object in the root; None if it lies elsewhere."""
    scheme, _, path, _ = parts_of(uri)
    if scheme not in ("", "file"):
        return None
    absolute = Path(os.path.normpath(root / path))
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else None


def _log_at(root: str | os.PathLike[str]) -> LogRoot:
    if is_object_uri(root):
        raise InvalidArgumentError(
            f"The log at {str(root).partition('?')[0]} lies on an object store, which `txnlog backup` can't copy.",
            "Keep its objects by the store's versioning, and back up its metadata (docs: Backup and restore).",
        )
    found = LogRoot.at(root)
    if (found.path / MANIFEST).exists() and not found.exists:
        raise LogNotFoundError(
            f"{found.path} is a backup, not a log.", "Copy its folder with any tool, or restore it and back that up."
        )
    found.check()
    if found.id_on_postgres is not None:
        raise InvalidArgumentError(
            f"The log at {found.path} keeps its metadata in PostgreSQL.",
            "Back the database up with pg_dump first, then the root's files (docs: Backup and restore).",
        )
    return found


def _apart(target: Path, root: Path) -> Path:
    """Return a target that lies apart from the log, and from where links in its root lead."""
    one = Path(os.path.realpath(target))
    others = [Path(os.path.realpath(path)) for path in (root, *root.iterdir())]
    if any(one.is_relative_to(other) or other.is_relative_to(one) for other in others):
        raise InvalidArgumentError(
            f"The target {target} lies in the log's root {root}, or that one in it.", "Name a folder on another disk."
        )
    return target
