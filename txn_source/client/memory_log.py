"""A log in memory, for tests: new, empty, and deleted when it is closed.

The log is a normal log in a folder of ``/dev/shm``, or of the temporary files where ``/dev/shm`` is missing. So all
features work on it, Spark included (``log.target.path``), without waiting for a disk.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from txn_source.client.log import Log
from txn_source.client.target import Target
from txn_source.process import forks

_IN_MEMORY = Path("/dev/shm")
_PREFIX = "txnlog-memory-"


class MemoryLog(Log):
    """A log that deletes its folder when it is closed or collected, or when the program ends."""

    def __init__(self) -> None:
        folder, lock = _new_folder()
        try:
            super().__init__(Target.of(folder / "log", None, create=True))
        except BaseException:
            _remove(folder, lock, forks.this_process)
            raise
        self._gone = weakref.finalize(self, _remove, folder, lock, forks.this_process)

    def __reduce__(self) -> tuple[type[Log], tuple[Target]]:  # type: ignore[override]
        return Log, (self._target,)  # a copy uses the folder, and doesn't delete it

    def close(self) -> None:
        """Close producers, consumers and the connection, and delete the folder."""
        try:
            super().close()
        finally:
            if self._process is forks.this_process:
                self._gone()

    def _leave_a_snapshot(self) -> None:
        """Make no snapshot, since the folder is deleted."""


def _new_folder() -> tuple[Path, int]:
    """Return a new folder, and a lock that ends with the process; delete the folders of dead processes."""
    base = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    for left in base.glob(f"{_PREFIX}*/lock"):
        with suppress(OSError):
            _remove(left.parent, _locked(left, 0), forks.this_process)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    lock = _locked(folder / "new", os.O_CREAT)
    os.rename(folder / "new", folder / "lock")  # a lock that isn't held yet would look like a dead process's
    return folder, lock


def _locked(file: Path, flags: int) -> int:
    """Open and lock a file; raise OSError if another process has locked it."""
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _remove(folder: Path, lock: int, owner: forks.Process) -> None:
    if owner is forks.this_process:  # the end of a forked child must not delete it
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
