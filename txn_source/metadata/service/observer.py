"""What a service tells whoever watches it, call by call. Without an observer nothing is measured."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from txn_source.model.errors import TxnLogError

OK = "OK"
_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Is told of calls, and of the database's transactions; safe in threads, and quick."""

    def called(self, name: str, seconds: float, code: str, request: Any, answer: Any) -> None:
        """Take notice of a call that has ended; ``code`` is ``OK`` or an error's.

        ``request`` and ``answer`` are None if they were not come to. Of a conversation both are.
        """

    def transacted(self, kind: str, seconds: float) -> None:
        """Take notice of a transaction of the database that has ended, ``read`` or ``write``, with its waiting."""

    def timed_out(self, count: int) -> None:
        """Take notice of transactions that the service has aborted at their timeout."""

    def told(self, read: Mapping[str, int], left: Mapping[str, int]) -> None:
        """Take notice of what a client says to have read: ledgers, and copies that it had to leave, by tier."""

    def begins(self, task: str) -> None:
        """Take notice of work in the background whose rounds begin now."""

    def worked(self, task: str, error: BaseException | None) -> None:
        """Take notice of a round of work in the background."""


class Noted:
    """A call under way: what is known of it."""

    __slots__ = ("answer", "request")

    def __init__(self) -> None:
        self.request: Any = None
        self.answer: Any = None


@contextmanager
def observed(observer: Observer | None, name: str) -> Iterator[Noted]:
    """Tell an observer of a call, however it ends."""
    noted = Noted()
    if observer is None:
        yield noted
        return
    began, code = time.perf_counter(), OK
    try:
        yield noted
    except BaseException as error:
        code = error.code if isinstance(error, TxnLogError) else type(error).__name__
        raise
    finally:
        try:
            observer.called(name, time.perf_counter() - began, code, noted.request, noted.answer)
        except Exception:  # what was done is done, whether or not it could be counted
            _log.exception("a call of %s wasn't counted", name)
