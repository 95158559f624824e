"""The time of a PostgreSQL server, which all services over its database go by."""

from __future__ import annotations

import time

FRESH_S = 5.0


class ServerClock:
    """Tells the server's time by this machine's monotonic clock, once it knows how far the two are apart."""

    def __init__(self) -> None:
        self._offset_us: int | None = None
        self._set_at_s = 0.0

    @property
    def fresh(self) -> bool:
        """True if the server was asked not long ago."""
        return self._offset_us is not None and time.monotonic() - self._set_at_s < FRESH_S

    def set(self, server_us: int) -> None:
        """Take what the server's clock has just shown, in microseconds since the epoch."""
        self._offset_us = server_us - time.monotonic_ns() // 1000
        self._set_at_s = time.monotonic()

    def now_us(self) -> int | None:
        """Return the server's time in microseconds since the epoch; None before it was asked."""
        offset_us = self._offset_us
        return None if offset_us is None else time.monotonic_ns() // 1000 + offset_us
