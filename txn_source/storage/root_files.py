"""The files of a root that are written whole, beside its segments and objects: markers and snapshots.

Paths are relative to the root. A file that was put is there whole, and safe, when the call returns; until then it isn't
there. OSError says why a root can't be read or written.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from txn_source.storage.folders import make_folder, sync_file, sync_folder
from txn_source.storage.object_root import ObjectRoot, Root

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The files of a folder of this machine, or one that it shares."""

    root: Path

    @property
    def shown(self) -> str:
        """The root's place, for errors."""
        return str(self.root)

    def read(self, path: str) -> bytes | None:
        """Return a small file; None if it isn't there."""
        with suppress(FileNotFoundError):
            return (self.root / path).read_bytes()
        return None

    def fetch(self, path: str, target: Path) -> None:
        """Write a file to one of this machine; FileNotFoundError if it isn't there."""
        _copy(self.root / path, target)

    def put(self, path: str, source: bytes | Path, *, if_absent: bool = False) -> None:
        """Put a file, by its content or by one of this machine, in place of one of that name.

        With ``if_absent`` an existing file stays; the caller must then look whose it is.
        """
        file = self.root / path
        make_folder(file.parent, self.root if self.root.is_dir() else None)
        unfinished = file.with_name(f".{uuid.uuid4().hex[:12]}")
        try:
            if isinstance(source, Path):
                _copy(source, unfinished)
            else:
                unfinished.write_bytes(source)
            sync_file(unfinished)
            if if_absent:
                with suppress(FileExistsError):
                    os.link(unfinished, file)
            else:
                os.replace(unfinished, file)
            sync_folder(file.parent)
        finally:
            unfinished.unlink(missing_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file; harmless if it isn't there."""
        (self.root / path).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            sync_folder((self.root / path).parent)

    def listed(self, below: str) -> Iterator[str]:
        """Yield the paths of all files below a folder of the root."""
        for folder, _, names in os.walk(self.root / below):
            for name in names:
                yield (Path(folder) / name).relative_to(self.root).as_posix()


@dataclass(frozen=True, slots=True)
class PrefixFiles:
    """The same below a prefix of a store. What asks the store is loaded with the first request."""

    root: ObjectRoot

    @property
    def shown(self) -> str:
        return self.root.shown

    def read(self, path: str) -> bytes | None:
        from txn_source.storage.object_requests import requests_for

        with suppress(FileNotFoundError):
            return requests_for(self.root.uri).read(path)
        return None

    def fetch(self, path: str, target: Path) -> None:
        from txn_source.storage.object_store import ObjectStore

        with ObjectStore(self.root).open(path) as source, target.open("wb") as sink:
            while chunk := source.read(_CHUNK_BYTES):
                sink.write(chunk)

    def put(self, path: str, source: bytes | Path, *, if_absent: bool = False) -> None:
        from txn_source.storage.object_requests import requests_for
        from txn_source.storage.object_store import ObjectStore

        if isinstance(source, bytes):
            requests_for(self.root.uri).put(path, source, if_absent=if_absent)
            return
        with ObjectStore(self.root).write(path) as stream, source.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                stream.write(chunk)

    def remove(self, path: str) -> None:
        from txn_source.storage.object_requests import requests_for

        requests_for(self.root.uri).delete(path)

    def listed(self, below: str) -> Iterator[str]:
        from txn_source.storage.object_requests import requests_for

        for found in requests_for(self.root.uri).listed(below):
            yield found.path


def files_of(root: Root) -> FolderFiles | PrefixFiles:
    """Return the files of a root."""
    return FolderFiles(root) if isinstance(root, Path) else PrefixFiles(root)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as taken, target.open("wb") as sink:
        while chunk := taken.read(_CHUNK_BYTES):
            sink.write(chunk)
