"""Forks: what is used by both processes afterwards, what by one, and what must not be under way meanwhile.

Objects that write, or hold a position, belong to the process that made them.

Two processes that write one segment, or count one sequence, overwrite each other's work. So each such object is told in
a forked child, once and before any code there runs, that it was inherited; it then refuses to be used. Asking for the
process at each call would cost more than the call.

SQLite keeps what it knows of a file's locks in memory, and a fork copies that: the child believes to hold what only the
parent holds. So once the parent closed the file as its last user, the child would go on writing to a write-ahead log
that is deleted; and a lock that was held at the fork would stay taken in the child for ever. Therefore a fork waits for
the calls that use a database, closes it, and only then happens (``Undivided``); a child that inherited it open all the
same may not use it.

gRPC prepares for a fork only while no thread is inside of it. Forked without, the child is aborted at its first call.
So a fork waits for calls to a service, too, and a child that was forked amid one may not make any.

What another thread is importing at a fork stays half a module in the child, with a lock that nobody gives back: whoever
imports it there waits for ever. And imports come late: pyarrow imports pandas at a process's first array. So a fork
waits for them, whosever they are.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn, Protocol

from txn_source.model.errors import InvalidArgumentError


class Owned(Protocol):
    """What belongs to the process that made it."""

    def inherited(self) -> None:
        """Take notice that this is a fork of that process. No lock may be taken: a thread that is gone may hold it."""


class Undivided(Protocol):
    """What must not be in use, nor open, while the process forks."""

    def before_fork(self) -> None:
        """Close what is open. No call is under way, and none begins before the fork is over."""


_FORK_PATIENCE_S = 10.0
"""So long a fork waits for calls that are under way; then it happens, and the child can't use what was open."""
_UNDIVIDED: weakref.WeakSet[Undivided] = weakref.WeakSet()
_CALLS: dict[object, int] = {}
"""Calls under way, and the thread of each."""
_over = threading.Event()
"""No fork is under way."""
_over.set()
_forking: int | None = None
"""The thread that forks."""
_turn = threading.Lock()
"""Held by the thread that forks."""
_amid_calls = False
"""This process, or one that it was forked from, was forked while another thread's call was under way."""
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
"""Where the frames of imports run."""
_endless_imports: set[int] = set()
"""Threads whose imports a fork has waited for in vain: those of programs that run inside of one."""
_INHERITED: set[tuple[int, int]] = set()
"""Files that this process inherited open, by device and inode."""
_OWNED: weakref.WeakSet[Owned] = weakref.WeakSet()


def belongs_to_process(owned: Owned) -> None:
    """Have an object told in each process that is forked from this one."""
    _OWNED.add(owned)


def close_before_forks(undivided: Undivided) -> None:
    """Have something closed before each fork of this process."""
    _UNDIVIDED.add(undivided)


@contextmanager
def no_fork() -> Iterator[None]:
    """A block that no fork comes into, of whichever thread."""
    call, thread = object(), threading.get_ident()
    try:
        while True:
            _CALLS[call] = thread  # first, so that a fork that begins now sees it
            if _over.is_set() or _forking == thread:
                break
            del _CALLS[call]
            _over.wait()
        yield
    finally:
        _CALLS.pop(call, None)


def forked_amid_calls() -> bool:
    """Return whether this is a fork that ran out of patience with the calls of other threads."""
    return _amid_calls


def note_inherited(file: Path) -> None:
    """Note that this is a fork, if it inherited the file open."""
    with suppress(OSError):
        wanted = _identity(os.stat(file))
        for fd in os.listdir("/dev/fd"):
            with suppress(OSError):
                if _identity(os.fstat(int(fd))) == wanted:
                    _INHERITED.add(wanted)


def was_inherited(file: Path) -> bool:
    """Return whether this process inherited a file open, or one that it was forked from did."""
    try:
        return _identity(os.stat(file)) in _INHERITED
    except OSError:
        return False


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def keep_for_ever(inherited: object) -> None:
    """Keep an inherited object, and all that it holds, from being destroyed here, at the end of the process too.

    Closing an inherited SQLite connection reaches into memory that it shares with the parent, and closing an inherited
    gRPC channel waits for threads that aren't there.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def inherited_error(what: str) -> InvalidArgumentError:
    """Return the error of a call in a fork of the process that made the object."""
    return InvalidArgumentError(
        f"{what} belongs to the process that opened it, and this process was forked from that one.",
        "Open a new one here.",
    )


class InheritedLock:
    """Stands where an inherited object had its lock: whoever takes it is refused, at no cost to the others."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> NoReturn:
        raise inherited_error(self._what)

    def acquire(self, blocking: bool = True) -> NoReturn:
        """Refuse."""
        raise inherited_error(self._what)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: it was never taken."""

    def release(self) -> None:
        """Do nothing: it was never taken."""


def _before() -> None:
    global _forking
    _turn.acquire()
    _forking = threading.get_ident()
    _over.clear()
    until = time.monotonic() + _FORK_PATIENCE_S
    imports = _others_imports()
    while imports or _others_call():
        if time.monotonic() >= until:
            _endless_imports.update(imports)
            break
        time.sleep(0.0005)
        imports = _others_imports()
    for undivided in list(_UNDIVIDED):
        undivided.before_fork()


def _others_call() -> bool:
    return any(thread != _forking for thread in list(_CALLS.values()))


def _others_imports() -> set[int]:
    """Return which other threads import something; none if this one does, since they may wait for it."""
    importing = {thread for thread, frame in sys._current_frames().items() if _imports(frame)}
    return set() if _forking in importing else importing - _endless_imports


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False


def _in_parent() -> None:
    global _forking
    _forking = None
    _over.set()
    _turn.release()


def _in_child() -> None:
    global _forking, _over, _turn, _amid_calls
    _amid_calls = _amid_calls or _others_call()
    _forking = None
    _CALLS.clear()
    _over, _turn = threading.Event(), threading.Lock()  # other threads may have held what is inside of the old ones
    _over.set()
    for owned in list(_OWNED):
        owned.inherited()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
