"""Logs that a worker process has open, and errors as Spark's users see them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from txn_source.client.log import Log
from txn_source.client.target import Target
from txn_source.model.errors import TxnLogError

P = ParamSpec("P")
R = TypeVar("R")
_MAX_OPEN = 8


def open_log(target: Target) -> Log:
    """Return the log, opened once in a worker that runs many tasks; a log made anew at a path is opened anew."""
    return _opened(target, _identity(target))


@functools.lru_cache(_MAX_OPEN)
def _opened(target: Target, identity: tuple[int, ...]) -> Log:
    return Log(target)


def _identity(target: Target) -> tuple[int, ...]:
    if target.path is None:
        return ()
    try:
        marker = (Path(target.path) / "txnlog.json").stat()
    except OSError:
        return ()
    return marker.st_dev, marker.st_ino, marker.st_mtime_ns  # file systems use the numbers of deleted files again


def readable(method: Callable[P, R]) -> Callable[P, R]:
    """Cut our own frames off a ``TxnLogError``: in Spark only its text is of use to whoever made the mistake."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except TxnLogError as error:
            failure = error.with_traceback(None)
        raise failure from None

    return call
