"""Making a log of a backup.

1. All files of the backup are looked at, then copied, and their checksums compared. If one isn't what it was, all that
   are damaged are told, and nothing is left.
2. The copied database becomes that of another log (``metadata/store/putting_back.py``): it has an id of its own, and
   what the first log may have given out after the backup is passed over.
3. The new log is read at both isolation levels.
4. ``txnlog.json`` is written. A folder without it is no log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from txn_source.metadata.store.sqlite_backup import Needed, read_needed
from txn_source.model.door import guard
from txn_source.model.errors import (
    InvalidArgumentError,
    SegmentUnreadableError,
    StorageWriteError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.policies import OF_COPIES, POLICIES
from txn_source.storage.folders import sync_file, sync_folder
from txn_source.storage.object_uri import is_object_uri
from txn_source.storage.root import LogRoot
from txn_source.storage.tiered import check_object
from txn_source.upkeep.building import building
from txn_source.upkeep.file_copies import Progress, copy_file, sync_all
from txn_source.upkeep.log_of_copy import log_of_copy
from txn_source.upkeep.manifest import CONFIGURATION, DATABASE, MANIFEST, Manifest
from txn_source.upkeep.scanning import priorities, scan_all

_UNFINISHED = "metadata.db-restored"
_AS_IT_WAS = f"{_UNFINISHED}-as-it-was"
_TOLD_DAMAGED = 5


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """A log that was made of a backup: where, its id, that of the log that was backed up, and the moment of the backup
    (microseconds since the epoch).

    ``messages`` are those that each level sees, by its name; none if they were not scanned. ``notes`` say what is not
    as in the log that was backed up.
    """

    root: str
    log_id: str
    backup_of: str
    taken_at_us: int
    files: int
    bytes: int
    messages: dict[str, int]
    notes: tuple[str, ...]


@guard
def restore(
    source: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    check: bool = True,
    progress: Progress | None = None,
) -> RestoreReport:
    """Make a log of a backup; the backup stays as it is.

    It is another log than the one that was backed up, with an id of its own: clients of a service over that one are
    refused, and connect anew. What that one stored after the backup is in no position, transaction or epoch of this
    one. Transactions that were open are aborted, and subscriptions stand where they stood.

    Args:
        source: the backup.
        root: a new or empty folder.
        check: read the log at both isolation levels before it is one.
        progress: is told how many bytes were copied, and of how many.

    Raises:
        InvalidArgumentError: the folder isn't empty, or lies in the backup.
        LogNotFoundError: there is no backup, or one that wasn't finished.
        LogVersionError: it is of a newer release.
        SegmentUnreadableError: files of it are damaged or missing, or tiered objects that lie outside of it.
        UnavailableError: somebody restores to that folder.
        DataLossError: the scan read other than what the database says.
        StorageWriteError: the folder can't be written, or is full.
    """
    if is_object_uri(root):
        raise InvalidArgumentError(f"{root} is no folder.", "Restore to a folder of this machine.")
    backup = LogRoot.at(source).path
    manifest = Manifest.read(backup)
    log = LogRoot.at(root)
    one, other = (Path(os.path.realpath(path)) for path in (log.path, backup))
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise InvalidArgumentError(f"The root {log.path} lies in the backup, or that one in it.", "Name a new folder.")
    _check_sizes(backup, manifest)
    with building(log.path, "log", ("txnlog.json", MANIFEST)):
        try:
            return _restore(backup, manifest, log, progress or (lambda done, total: None), check=check)
        except OSError as error:
            raise StorageWriteError(
                f"The log at {log.path} can't be written: {error.strerror or error}.",
                "Check the folder, its permissions and its free space.",
            ) from error


def _restore(backup: Path, manifest: Manifest, log: LogRoot, progress: Progress, *, check: bool) -> RestoreReport:
    notes = list(manifest.notes)
    _copy_files(backup, manifest, log.path, progress)
    notes += _without_copies(log.configuration)
    unfinished = log.path / _UNFINISHED
    log_id = log_of_copy(log.path / _AS_IT_WAS, unfinished, manifest.taken_at_us, manifest.objects)
    (log.path / _AS_IT_WAS).unlink()
    needed = read_needed(unfinished)
    notes += _check_outside(log.path, needed, manifest.outside)
    spared = any(segment.path not in manifest.files for segment in needed.segments)
    read_first = priorities(manifest.objects, manifest.outside, spared=spared)
    messages, damaged = scan_all(log.path, unfinished, read_first) if check else ({}, ())
    notes += [f"A copy is damaged, as it was in the log; another one has its messages: {why}" for why in damaged]
    sync_all(log.path, [path for path in manifest.files if path != DATABASE])
    try:
        os.link(unfinished, log.database)  # never in place of a database that somebody has made here meanwhile
    except FileExistsError:
        raise UnavailableError(
            f"Somebody is making a log at {log.path}.", "Restore to another folder, which nobody else uses."
        ) from None
    unfinished.unlink()
    sync_file(log.database)
    sync_folder(log.path)
    log.finish()
    return RestoreReport(
        str(log.path),
        log_id,
        manifest.log_id,
        manifest.taken_at_us,
        len(manifest.files),
        manifest.bytes,
        messages,
        tuple(notes),
    )


def _check_sizes(backup: Path, manifest: Manifest) -> None:
    """Raise SEGMENT_UNREADABLE if a file is missing, or has another size."""
    damaged = []
    for path, file in manifest.files.items():
        try:
            size = os.stat(backup / path).st_size
        except OSError as error:
            damaged.append(f"{path}: {error.strerror}")
            continue
        if size != file.size:
            damaged.append(f"{path}: it has {size} bytes, not {file.size}")
    _refuse(backup, damaged)


def _copy_files(backup: Path, manifest: Manifest, root: Path, progress: Progress) -> None:
    """Copy all files of a backup; raise SEGMENT_UNREADABLE if some aren't what they were."""
    done, damaged = 0, []

    def told(count: int) -> None:
        nonlocal done
        done += count
        progress(done, manifest.bytes)

    for path, file in manifest.files.items():
        target = root / (_AS_IT_WAS if path == DATABASE else path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            copied = copy_file(backup / path, target, told)
        except FileNotFoundError as error:
            damaged.append(f"{path}: {error.strerror}")
            continue
        if (copied.size, copied.crc32c) != (file.size, file.crc32c):
            damaged.append(f"{path}: its checksum differs")
    _refuse(backup, damaged)


def _refuse(backup: Path, damaged: list[str]) -> None:
    if damaged:
        more = f"; and {len(damaged) - _TOLD_DAMAGED} more" if len(damaged) > _TOLD_DAMAGED else ""
        raise SegmentUnreadableError(
            f"The backup at {backup} is damaged: {'; '.join(damaged[:_TOLD_DAMAGED])}{more}. Nothing was restored.",
            "Use another backup, or another copy of this one.",
        )


def _without_copies(configuration: Path) -> list[str]:
    """Turn off what the broker's configuration says of roots for copies, which the new log doesn't have."""
    if not configuration.exists():
        return []
    settings = {POLICIES[name].setting for name in OF_COPIES}
    lines, found = [], []
    for line in configuration.read_text(encoding="utf-8", errors="surrogateescape").splitlines(keepends=True):
        setting = line.partition("=")[0].strip()
        found += [setting] if setting in settings else []
        lines.append(f"# {line}" if setting in settings else line)
    if found:
        configuration.write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
        return [f"{CONFIGURATION} no longer sets {' and '.join(found)}: add roots first (`txnlog roots add`)."]
    return []


def _check_outside(root: Path, needed: Needed, outside: Mapping[str, int]) -> list[str]:
    """Look at the tiered objects that lie outside; return what there is to say of them."""
    if not outside:
        return []
    missing = []
    for found in needed.objects:
        if found.copy.uri.partition("?")[0] in outside:
            try:
                check_object(root, found.copy)
            except TxnLogError as error:
                missing.append(error.fact)
    if missing:
        raise SegmentUnreadableError(
            f"{len(missing)} of {len(outside)} tiered objects that lie outside of the backup can't be read:"
            f" {'; '.join(missing[:_TOLD_DAMAGED])}. Nothing was restored.",
            "Bring them back to where they were, or give this machine the store's credentials.",
        )
    told = f"{len(outside)} tiered objects lie outside of the root, such as {next(iter(outside))}"
    return [f"{told}. If the log that was backed up lives on, both use them: what one trims is lost for the other."]
