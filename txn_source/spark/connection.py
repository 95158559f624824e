"""Logs that a worker process has open, and errors as Spark's users see them."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeGuard, TypeVar, cast

from pyspark.errors import PySparkException

from txn_source.model.door import passes, translated
from txn_source.model.errors import InternalError, TxnLogError

if TYPE_CHECKING:
    from txn_source.client.access import Access
    from txn_source.client.target import Target
    from txn_source.foreign.target import ForeignTarget
    from txn_source.reading.log_source import LogSource

    AnyTarget: TypeAlias = Target | ForeignTarget

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_MAX_OPEN = 8
_log = logging.getLogger(__name__)


def source_of(target: AnyTarget) -> LogSource[Any]:
    """Return a log of whatever kind, as reads of it are planned."""
    if is_others(target):
        from txn_source.foreign.source import ForeignSource

        return ForeignSource(target)
    from txn_source.client.reading.own_log import OwnLog

    return OwnLog(open_log(cast("Target", target)))


def is_others(target: AnyTarget) -> TypeGuard[ForeignTarget]:
    """True of a log that others wrote; asking loads nothing of what reads one."""
    return type(target).__module__ == "txn_source.foreign.target"


def open_log(target: Target) -> Access:
    """Return a log, opened once in a worker that runs many tasks; one that was made anew at a path is opened anew."""
    return _opened(target, (os.getpid(), *identity_of(target)))


@functools.lru_cache(_MAX_OPEN)
def _opened(target: Target, identity: tuple[int, ...]) -> Access:
    from txn_source.client.access import Access  # the process that only looks for the source's name needs none

    try:
        return Access.open(target)
    except Exception as error:
        if passes(error):
            raise
        raise translated(error, "Log()") from error


def identity_of(target: Target) -> tuple[int, ...]:
    """Return what is another value for a log that was made anew at a path."""
    if target.path is None:
        return ()
    try:
        marker = (Path(target.path) / "txnlog.json").stat()
    except OSError:
        return ()
    return marker.st_dev, marker.st_ino, marker.st_mtime_ns  # file systems use the numbers of deleted files again


def readable(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method fail as Spark's users can read it (see ``shown``)."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            failure = shown(error)
        raise failure from None

    return call


class UpstreamError(Exception):
    """Spark's rows for a write ended with an error, whose cause Spark reports itself."""


def handed_over(items: Iterable[T]) -> Iterator[T]:
    """Yield Spark's items for a write; an error of theirs becomes an ``UpstreamError``."""
    try:
        yield from items
    except Exception as error:
        raise UpstreamError(str(error)) from error


def shown(error: Exception) -> Exception:
    """Return what Spark is to show of an error: one line, since only the text is of use to whoever made the mistake.

    Our own frames are cut off a ``TxnLogError``. Spark's own errors, and what went wrong upstream of a write, stay as
    they are. Any other error becomes an INTERNAL error, and the log of the process has its traceback.
    """
    if isinstance(error, TxnLogError):
        return error.with_traceback(None)
    if isinstance(error, PySparkException):
        return error
    if isinstance(error, UpstreamError) and isinstance(error.__cause__, Exception):
        return error.__cause__.with_traceback(None)
    _log.error("unexpected error", exc_info=error)
    text = " ".join(str(error).split())
    return InternalError(
        f"{type(error).__name__}{': ' if text else ''}{text}.",
        "Please report it, with what the log of Spark's Python process says.",
    )
