"""Ids of calls that change something: a service answers a repetition, which has the same one, as the first time."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ids: ContextVar[Iterator[str] | None] = ContextVar("txnlog_request_ids", default=None)


def request_id() -> str:
    """Return the id for a call that changes something: a fresh one, but within ``repeatable_as``."""
    ids = _ids.get()
    return uuid.uuid4().hex if ids is None else next(ids)


@contextmanager
def repeatable_as(key: str) -> Iterator[None]:
    """Let the calls that this thread makes within carry ids that follow from a key and their order.

    So who doesn't know whether they came through makes the same ones again with the same key, in another process too.
    """
    token = _ids.set(f"{key}-{number}" for number in itertools.count())
    try:
        yield
    finally:
        _ids.reset(token)
