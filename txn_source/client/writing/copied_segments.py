"""Segments with several copies: what a writer has is put into all roots of its topic at once.

A put has come to its end when all roots have it, or when as many have it as are to be acknowledged and the others had
a short while more, or when nothing more came for long. It has failed only if no root has it. A root that fails is left
out of the next puts for a while; one that comes late is noted, and told to the service with the next flush.

What is in too few roots is kept in memory, and put into the others once more with each flush.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from txn_source.client.hot_roots import Place
from txn_source.model.roots import HotCopies
from txn_source.storage.store_errors import StoreError

PATIENCE_S = 2.0
"""How long to wait for the other roots once enough have what was put."""
DEADLINE_S = 20.0
"""How long to wait for enough."""


class _Put:
    """One segment on its way into several roots, a thread for each."""

    def __init__(self, owner: CopiedSegments, path: str, data: bytes, places: Sequence[Place]) -> None:
        self._owner = owner
        self._path = path
        self._data = data
        self._changed = threading.Condition()
        self._waiting = len(places)
        self.done = 0
        """The set of the roots that have it."""
        self.error: BaseException | None = None
        self._told = False
        for place in places:
            threading.Thread(target=self._run, args=(place,), name="txnlog-copy", daemon=True).start()

    def wait(self, places: Sequence[Place], acknowledge: int) -> int:
        """Return the set of the roots that have it when there is no more to wait for."""
        begun = time.monotonic()
        enough: float | None = None
        with self._changed:
            while self._waiting:
                now = time.monotonic()
                if enough is None and self.done.bit_count() >= acknowledge:
                    enough = now
                until = begun + DEADLINE_S if enough is None else enough + PATIENCE_S
                if now >= until:
                    break
                self._changed.wait(until - now)
            self._told = True
            done, hung = self.done, self._waiting
        if hung:
            for place in places:
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
                self.done |= place.bit
            else:
                self.error = error
            late = self._told and error is None
            self._changed.notify_all()
        if late:
            self._owner.came_late(self._path, place.bit, len(self._data))


class CopiedSegments:
    """Stores segments in all of some roots. Thread-safe."""

    is_remote = True  # each is put whole, in the background

    def __init__(self, places: Sequence[Place], copies: HotCopies) -> None:
        self._places = list(places)
        self.copies = copies
        self._lock = threading.Lock()
        self._done: dict[str, int] = {}
        self._kept: dict[str, bytes] = {}
        self._late: dict[str, tuple[int, int]] = {}

    def put(self, path: str, data: bytes) -> None:
        """Store a segment; OSError says why no root took it."""
        wanted = self._to_try()
        put = _Put(self, path, data, wanted)
        done = put.wait(wanted, self.copies.acknowledge)
        if not done:
            raise put.error or StoreError("no root took it in time", unreachable=True)
        with self._lock:
            self._done[path] = done
            if self.copies.lacks(done):
                self._kept[path] = data

    def roots_of(self, path: str, known: int) -> int:
        """Return the set of the roots that have a segment that was put; of one that others put, what is known."""
        return self._done.get(path, known)

    def complete(self, path: str) -> int:
        """Put a segment that is in too few roots into those that lack it; return the set that has it then."""
        with self._lock:
            data, done = self._kept.get(path), self._done.get(path, 0)
        if data is None:
            return done
        missing = [place for place in self._places if not place.bit & done]
        put = _Put(self, path, data, missing)
        done |= put.wait(missing, self.copies.acknowledge - done.bit_count())
        with self._lock:
            done |= self._done.get(path, 0)
            self._done[path] = done
            if not self.copies.lacks(done):
                self._kept.pop(path, None)
        return done

    def retain(self, paths: set[str]) -> None:
        """Let go of all segments but some: the others need nothing more, or never will be registered."""
        with self._lock:
            for path in self._done.keys() - paths:
                del self._done[path]
                self._kept.pop(path, None)

    def came_late(self, path: str, bit: int, end: int) -> None:
        """Note that a root has a segment after all."""
        with self._lock:
            if path in self._done:
                self._done[path] |= bit
            self._late[path] = (self._late.get(path, (0, 0))[0] | bit, end)

    def take_late(self) -> dict[str, tuple[int, int]]:
        """Return which roots have come late, by segment, with its end; each is told once."""
        with self._lock:
            late, self._late = self._late, {}
        return late

    def _to_try(self) -> list[Place]:
        """Return the roots to put to: without those that rest, if the others are enough."""
        working = [place for place in self._places if not place.rests]
        return working if len(working) >= self.copies.acknowledge else self._places
