"""Folders whose names survive a power cut.

A synced file is lost all the same if the folder that names it wasn't synced, or the folder that names that one. What
was seen to be safe is remembered by the process, so that this costs nothing for the second file of a folder.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_SAFE: dict[str, tuple[int, int]] = {}
"""Folders whose names are safe, with the number of the device and the file that each of them is."""
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)
"""File systems that know no sync of folders, or on which nothing changes."""


def make_folder(folder: Path, below: Path | None = None) -> None:
    """Make a folder, and those above it that are missing; return when they would survive a power cut.

    One that is there already may have been made by a process that hasn't synced it yet, so it is synced too.

    Args:
        folder: an absolute path.
        below: a folder above it whose own name is safe; without one all are looked at, up to the top.

    Raises:
        OSError: one of them can't be made or synced.
    """
    above: list[Path] = []
    at = folder
    while at not in (below, at.parent) and not _is_safe(at):
        above.append(at)
        at = at.parent
    for each in reversed(above):
        made = _make(each)
        try:
            sync_folder(each.parent)
        except PermissionError:  # whoever may not look into a folder hasn't made anything in it
            if made:
                raise
        _SAFE[str(each)] = _identity(each)


def files_below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all files below a folder with their state, links to folders followed, each folder once; what goes meanwhile
    is left out."""
    seen: set[tuple[int, int]] = set()
    for at, folders, names in os.walk(folder, followlinks=True):
        with suppress(FileNotFoundError):
            seen.add(_identity(Path(at)))
        folders[:] = [each for each in folders if _identity_or_none(Path(at) / each) not in (None, *seen)]
        for name in names:
            with suppress(FileNotFoundError):
                yield Path(at) / name, os.stat(Path(at) / name)


def _identity_or_none(folder: Path) -> tuple[int, int] | None:
    try:
        return _identity(folder)
    except OSError:
        return None


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder would survive a power cut: of new files, and that deleted ones are gone.

    Raises:
        OSError: it can't be synced.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(fd)


def sync_file(file: Path) -> None:
    """Return when a file that was written and closed would survive a power cut with its name.

    Raises:
        OSError: it can't be synced.
    """
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_folder(file.parent)


def _make(folder: Path) -> bool:
    """Make a folder if it isn't there; return True if it wasn't."""
    if folder.is_dir():
        return False
    with suppress(FileExistsError):
        folder.mkdir()
        return True
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    return False  # another process was faster


def _is_safe(folder: Path) -> bool:
    known = _SAFE.get(str(folder))
    if known is None:
        return False
    with suppress(OSError):
        return _identity(folder) == known
    return False


def _identity(folder: Path) -> tuple[int, int]:
    state = folder.stat()
    return state.st_dev, state.st_ino
