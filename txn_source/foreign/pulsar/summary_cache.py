"""What was learnt of ledgers, kept by the process for its next plans: an object never changes.

A stream plans every few seconds, and a ledger's markers are found by a look at all its bytes. What is kept is bounded;
what was used longest ago is forgotten.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from txn_source.foreign.pulsar.summary import LedgerSummary

MAX_BYTES = 128 << 20
_TXN_BYTES, _CHUNK_BYTES, _STRETCH_BYTES, _LEDGER_BYTES = 280, 300, 40, 1000
"""About what each takes."""

Key = tuple[str, int, int]
"""An object's path, which has a UUID of its own, its bytes, and when it was written (ns)."""

_kept: OrderedDict[Key, LedgerSummary] = OrderedDict()
_lock = threading.Lock()
_bytes = 0


def kept(key: Key, look: Callable[[], LedgerSummary]) -> LedgerSummary:
    """Return what is known of an object; it is looked at where nothing is, outside of the lock."""
    with _lock:
        if (found := _kept.get(key)) is not None:
            _kept.move_to_end(key)
            return found
    found = look()
    global _bytes
    with _lock:
        if key not in _kept:
            _kept[key] = found
            _bytes += size_of(found)
            while _bytes > MAX_BYTES and _kept:
                _bytes -= size_of(_kept.popitem(last=False)[1])
    return found


def forget() -> None:
    """Forget all."""
    global _bytes
    with _lock:
        _kept.clear()
        _bytes = 0


def size_of(summary: LedgerSummary) -> int:
    """Return about how many bytes a summary takes."""
    parts = (len(summary.txns), _TXN_BYTES), (len(summary.chunks), _CHUNK_BYTES), (len(summary.firsts), _STRETCH_BYTES)
    return _LEDGER_BYTES + sum(count * size for count, size in parts)
