"""Whose request a thread carries out: an id that a caller gives, and that lines of logs and of the audit have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from txn_source.model.errors import InvalidArgumentError, shown

REQUEST_KEY = "txnlog-request-id"
"""Of a call's metadata."""
_ID = re.compile(r"[A-Za-z0-9_.:/=@+-]{1,100}")
_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def current() -> str | None:
    """Return the id of the request that this thread carries out; None: nobody gave one."""
    return _current.get()


@contextmanager
def request_id(name: str) -> Iterator[None]:
    """Have the calls of this block carry an id, which the service's log and audit have then.

    Raises:
        InvalidArgumentError: it has other characters than letters, digits and ``_.:/=@+-``, or more than 100.
    """
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise InvalidArgumentError(
            f"{shown(name)} is no id of a request.", "Use letters, digits and _.:/=@+-, 100 at most."
        )
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def given(name: str | None) -> Iterator[None]:
    """Carry out a request with the id that came with it; one that can't be is as none."""
    token = _current.set(name if name is not None and _ID.fullmatch(name) else None)
    try:
        yield
    finally:
        _current.reset(token)
