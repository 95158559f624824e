"""Forks: objects that write, or hold a position, belong to the process that made them.

Two processes that write one segment, or count one sequence, overwrite each other's work. So each such object is told in
a forked child, once and before any code there runs, that it was inherited; it then refuses to be used. Asking for the
process at each call would cost more than the call.
"""

from __future__ import annotations

import os
import weakref
from types import TracebackType
from typing import NoReturn, Protocol

from txn_source.model.errors import InvalidArgumentError


class Owned(Protocol):
    """What belongs to the process that made it."""

    def inherited(self) -> None:
        """Take notice that this is a fork of that process. No lock may be taken: a thread that is gone may hold it."""


_OWNED: weakref.WeakSet[Owned] = weakref.WeakSet()


def belongs_to_process(owned: Owned) -> None:
    """Have an object told in each process that is forked from this one."""
    _OWNED.add(owned)


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: it was never taken."""


def _tell() -> None:
    for owned in list(_OWNED):
        owned.inherited()


os.register_at_fork(after_in_child=_tell)
