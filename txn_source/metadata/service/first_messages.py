"""Calls whose first message has not arrived: each occupies a thread, so none may wait for long."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import grpc

from txn_source.model.errors import InvalidArgumentError, UnavailableError, shown

_PATIENCE_S = 10.0
_MANY = 256
"""If more calls wait, only those of the last ``_SHORT_S`` seconds may continue."""
_SHORT_S = 1.0
_OF_ONE = 1000
"""So many calls of one caller may wait, so that others find threads."""


class FirstMessages:
    """Waits for the first message of calls, and cancels calls that send none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[object, tuple[float, grpc.ServicerContext]] = {}
        self._of: Counter[str] = Counter()

    def of(self, requests: Iterator[bytes], context: grpc.ServicerContext, name: str) -> bytes:
        """Return the first message of a call; ``name`` is whose it is.

        Raises:
            InvalidArgumentError: the call has ended without one.
            UnavailableError: too many calls of the same caller wait.
            grpc.RpcError: the call was cancelled.
        """
        key = object()
        with self._lock:
            if self._of[name] >= _OF_ONE:
                raise UnavailableError(
                    f"{_OF_ONE} calls of {shown(name)} have not sent their request yet.", "Try again."
                )
            self._of[name] += 1
            self._waiting[key] = time.monotonic(), context
        try:
            return next(requests)
        except StopIteration:
            raise InvalidArgumentError("The call has no request.", "Use a client of this release.") from None
        finally:
            with self._lock:
                del self._waiting[key]
                self._of[name] -= 1
                if not self._of[name]:
                    del self._of[name]

    def cancel_late(self) -> None:
        """Cancel the calls that have waited too long."""
        with self._lock:
            began = time.monotonic() - (_SHORT_S if len(self._waiting) > _MANY else _PATIENCE_S)
            late = [context for since, context in self._waiting.values() if since <= began]
        for context in late:
            context.cancel()
