"""The thread that does what is due: when it calls its owner, and that it ends with it."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest

from txn_source.client.consuming.due_thread import DueThread
from txn_source.model.errors import InternalError, TxnLogError, UnavailableError

WAIT_S = 30.0


class Owner:
    """Notes how often it was called."""

    def __init__(self) -> None:
        self.calls = threading.Semaphore(0)

    def do_what_is_due(self) -> None:
        self.calls.release()


def begun(at_end: Callable[[], None]) -> tuple[DueThread, Owner]:
    thread, owner = DueThread("the owner", threading.RLock()), Owner()
    thread.begin(owner, at_end)
    return thread, owner


def test_owner_is_called_when_something_is_due() -> None:
    """Ask for a time that has come, and for one that hasn't: it is called once; ``wake`` calls it again."""
    thread, owner = begun(lambda: None)
    thread.due(time.monotonic() + 3600)
    thread.due(0.0)
    assert owner.calls.acquire(timeout=WAIT_S)
    thread.wake()
    assert owner.calls.acquire(timeout=WAIT_S)
    thread.end()
    assert not owner.calls.acquire(blocking=False)


def test_what_is_left_is_done_once() -> None:
    """End it, twice: what is left to do is done by the thread, once, before ``end`` returns."""
    done: list[str] = []
    thread, _owner = begun(lambda: done.append(threading.current_thread().name))
    thread.end()
    thread.end()
    assert done == ["txnlog-due"]


@pytest.mark.parametrize(
    ("error", "told"),
    [(UnavailableError("Away.", "Wait."), UnavailableError), (RuntimeError("oops"), InternalError)],
    ids=repr,
)
def test_failure_at_the_end_is_told_once(error: Exception, told: type[TxnLogError]) -> None:
    """Have what is left fail: the first call that ends it says so."""

    def fail() -> None:
        raise error

    thread, _owner = begun(fail)
    with pytest.raises(told):
        thread.end()
    thread.end()


def test_forgotten_owner_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    """Forget the owner, without a garbage collection: what is left is done; ``close`` logs that it failed."""
    tried = threading.Event()

    def fail() -> None:
        tried.set()
        raise UnavailableError("Away.", "Wait.")

    gc.disable()
    try:
        thread, owner = begun(fail)
        del owner
        assert tried.wait(WAIT_S)
    finally:
        gc.enable()
    thread.close()
    assert "acknowledgements of the owner weren't sent" in caplog.text
