"""Puts that are under way, each in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from txn_source.model.errors import StorageWriteError, TxnLogError, UnavailableError


class Upload(Protocol):
    """Bytes on their way to where they are safe."""

    @property
    def done(self) -> bool:
        """True if ``wait`` wouldn't wait."""

    def wait(self) -> None:
        """Return when they are safe; raise UnavailableError if they may be written later, StorageWriteError if not."""


class Safe:
    """Of bytes that are safe already."""

    done = True

    def wait(self) -> None:
        """There is nothing to wait for."""


class Together:
    """Several uploads as one."""

    def __init__(self, uploads: Sequence[Upload]) -> None:
        self._uploads = tuple(uploads)

    @property
    def done(self) -> bool:
        return all(upload.done for upload in self._uploads)

    def wait(self) -> None:
        for upload in self._uploads:
            upload.wait()


class Put:
    """A put of one object, in a thread that begins at once; what it needs of time is limited by the store's requests.

    The thread is nobody's business at the end of the program, and isn't there in a fork: what was not registered does
    not exist.
    """

    def __init__(self, name: str, put: Callable[[], None], then: Callable[[Put], None]) -> None:
        """Begin; ``then`` is called in the thread when it is done."""
        self._name = name
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self.seconds = 0.0
        """How long it took."""
        threading.Thread(target=self._run, args=(put, then), name="txnlog-put", daemon=True).start()

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    @property
    def failed(self) -> bool:
        """True if it is done, and nothing is safe."""
        return self._error is not None

    def settle(self) -> None:
        """Return when it is done, whatever came of it."""
        self._ended.wait()

    def wait(self) -> None:
        self._ended.wait()
        if self._error is not None:
            raise _refused(self._name, self._error) from self._error

    def _run(self, put: Callable[[], None], then: Callable[[Put], None]) -> None:
        begun = time.monotonic()
        try:
            put()
        except BaseException as error:
            error.__traceback__ = None  # it would keep the object's bytes
            self._error = error
        self.seconds = time.monotonic() - begun
        self._ended.set()
        then(self)


def _refused(name: str, error: BaseException) -> TxnLogError:
    from txn_source.storage.object_store import is_passing, reason

    if isinstance(error, MemoryError) or is_passing(error):
        return UnavailableError(
            f"Segment {name} can't be written for now: {reason(error)}. Nothing is lost, and nothing is registered.",
            "Call flush() again when the store answers.",
        )
    return StorageWriteError(
        f"Segment {name} can't be written: {reason(error)}. The messages were not registered.",
        "Check the store, the permissions and the credentials, then try again.",
    )
