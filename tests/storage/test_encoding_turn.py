"""Small batches are encoded one at a time, large ones side by side."""

from __future__ import annotations

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
