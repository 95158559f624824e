"""A backup's manifest: what it is a backup of, and each of its files with size and checksum. Written last.

<backup>/txnlog-backup.json   this; a folder without it is no backup
<backup>/metadata.db          the database as it was at one moment
<backup>/segments/...         as in the log's root
<backup>/tiered/...           likewise, and whatever other folder below the root tiered copies lie in
<backup>/broker.conf          if the log has one

It has no ``txnlog.json``, so nobody opens a backup as a log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from txn_source.model.errors import LogNotFoundError, LogVersionError, SegmentUnreadableError
from txn_source.storage.folders import sync_folder

MANIFEST = "txnlog-backup.json"
DATABASE = "metadata.db"
CONFIGURATION = "broker.conf"
VERSION = 1


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A file of a backup: how many bytes it has and their CRC-32C; and when the original was last written, in
    nanoseconds, by which a later backup knows it again."""

    size: int
    crc32c: int
    written_ns: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup has.

    ``taken_at_us`` is the moment that it shows. ``objects`` are tiered copies: id, path in the backup. ``outside`` are
    those that aren't in it: URI, and size. ``notes`` say what else is not as in the log.
    """

    log_id: str
    schema_version: int
    taken_at_us: int
    files: Mapping[str, BackedUp]
    objects: Mapping[int, str] = field(default_factory=dict)
    outside: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files.values())

    @property
    def taken_at(self) -> datetime:
        """The moment that it shows."""
        return datetime.fromtimestamp(self.taken_at_us / 1e6, UTC)

    def write(self, folder: Path) -> None:
        """Write it: from now on the folder is a backup, and would be one after a power cut. Raises OSError."""
        value = {
            "version": VERSION,
            "log_id": self.log_id,
            "schema_version": self.schema_version,
            "taken_at": self.taken_at.isoformat(),
            "taken_at_us": self.taken_at_us,
            "objects": {str(copy_id): path for copy_id, path in self.objects.items()},
            "outside": dict(self.outside),
            "notes": list(self.notes),
            "files": {path: [f.size, f.crc32c, f.written_ns] for path, f in sorted(self.files.items())},
        }
        unfinished = folder / f".{MANIFEST}"
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=0)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, folder / MANIFEST)
        sync_folder(folder)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Return the manifest of a backup.

        Raises:
            LogNotFoundError: there is none: it is no backup, or one that wasn't finished.
            LogVersionError: it is of a newer release.
            SegmentUnreadableError: it is damaged.
        """
        try:
            text = (folder / MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            what = "is no backup, or one that was not finished" if folder.is_dir() else "does not exist"
            raise LogNotFoundError(
                f"There is no backup at {folder}: it {what} (no {MANIFEST}).",
                "Name a folder that `txnlog backup` made.",
            ) from None
        except OSError as error:
            raise LogNotFoundError(
                f"The backup at {folder} can't be read: {error.strerror}.", "Check the path and its permissions."
            ) from error
        try:
            value = json.loads(text)
            version = int(value["version"])
            if version <= VERSION:
                return cls._of(value)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SegmentUnreadableError(
                f"The backup at {folder} is damaged: its {MANIFEST} can't be read.", "Take another backup."
            ) from None
        raise LogVersionError(
            f"The backup at {folder} has version {version}; this release reads up to {VERSION}.", "Upgrade txn-source."
        )

    @classmethod
    def _of(cls, value: Mapping[str, Any]) -> Manifest:
        files = {_inside(path): BackedUp(*map(int, of)) for path, of in value["files"].items()}
        if DATABASE not in files:
            raise ValueError("no database")
        return cls(
            str(value["log_id"]),
            int(value["schema_version"]),
            int(value["taken_at_us"]),
            files,
            {int(copy_id): _inside(path) for copy_id, path in value["objects"].items()},
            {str(uri): int(size) for uri, size in value["outside"].items()},
            tuple(map(str, value["notes"])),
        )


def _inside(path: str) -> str:
    """Return a path that stays in its folder, or raise ValueError."""
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise ValueError(path)
    return path
