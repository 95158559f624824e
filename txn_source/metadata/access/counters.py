"""What the service's door has refused, counted by reason, and told in the log without flooding it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

_log = logging.getLogger(__name__)
_TOLD_EVERY_S = 1.0


class Refusals:
    """Counts of refused calls by reason, such as ``expired``. Of each reason one in a second is told in the log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._told: dict[str, tuple[float, int]] = {}

    def count(self, reason: str, method: str, peer: str, fact: str) -> None:
        """Count a refusal; ``fact`` has nothing secret."""
        with self._lock:
            self._counts[reason] += 1
            total, now = self._counts[reason], self._clock()
            last, told = self._told.get(reason, (float("-inf"), 0))
            if now - last < _TOLD_EVERY_S:
                return
            self._told[reason] = now, total
        more = f" ({total - told - 1} more since the last line)" if total - told > 1 else ""
        _log.warning("refused %s from %s, %s: %s%s", method, peer, reason, fact, more)

    def by_reason(self) -> Mapping[str, int]:
        """Return the counts since the service began."""
        with self._lock:
            return dict(self._counts)
