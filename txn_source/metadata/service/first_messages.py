"""Calls whose first message has not arrived: each occupies a thread, so none may wait for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import grpc

from txn_source.model.errors import InvalidArgumentError

_PATIENCE_S = 10.0
_MANY = 256
"""If more calls wait, only those of the last ``_SHORT_S`` seconds may continue."""
_SHORT_S = 1.0


class FirstMessages:
    """Waits for the first message of calls, and cancels calls that send none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[object, tuple[float, grpc.ServicerContext]] = {}

    def of(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Return the first message of a call.

        Raises:
            InvalidArgumentError: the call has ended without one.
            grpc.RpcError: the call was cancelled.
        """
        key = object()
        with self._lock:
            self._waiting[key] = time.monotonic(), context
        try:
            return next(requests)
        except StopIteration:
            raise InvalidArgumentError("The call has no request.", "Use a client of this release.") from None
        finally:
            with self._lock:
                del self._waiting[key]

    def cancel_late(self) -> None:
        """Cancel the calls that have waited too long."""
        with self._lock:
            began = time.monotonic() - (_SHORT_S if len(self._waiting) > _MANY else _PATIENCE_S)
            late = [context for since, context in self._waiting.values() if since <= began]
        for context in late:
            context.cancel()
