"""Whose call a thread carries out: set around a call by the server that asked for a token, and by nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from txn_source.model.caller import Caller

_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


def caller() -> Caller | None:
    """Return whose call this thread carries out; None: nobody asks, as in an embedded log.

    A change asks before it waits for its turn to write: another thread may carry it out then.
    """
    return _caller.get()


@contextmanager
def calling(of: Caller | None) -> Iterator[None]:
    """Carry out calls for somebody."""
    token = _caller.set(of)
    try:
        yield
    finally:
        _caller.reset(token)
