"""What was learnt of ledgers and their objects, kept by the process: an object never changes.

A stream plans every few seconds, and a ledger's markers are found by a look at all its bytes. What is kept is bounded;
what was used longest ago is forgotten.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from txn_source.foreign.pulsar.ledger_index import LedgerIndex
from txn_source.foreign.pulsar.summary import LedgerSummary

T = TypeVar("T")
Key = tuple[str, int, int]
"""An object's path, which has a UUID of its own, its bytes, and when it was written (ns)."""
_TXN_BYTES, _CHUNK_BYTES, _STRETCH_BYTES, _BLOCK_BYTES, _LEDGER_BYTES = 42, 300, 40, 200, 1000
"""About what each takes."""


class Kept(Generic[T]):
    """Values by object, of so many bytes at most; threads may use it at once.

    Args:
        limit: the bytes.
        size: returns about how many a value takes.
    """

    def __init__(self, limit: int, size: Callable[[T], int]) -> None:
        self.limit = limit
        self._size = size
        self._values: OrderedDict[Key, T] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Key, look: Callable[[], T]) -> T:
        """Return what is known of an object; it is looked at where nothing is, outside of the lock."""
        with self._lock:
            if (known := self._values.get(key)) is not None:
                self._values.move_to_end(key)
                return known
        found = look()
        with self._lock:
            if key not in self._values:
                self._values[key] = found
                self._bytes += self._size(found)
                while self._bytes > self.limit and self._values:
                    self._bytes -= self._size(self._values.popitem(last=False)[1])
        return found

    def forget(self) -> None:
        """Forget all."""
        with self._lock:
            self._values.clear()
            self._bytes = 0


def size_of_summary(summary: LedgerSummary) -> int:
    """Return about how many bytes a summary takes."""
    parts = (len(summary.txns), _TXN_BYTES), (len(summary.chunks), _CHUNK_BYTES), (len(summary.firsts), _STRETCH_BYTES)
    return _LEDGER_BYTES + sum(count * size for count, size in parts)


SUMMARIES = Kept[LedgerSummary](128 << 20, size_of_summary)
INDEXES = Kept[LedgerIndex](64 << 20, lambda index: _LEDGER_BYTES + len(index.blocks) * _BLOCK_BYTES)


def forget() -> None:
    """Forget all."""
    SUMMARIES.forget()
    INDEXES.forget()
