"""Small batches are encoded by one thread of a process at a time.

Arrow gives up Python's lock in many calls that take a microsecond or two. Where fifty threads encode ten messages each,
all of them would stand at that lock again and again, and more time would go into waking them than into the work. Large
batches are encoded side by side: there it is worth it.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

SMALL_BYTES = 64 << 10
_turns: dict[int, AbstractContextManager[bool]] = {}
"""By process: in a fork, the one before may be held by a thread that it doesn't have."""
_AT_ONCE: AbstractContextManager[Any] = nullcontext()


def encoding_turn(size: int) -> AbstractContextManager[Any]:
    """Return what is to be held while about so many bytes are encoded; nothing may be waited for meanwhile."""
    if size > SMALL_BYTES:
        return _AT_ONCE
    turn = _turns.get(os.getpid())
    # Reentrant: whatever a finalizer does in this thread meanwhile isn't held up.
    return _turns.setdefault(os.getpid(), threading.RLock()) if turn is None else turn
