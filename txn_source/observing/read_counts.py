"""What was read from which copies, counted by tier: ledgers read, and copies that a read had to leave."""

from __future__ import annotations

import os
import threading
from collections import Counter

from txn_source.model.copies import Tier

READS_KEY = "txnlog-reads"
"""Of a call's metadata: what its client has read since it told last, ``bookkeeper=3 tiered=1 tiered-left=1``."""
_LEFT = "-left"
_MOST = 1_000_000_000
_NAMES = frozenset(f"{tier}{suffix}" for tier in Tier for suffix in ("", _LEFT))


class ReadCounts:
    """Counts; safe in threads."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Reset the counts, in a forked child too: the parent reports its own reads."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def read(self, tier: Tier, ledgers: int = 1) -> None:
        """Count ledgers that are read from a tier."""
        self._add(str(tier), ledgers)

    def left(self, tier: Tier) -> None:
        """Count a copy that had to be left."""
        self._add(f"{tier}{_LEFT}", 1)

    def _add(self, name: str, count: int) -> None:
        with self._lock:
            self._counts[name] += count

    def now(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the ledgers read and the copies left, by tier."""
        with self._lock:
            return _by_tier(self._counts)

    def taken(self) -> str:
        """Return what is to be told, as text, and begin at zero; nothing if there is nothing."""
        if not self._counts:
            return ""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return " ".join(f"{name}={count}" for name, count in sorted(counts.items()))

    def put_back(self, text: str) -> None:
        """Count once more what couldn't be told."""
        for part in text.split():
            name, _, count = part.partition("=")
            self._add(name, int(count))


def told(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return what a client says; what can't be is left out."""
    counts: Counter[str] = Counter()
    for part in text[:200].split():
        name, _, count = part.partition("=")
        if name in _NAMES and count.isascii() and count.isdigit() and int(count) <= _MOST:
            counts[name] += int(count)
    return _by_tier(counts)


def _by_tier(counts: Counter[str]) -> tuple[dict[str, int], dict[str, int]]:
    read = {name: count for name, count in counts.items() if not name.endswith(_LEFT)}
    return read, {name.removesuffix(_LEFT): count for name, count in counts.items() if name.endswith(_LEFT)}


OF_PROCESS = ReadCounts()
"""Of all logs that this process reads."""
os.register_at_fork(after_in_child=OF_PROCESS.begin)
