"""Small batches are encoded one at a time, large ones side by side, and a fork waits for nobody it doesn't have."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

from txn_source.storage.encoding_turn import SMALL_BYTES, encoding_turn

_WAIT_S = 30.0


def _passes(size: int) -> bool:
    """Return whether another thread could encode so much now."""
    turn: Any = encoding_turn(size)
    with ThreadPoolExecutor(1) as pool:
        return isinstance(turn, nullcontext) or pool.submit(turn.acquire, blocking=False).result(_WAIT_S)


def test_small_batches_take_turns_and_large_ones_do_not() -> None:
    """Hold a small batch's turn: another small one waits for it, a large one doesn't, nor does this thread."""
    with encoding_turn(SMALL_BYTES):
        assert not _passes(1)
        assert _passes(SMALL_BYTES + 1)
        with encoding_turn(1):
            pass


def test_fork_has_turns_of_its_own() -> None:
    """Fork while another thread has the turn: the child gets one at once."""
    has, go = threading.Event(), threading.Event()

    def hold() -> None:
        with encoding_turn(1):
            has.set()
            go.wait(_WAIT_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert has.wait(_WAIT_S)
    child = os.fork()
    if not child:
        with encoding_turn(1):
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    go.set()
    thread.join()
