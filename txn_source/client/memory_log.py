"""A log in memory, for tests: new and empty, of this process alone, and gone when it is closed.

It is a whole log, in a folder of the machine's memory where there is one, else of its temporary files. So everything
works on it that works on a log, Spark too (``log.target.path``), and as fast as nothing that waits for a disk.
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
    """A log whose folder goes with it: when it is closed or collected, or its program ends."""

    def __init__(self) -> None:
        folder, lock = _new_folder()
        try:
            super().__init__(Target.of(folder / "log", None, create=True))
        except BaseException:
            _remove(folder, lock, forks.this_process)
            raise
        self._gone = weakref.finalize(self, _remove, folder, lock, forks.this_process)

    def __reduce__(self) -> tuple[type[Log], tuple[Target]]:  # type: ignore[override]
        return Log, (self._target,)  # another process may use it while it is open; it doesn't end it

    def close(self) -> None:
        """Close producers, consumers and the connection, and remove all of it."""
        try:
            super().close()
        finally:
            if self._process is forks.this_process:
                self._gone()

    def _leave_a_snapshot(self) -> None:
        """Leave none: nothing of it stays."""


def _new_folder() -> tuple[Path, int]:
    """Return a new folder, and the lock on it, which goes with the process; remove those of processes that died."""
    base = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    for left in base.glob(f"{_PREFIX}*/lock"):
        with suppress(OSError):
            _remove(left.parent, _locked(left, 0), forks.this_process)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    return folder, _locked(folder / "lock", os.O_CREAT)


def _locked(file: Path, flags: int) -> int:
    """Return an open file that this process alone has locked; OSError: another one has."""
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _remove(folder: Path, lock: int, owner: forks.Process) -> None:
    if owner is forks.this_process:  # a forked child ends, too, and it isn't the child's
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
