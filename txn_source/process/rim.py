"""The rim of an object with state: its lock, its process, and whether something has struck it.

A change happens behind the rim: one at a time, in the process that made the object, and not interrupted by the first
Ctrl-C. An error of ours leaves a state from which the next call goes on. Whatever else comes out of the middle of a
change, a second Ctrl-C or a lack of memory, may have come between any two steps: so the object has failed, for good,
and says so with each later call.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from txn_source.model.errors import FailedError, TxnLogError
from txn_source.process import forks
from txn_source.process.shield import held

F = TypeVar("F", bound=Callable[..., Any])


class Rim:
    """What guards one object."""

    __slots__ = ("_told", "failure", "lock", "process", "then", "what")

    def __init__(self, what: str, told: str) -> None:
        """Take what the object is called, and what to say of its work when it has failed."""
        self.what = what
        self.then: Callable[[FailedError], None] = lambda failure: None
        """Is called when the object has failed."""
        self.lock = threading.RLock()
        self.failure: FailedError | None = None
        """What each call raises, once the object has failed."""
        self._told = told
        self.process = forks.this_process

    @property
    def inherited(self) -> bool:
        """True in a forked child of the process that made the object."""
        return self.process is not forks.this_process

    def check(self) -> None:
        """Raise INVALID_ARGUMENT in a forked child, and FAILED if the object has failed."""
        forks.check(self.process, self.what)
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    @contextmanager
    def changes(self) -> Iterator[None]:
        """A block that changes the object; what comes out of it and is no error of ours fails the object."""
        forks.check(self.process, self.what)
        with held(), self.lock:
            self.check()
            try:
                yield
            except TxnLogError:
                raise
            except BaseException as error:
                self.fail(error)
                raise

    @contextmanager
    def only_whole(self) -> Iterator[None]:
        """A block, in one that changes the object, of which any error fails the object."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Have each later call raise FAILED; the first reason counts."""
        if self.failure is None:
            why = error.fact if isinstance(error, TxnLogError) else f"{type(error).__name__} came out of its middle."
            self.failure = FailedError(
                f"{self.what} has failed in an earlier call: {why} {self._told}", "Open another one."
            )
            self.then(self.failure)


def changing(method: F) -> F:
    """Decorate a method that changes an object, which has a ``_rim``."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._rim.changes():
            return method(self, *args, **kwargs)

    return cast("F", call)
