"""Segments with several copies: what a writer has is put into all roots of its topic at once.

A put has come to its end when all roots have it, or when as many have it as are to be acknowledged and the others had
a short while more, or when nothing more came for long. It has failed only if no root has it. A root that fails is left
out of the next puts for a while. ``txnlog maintain`` makes a later copy known.

What is in too few roots is kept in memory, and put into the others once more with each flush.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from txn_source.client.hot_roots import Place
from txn_source.client.writing.uploads import Put
from txn_source.model.roots import HotCopies
from txn_source.storage.store_errors import StoreError

PATIENCE_S = 2.0
"""How long to wait for the other roots once enough have what was put."""
DEADLINE_S = 20.0
"""How long to wait for enough."""


class _Tries:
    """Tries to put one segment into several roots, a thread for each."""

    def __init__(self, path: str, data: bytes, places: Sequence[Place]) -> None:
        self._path = path
        self._data = data
        self._places = places
        self._changed = threading.Condition()
        self._waiting = len(places)
        self._done = 0
        self.error: BaseException | None = None
        for place in places:
            threading.Thread(target=self._run, args=(place,), name="txnlog-copy", daemon=True).start()

    def wait(self, acknowledge: int) -> int:
        """Return the set of the roots that have it when there is no more to wait for."""
        begun = time.monotonic()
        enough: float | None = None
        with self._changed:
            while self._waiting:
                now = time.monotonic()
                if enough is None and self._done.bit_count() >= acknowledge:
                    enough = now
                until = begun + DEADLINE_S if enough is None else enough + PATIENCE_S
                if now >= until:
                    break
                self._changed.wait(until - now)
            done, hung = self._done, self._waiting
        if hung:
            for place in self._places:
                if not place.bit & done and not place.rests:
                    place.failed(StoreError("it didn't take a copy in time", unreachable=True))
        return done

    def _run(self, place: Place) -> None:
        error: BaseException | None = None
        try:
            place.check()
            place.segments.put(self._path, self._data)
        except BaseException as failure:
            failure.__traceback__ = None  # it would keep the bytes
            error = failure
        if error is None:
            place.works()
        else:
            place.failed(error)
        with self._changed:
            self._waiting -= 1
            if error is None:
                self._done |= place.bit
            else:
                self.error = error
            self._changed.notify_all()


class Copies:
    """Stores segments in all of some roots. Thread-safe."""

    def __init__(self, places: Sequence[Place], copies: HotCopies) -> None:
        self._places = list(places)
        self.copies = copies

    def put(self, path: str, data: bytes, then: Callable[[Put], None]) -> CopiedPut:
        """Begin to store a segment; see ``Put``."""
        return CopiedPut(self, path, data, then)

    def first(self, path: str, data: bytes) -> int:
        """Store a segment, and return the roots that have it; OSError says why no root took it."""
        working = [place for place in self._places if not place.rests]
        wanted = working if len(working) >= self.copies.acknowledge else self._places
        tries = _Tries(path, data, wanted)
        done = tries.wait(self.copies.acknowledge)
        if not done:
            raise tries.error or StoreError("no root took it in time", unreachable=True)
        return done

    def more(self, path: str, data: bytes, done: int) -> int:
        """Put a segment that is in too few roots into those that lack it; return the set that has it then."""
        missing = [place for place in self._places if not place.bit & done]
        return done | _Tries(path, data, missing).wait(self.copies.acknowledge - done.bit_count())


class CopiedPut(Put):
    """A put into several roots, which keeps its bytes while they have too few copies."""

    def __init__(self, copies: Copies, path: str, data: bytes, then: Callable[[Put], None]) -> None:
        self._copies = copies
        self._kept: bytes | None = data
        super().__init__(copies.first, path, data, then)

    def wait(self) -> Mapping[str, int]:
        found = super().wait()
        if not self._copies.copies.lacks(found[self._path]):
            self._kept = None
        return found

    def complete(self) -> Mapping[str, int]:
        self.wait()
        if self._kept is not None and self.roots is not None:
            self.roots = self._copies.more(self._path, self._kept, self.roots)
        return self.wait()
