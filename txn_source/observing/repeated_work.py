"""Work that is done again and again, and what the log tells of it while it fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from txn_source.model.errors import TxnLogError

TOLD_EVERY_S = 60.0
"""A failure of a kind that was told is told again after so long."""


class RepeatedWork:
    """Tells of failures of work that is tried again: each kind at once, then once a minute, and when it works again.

    What is tried each second would fill the log of a night without its database with one line, and hide all others.
    A kind is an error's code. One thread uses it.
    """

    def __init__(self, log: logging.Logger, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``name`` begins the sentences."""
        self._log = log
        self._name = name
        self._clock = clock
        self._since: float | None = None
        self._failures = 0
        self._told: dict[str, tuple[float, int]] = {}

    def failed(self, error: Exception) -> None:
        """Take notice of a failure; what isn't an error of ours is told with its traceback."""
        is_ours = isinstance(error, TxnLogError)
        kind = error.code if isinstance(error, TxnLogError) else type(error).__name__
        now = self._clock()
        self._since = now if self._since is None else self._since
        self._failures += 1
        last, before = self._told.get(kind, (float("-inf"), self._failures - 1))
        if now - last < TOLD_EVERY_S:
            return
        self._told[kind] = now, self._failures
        fact = str(error) if is_ours else f"{type(error).__name__}: {error}"
        missed = self._failures - before - 1
        more = f" ({missed:,} more failures since such a line)" if missed else ""
        self._log.warning(
            "%s failed and is tried again: %s%s", self._name, fact, more, exc_info=None if is_ours else error
        )

    def succeeded(self) -> None:
        """Take notice of a round that worked."""
        if self._since is None:
            return
        took = self._clock() - self._since
        self._log.info("%s works again, %.0f s after its first of %s failures", self._name, took, f"{self._failures:,}")
        self._since, self._failures = None, 0
        self._told.clear()
