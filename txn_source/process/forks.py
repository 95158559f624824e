"""Which process an object belongs to, and what must be closed or kept when the process forks.

What writes, holds a position or is connected belongs to the process that made it: it notes ``this_process``, and
``check`` refuses it in a forked child before it takes a lock, which a thread that is gone may hold. Whoever needs the
log in a child opens it anew there.

- SQLite keeps what it knows of a file's locks in memory, and a fork copies that: the child would believe to hold what
  only its parent holds. It also copies SQLite's own locks, which a thread may have that the child hasn't got. So
  connections that nobody uses are closed before a fork; if a file is open all the same, the child can't use SQLite.
- gRPC can't be used in a child that was forked while another thread called a service: it would end the process.
- What waits for threads or locks when it is destroyed is kept for ever in the child, which hasn't got these threads.

Python itself promises little where threads run while it forks: ``spawn``, or a service, is the sound way.
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
    """Stands for one process: a forked child has another one."""


class Divided(Protocol):
    """A database that both sides of a fork must not have open."""

    def before_fork(self) -> Path | None:
        """Close what nobody uses now; return the file that must not be open in the child."""


this_process = Process()
"""Of the process that runs; compared by identity."""
_DIVIDED: weakref.WeakSet[Divided] = weakref.WeakSet()
_KEPT: weakref.WeakSet[object] = weakref.WeakSet()
_CALLS: set[tuple[int, object]] = set()
"""Calls to services under way, with the thread of each."""
_files: set[Path] = set()
"""Databases that the child looks for."""
_amid_sqlite = False
"""This process, or one that it was forked from, was forked while a database was open."""
_amid_calls = False
"""Likewise, while another thread called a service."""


def check(owner: Process, what: str) -> None:
    """Raise INVALID_ARGUMENT if something belongs to another process than this one, of which this one is a fork."""
    if owner is not this_process:
        raise InvalidArgumentError(
            f"{what} belongs to the process that opened it, and this process was forked from that one.",
            "Open a new one here.",
        )


def close_before_forks(divided: Divided) -> None:
    """Have a database closed before each fork of this process, as far as nobody uses it."""
    _DIVIDED.add(divided)


def keep_in_children(kept: object) -> None:
    """Keep an object, and all that it holds, from being destroyed in forked children, at their end too."""
    _KEPT.add(kept)


def keep_for_ever(kept: object) -> None:
    """Keep an object from being destroyed in this process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


@contextmanager
def calling() -> Iterator[None]:
    """A call to a service, by gRPC."""
    call = threading.get_ident(), object()
    _CALLS.add(call)
    try:
        yield
    finally:
        _CALLS.discard(call)


def check_grpc() -> None:
    """Raise INVALID_ARGUMENT where gRPC can't be used."""
    if _amid_calls:
        raise InvalidArgumentError(
            "This process was forked while another thread's call to a service was under way, and gRPC can't be used in"
            " it.",
            "Fork before such calls, or start the process without a fork (spawn).",
        )


def check_sqlite() -> None:
    """Raise INVALID_ARGUMENT where SQLite can't be used."""
    if _amid_sqlite:
        raise InvalidArgumentError(
            "SQLite was in use when this process was forked, by a call, a consumer, a reader or a stream of a log, and"
            " can't be used on both sides of a fork.",
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
