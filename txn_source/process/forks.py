"""Objects belong to one process, and a forked child refuses the objects of its parent.

Objects that write, hold a position or are connected record ``this_process``. ``check`` refuses them in a forked child
before they take a lock, since a lost thread of the parent may hold it. The child opens a log of its own.

- SQLite keeps its knowledge of a file's locks in memory. A fork copies it, so the child would believe to hold the
  parent's locks. A fork also copies SQLite's own mutexes, which a lost thread may hold. So idle connections are closed
  before a fork; if a database file is still open then, the child can't use SQLite.
- gRPC may end a child that was forked while another thread called a service or was connected to it, so such a child
  can't use gRPC.
- Destructors that wait for threads or locks would hang in the child, so their objects are kept for ever there.

Python promises little for a fork while threads run; ``spawn`` or a service is the sound way.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from txn_source.model.errors import InvalidArgumentError


class Process:
    """One process; a forked child has another instance."""


class Divided(Protocol):
    """A database that only one side of a fork may have open."""

    def before_fork(self) -> Path | None:
        """Close idle connections; return the database's file, if it is one."""


this_process = Process()
"""The running process; compared by identity."""
_DIVIDED: weakref.WeakSet[Divided] = weakref.WeakSet()
_KEPT: weakref.WeakSet[object] = weakref.WeakSet()
_CALLS: set[tuple[int, object]] = set()
"""Running calls to services and connections, with their threads."""
_files: set[Path] = set()
"""Databases that the child checks for open descriptors."""
_amid_sqlite = False
"""True if this process, or an ancestor, was forked while a database was open."""
_amid_calls = False
"""True if this process, or an ancestor, was forked while another thread used a service."""


def check(owner: Process, what: str) -> None:
    """Raise INVALID_ARGUMENT if an object belongs to the process that this one was forked from."""
    if owner is not this_process:
        raise InvalidArgumentError(
            f"{what} belongs to the process that opened it, and this process was forked from that one.",
            "Open a new one here.",
        )


def close_before_forks(divided: Divided) -> None:
    """Close a database's idle connections before each fork."""
    _DIVIDED.add(divided)


def keep_in_children(kept: object) -> None:
    """Never destroy an object, and all that it holds, in forked children, not even at their end."""
    _KEPT.add(kept)


def keep_for_ever(kept: object) -> None:
    """Never destroy an object in this process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


@contextmanager
def calling() -> Iterator[None]:
    """A block that calls a service by gRPC, or is connected to it."""
    call = threading.get_ident(), object()
    _CALLS.add(call)
    try:
        yield
    finally:
        _CALLS.discard(call)


def check_grpc() -> None:
    """Raise INVALID_ARGUMENT if a fork made gRPC unusable in this process."""
    if _amid_calls:
        raise InvalidArgumentError(
            "A service was in use when this process was forked, by a call, a consumer, a reader or a stream. So this"
            " process can't use gRPC.",
            "Close those before forking, or start the process without a fork (spawn).",
        )


def check_sqlite() -> None:
    """Raise INVALID_ARGUMENT if a fork made SQLite unusable in this process."""
    if _amid_sqlite:
        raise InvalidArgumentError(
            "SQLite was in use when this process was forked, by a call, a consumer, a reader or a stream. So this"
            " process can't use SQLite.",
            "Close those before forking, start the process without a fork (spawn), or use `txnlog serve`.",
        )


def _before() -> None:
    _files.clear()
    for divided in list(_DIVIDED):
        file = divided.before_fork()
        if file is not None:
            _files.add(file)


def _in_child() -> None:
    global this_process, _amid_calls, _amid_sqlite
    this_process = Process()
    _amid_calls = _amid_calls or any(thread != threading.get_ident() for thread, _ in _CALLS)
    _CALLS.clear()
    for kept in list(_KEPT):
        keep_for_ever(kept)
    _amid_sqlite = _amid_sqlite or _has_open(_files)


def _has_open(files: set[Path]) -> bool:
    wanted = [state for file in files if (state := _state(os.stat, file)) is not None]
    if not wanted:
        return False
    opened = [state for fd in os.listdir("/dev/fd") if (state := _state(os.fstat, int(fd))) is not None]
    return any(os.path.samestat(one, other) for one in wanted for other in opened)


def _state(look: Callable[[Any], os.stat_result], at: Any) -> os.stat_result | None:
    with suppress(OSError):
        return look(at)
    return None


os.register_at_fork(before=_before, after_in_child=_in_child)
