"""Records are decoded by one thread of a process at a time; others read, check and decompress meanwhile.

numpy gives up Python's lock in each call, for some ten microseconds. Threads that decode side by side stand at that
lock again and again, and take longer together than one after the other.
"""

from __future__ import annotations

import os
import threading

_turns: dict[int, threading.RLock] = {}
"""By process: in a fork, the one before may be held by a thread that it doesn't have."""


def decoding_turn() -> threading.RLock:
    """Return what is to be held while records are decoded; nothing may be waited for meanwhile."""
    turn = _turns.get(os.getpid())
    return _turns.setdefault(os.getpid(), threading.RLock()) if turn is None else turn
