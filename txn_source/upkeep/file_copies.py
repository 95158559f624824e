"""Copies of files, with the checksum of what was copied."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from crc32c import crc32c

from txn_source.storage.folders import make_folder, sync_folder
from txn_source.upkeep.manifest import BackedUp

_CHUNK_BYTES = 4 << 20
Progress = Callable[[int, int], object]
"""Is told how many bytes were copied, and of how many."""
Told = Callable[[int], object]
"""Is told how many more bytes were copied."""


def copy_file(source: Path, target: Path, told: Told, size: int | None = None) -> BackedUp:
    """Copy a file to a new one, as far as it goes now or up to a size; ``sync_all`` makes it safe. Raises OSError."""
    with source.open("rb", buffering=0) as file:
        state = os.fstat(file.fileno())
        left = state.st_size if size is None else min(size, state.st_size)
        made = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            copied, checksum = 0, 0
            buffer = memoryview(bytearray(min(_CHUNK_BYTES, max(left, 1))))
            while left and (count := file.readinto(buffer[: min(left, len(buffer))])):
                data = buffer[:count]
                checksum = crc32c(data, checksum)
                while len(data):
                    data = data[os.write(made, data) :]
                copied, left = copied + count, left - count
                told(count)
        finally:
            os.close(made)
    return BackedUp(copied, checksum, state.st_mtime_ns)


def write_file(target: Path, data: bytes, told: Told) -> BackedUp:
    """Write a new file. Raises OSError."""
    with target.open("xb") as file:
        file.write(data)
    told(len(data))
    return BackedUp(len(data), crc32c(data))


def checksum_of(path: Path) -> BackedUp:
    """Return size and checksum of a file. Raises OSError."""
    checksum = size = 0
    with path.open("rb", buffering=0) as file:
        while data := file.read(_CHUNK_BYTES):
            checksum, size = crc32c(data, checksum), size + len(data)
    return BackedUp(size, checksum)


def sync_all(root: Path, paths: Iterable[str]) -> None:
    """Return when files, by their paths in a folder, and the folders that they lie in, would survive a power cut.

    Raises OSError.
    """
    folders: set[Path] = set()
    for path in paths:
        file = root / path
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        for folder in file.parents:
            folders.add(folder)
            if folder == root:
                break
    for folder in sorted(folders, key=lambda each: -len(each.parts)):
        sync_folder(folder)
    make_folder(root)
