"""Files that are read again when they have changed: keys, certificates."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from txn_source.model.errors import InvalidArgumentError, TxnLogError

T = TypeVar("T")
_MAX_BYTES = 1 << 20
_LOOK_EVERY_S = 1.0
_log = logging.getLogger(__name__)


class WatchedFiles(Generic[T]):
    """What some files mean, as they are now: looked at once a second at most, by whoever asks.

    Files that can't be read, or mean nothing, leave it as it was, and are told in the log once.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        meaning: Callable[[Mapping[Path, bytes]], T],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files.

        Raises:
            InvalidArgumentError: one can't be read, or ``meaning`` refuses them.
        """
        self._paths = list(paths)
        self._meaning = meaning
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = self._state()
        self._value = meaning(self._read())
        self._looked = clock()

    def current(self) -> T:
        """Return what the files mean; another object after a change."""
        if self._clock() - self._looked >= _LOOK_EVERY_S and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        return self._value

    def _look(self) -> None:
        self._looked = self._clock()
        failure: TxnLogError | None = None
        try:
            state = self._state()
        except TxnLogError as error:
            state, failure = (), error
        if state == self._seen:
            return
        self._seen = state  # as it was before the reading, so that a change meanwhile is seen the next time
        try:
            if failure is not None:
                raise failure
            self._value = self._meaning(self._read())
            _log.info("read %s again", ", ".join(map(str, self._paths)))
        except TxnLogError as error:
            _log.error("what was read before stays in force: %s", error)

    def _state(self) -> tuple[object, ...]:
        return tuple(_state_of(path) for path in self._paths)

    def _read(self) -> Mapping[Path, bytes]:
        return {path: read_file(path) for path in self._paths}


def read_file(path: Path) -> bytes:
    """Return a small file's bytes, or raise INVALID_ARGUMENT."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidArgumentError(
            f"{path} can't be read: {error.strerror}.", "Check the path and its rights."
        ) from None
    if len(data) > _MAX_BYTES:
        raise InvalidArgumentError(f"{path} has more than {_MAX_BYTES:,} bytes.", "Check the path.")
    return data


def _state_of(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError as error:
        raise InvalidArgumentError(
            f"{path} can't be read: {error.strerror}.", "Check the path and its rights."
        ) from None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _unreadable(path: Path, error: OSError) -> InvalidArgumentError:
    return InvalidArgumentError(f"{path} can't be read: {error.strerror}.", "Check the path and its rights.")
