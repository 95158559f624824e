"""Bytes on their way to where they are safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from txn_source.model.entry import NewEntry
from txn_source.model.errors import StorageWriteError, TxnLogError, UnavailableError


class Upload(Protocol):
    """What was appended up to a moment. It holds the bytes that lack copies as long as it is held itself."""

    @property
    def done(self) -> bool:
        """True if ``wait`` wouldn't wait."""

    def wait(self) -> Mapping[str, int]:
        """Return, when the bytes are safe, the roots that have them, by segment; a segment of one copy is left out.

        Raises:
            UnavailableError: they may be written later.
            StorageWriteError: they can't be written.
        """

    def complete(self) -> Mapping[str, int]:
        """Copy once more what has too few copies; return the roots, as ``wait`` does."""


class Safe:
    """Of bytes that are safe already."""

    done = True

    def wait(self) -> Mapping[str, int]:
        return {}

    complete = wait


class Together:
    """Several uploads as one."""

    def __init__(self, uploads: Sequence[Upload]) -> None:
        self._uploads = tuple(uploads)

    @property
    def done(self) -> bool:
        return all(upload.done for upload in self._uploads)

    def wait(self) -> Mapping[str, int]:
        return {path: roots for upload in self._uploads for path, roots in upload.wait().items()}

    def complete(self) -> Mapping[str, int]:
        return {path: roots for upload in self._uploads for path, roots in upload.complete().items()}


class Put:
    """A put of one object, in a thread that begins at once; the store's requests limit its time.

    The thread ends with the program, and isn't there in a fork: what was not registered does not exist.
    """

    def __init__(
        self, put: Callable[[str, bytes], int | None], path: str, data: bytes, then: Callable[[Put], None]
    ) -> None:
        """Begin.

        Args:
            put: stores the object, and returns the roots that have it; None: there is one.
            path: the object's.
            data: its bytes.
            then: is called in the thread when the put is done.
        """
        self._path = path
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self.roots: int | None = None
        """The roots that have it."""
        self.seconds = 0.0
        """How long it took."""
        threading.Thread(target=self._run, args=(put, data, then), name="txnlog-put", daemon=True).start()

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

    def wait(self) -> Mapping[str, int]:
        self._ended.wait()
        if self._error is not None:
            raise _refused(self._path, self._error) from self._error
        return {} if self.roots is None else {self._path: self.roots}

    def complete(self) -> Mapping[str, int]:
        return self.wait()

    def _run(self, put: Callable[[str, bytes], int | None], data: bytes, then: Callable[[Put], None]) -> None:
        begun = time.monotonic()
        try:
            self.roots = put(self._path, data)
        except BaseException as error:
            error.__traceback__ = None  # it would keep the object's bytes
            self._error = error
        self.seconds = time.monotonic() - begun
        self._ended.set()
        then(self)


def placed(entries: Sequence[NewEntry], roots: Mapping[str, int]) -> list[NewEntry]:
    """Return entries with the roots that have them, by segment; those of other segments stay as they are."""
    return [replace(e, roots=roots[e.segment]) if e.segment in roots else e for e in entries]


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
