"""The rim of an object with state: its lock, its process, and whether the object has failed.

The rim lets one change in at a time, only in the process that made the object, and delays the first Ctrl-C until the
change is complete. A TxnLogError leaves a valid state, and the next call continues from there. Any other exception (a
second Ctrl-C, MemoryError) may fall between two steps that belong together, so it fails the object for good: each later
call raises FAILED.
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
    """Guards one object."""

    __slots__ = ("_told", "failure", "lock", "process", "then", "what")

    def __init__(self, what: str, told: str) -> None:
        """Take the object's name, and the sentence about its work for the FAILED error."""
        self.what = what
        self.then: Callable[[FailedError], None] = lambda failure: None
        """Called once, when the object fails."""
        self.lock = threading.RLock()
        self.failure: FailedError | None = None
        """The error of each call after the object failed."""
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
            raise FailedError(self.failure.fact, self.failure.remedy)  # another one: a traceback keeps the object alive

    @contextmanager
    def changes(self) -> Iterator[None]:
        """A block that changes the object. An exception other than TxnLogError fails the object."""
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
        """A block inside of ``changes``. Any exception fails the object."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Make each later call raise FAILED; only the first error is recorded."""
        if self.failure is None:
            why = error.fact if isinstance(error, TxnLogError) else f"{type(error).__name__} interrupted it."
            self.failure = FailedError(
                f"{self.what} failed in an earlier call: {why} {self._told}", "Open another one."
            )
            self.then(self.failure)


def changing(method: F) -> F:
    """Run a method behind the ``_rim`` of its object."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._rim.changes():
            return method(self, *args, **kwargs)

    return cast("F", call)
