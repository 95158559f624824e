"""A folder in which something is made that counts only when it is whole.

Whoever makes it holds a lock on a file in it, which goes with the process. So two never make something in one folder,
and what somebody left who was killed is known for that, and is made anew.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, StorageWriteError, UnavailableError
from txn_source.storage.folders import make_folder, sync_folder

_CLAIM = ".txnlog-unfinished"
_HARMLESS = ("lost+found",)


@contextmanager
def building(folder: Path, what: str, is_finished: Sequence[str]) -> Iterator[None]:
    """Hold a new or empty folder while a thing (``what``) is made in it; if the block raises, all of it is removed.

    Args:
        folder: an absolute path; the folder above it is there.
        what: for errors, such as "backup".
        is_finished: names of files of which one says that a thing is there, whole.

    Raises:
        InvalidArgumentError: the folder has something in it.
        LogNotFoundError: there is no folder to make it in.
        UnavailableError: somebody is making something there.
        StorageWriteError: it can't be made.
    """
    if not folder.parent.is_dir():
        raise LogNotFoundError(
            f"There is no folder {folder.parent} to make {folder.name!r} in.", "Check the path, or make it first."
        )
    made = not folder.exists()
    try:
        make_folder(folder)
        claim = _claimed(folder, what)
    except OSError as error:
        raise StorageWriteError(
            f"A {what} can't be made in {folder}: {error.strerror}.", "Check the path and its permissions."
        ) from error
    try:
        _clear_left(folder, what, is_finished, claim)
        try:
            yield
        except BaseException:
            _remove_all(folder)
            raise
        _give_back(folder)
    except BaseException:
        _give_back(folder)
        if made:
            with suppress(OSError):
                folder.rmdir()
        raise
    finally:
        os.close(claim)


def _claimed(folder: Path, what: str) -> int:
    """Return the open file that the lock is on."""
    while True:
        fd = os.open(folder / _CLAIM, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UnavailableError(
                    f"Somebody is making something in {folder}.", f"Wait for that, or make the {what} elsewhere."
                ) from None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(folder / _CLAIM), os.fstat(fd)):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # of somebody who has just finished


def _clear_left(folder: Path, what: str, is_finished: Sequence[str], claim: int) -> None:
    """Remove what somebody left who was killed; raise INVALID_ARGUMENT if there is anything else."""
    names = sorted(name for name in os.listdir(folder) if name != _CLAIM and name not in _HARMLESS)
    whole = next((name for name in is_finished if name in names), None)
    left = os.fstat(claim).st_size > 0
    if names and (whole or not left):
        raise InvalidArgumentError(
            f"The folder {folder} is not empty (it has {(whole or names[0])!r}).", f"Name a new folder for the {what}."
        )
    _remove_all(folder)
    os.write(claim, what.encode())  # from now on, what is here is ours
    os.fsync(claim)


def _remove_all(folder: Path) -> None:
    for name in os.listdir(folder):
        if name != _CLAIM and name not in _HARMLESS:
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()


def _give_back(folder: Path) -> None:
    with suppress(OSError):
        (folder / _CLAIM).unlink(missing_ok=True)
        sync_folder(folder)
