"""How fast an examination may read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BURST_S = 0.1


class Pace:
    """A limit of bytes in a second, of all threads together; None: there is none.

    ``clock`` returns seconds that never go back, and ``sleep`` waits for some.
    """

    def __init__(
        self,
        bytes_per_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate = bytes_per_s
        self._clock, self._sleep = clock, sleep
        self._free_at = clock()
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Wait until so many bytes may be read."""
        if not self._rate:
            return
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now - _BURST_S) + count / self._rate
            wait_s = self._free_at - now
        if wait_s > 0:
            self._sleep(wait_s)
