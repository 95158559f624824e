"""Segments on an object store: what a writer has is put as one object, whole, and only then registered.

Entries of all partitions share an object. It is put when it is large enough, or when the writer has no more for now.
Several are on their way at once; whoever writes waits when there are too many. So memory is bounded, and the time that
a put takes is spent on gathering the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from txn_source.client.writing.copied_segments import CopiedSegments
from txn_source.client.writing.uploads import Put, Safe, Together, Upload
from txn_source.metadata.stub.roots import SegmentRoots
from txn_source.model.entry import NewEntry
from txn_source.model.roots import ONE_COPY
from txn_source.model.topic import TopicView
from txn_source.storage.encoding_turn import encoding_turn
from txn_source.storage.segment import Data, shared_path
from txn_source.storage.segment_store import MAGIC, encoded

OBJECT_BYTES = 8 << 20
"""An object is put when it has so many bytes or more; its last entry is whole."""
MOST_UNDER_WAY = 4
_LONGEST_LINGER_S = 1.0
_WEIGHT = 0.2
"""Of the newest put in the time that one takes."""


class Puts(Protocol):
    """Where objects go."""

    def put(self, path: str, data: bytes) -> None: ...


@dataclass(slots=True)
class _Object:
    path: str
    parts: list[Data] = field(default_factory=lambda: [MAGIC])
    end: int = len(MAGIC)


class OneCopy:
    """What files say of their entries' copies where there is one of each."""

    def placed(self, entries: Sequence[NewEntry]) -> list[NewEntry]:
        """Return entries that are safe, with the roots that have them."""
        return list(entries)

    def complete(self, entries: Sequence[NewEntry]) -> list[NewEntry]:
        """Return entries after what they lack was copied once more, as far as that is known here."""
        return list(entries)

    def lack_copies(self, entries: Sequence[NewEntry]) -> bool:
        """True if one of some entries has too few copies to be acknowledged, as far as that is known here."""
        return False

    def retain(self, waiting: Callable[[], Iterable[NewEntry]]) -> None:
        """Let go of all but the entries that wait: the others are acknowledged, or never will be."""

    def take_late(self) -> list[SegmentRoots]:
        """Return which copies came after they were waited for."""
        return []


class ObjectFiles(OneCopy):
    """Appends entries to objects of one topic; ``SegmentFiles`` has the meaning of the calls."""

    def __init__(
        self,
        store: Puts,
        view: TopicView,
        producer_id: int,
        note: Callable[[str], object] | None = None,
        then: Callable[[], None] = lambda: None,
        copied: CopiedSegments | None = None,
    ) -> None:
        """Prepare to write; ``then`` is called, in another thread, whenever a put is done.

        ``copied`` is the store if it puts into several roots.
        """
        self._store = store
        self._copied = copied
        self._topic_id = view.topic.topic_id
        self._producer_id = producer_id
        self._note = note
        self._then = then
        self._partition_ids = [p.partition_id for p in view.partitions]
        self._open: _Object | None = None
        self._begun: list[Put] = []
        """Since ``start`` was called last."""
        self._under_way: list[Put] = []
        self._put_s = 0.0

    @property
    def linger_s(self) -> float:
        """How long to gather before a put: as long as one takes, so that about one is under way at each time. More are
        only if much is sent."""
        return min(self._put_s, _LONGEST_LINGER_S)

    def append(self, partition: int, base_sequence: int, batch: pa.RecordBatch) -> NewEntry:
        """Add a batch as one entry, which is safe only after ``sync``."""
        with encoding_turn(batch.nbytes):
            parts, size, checksum = encoded(batch)  # first: what can't be encoded takes nothing else with it
        held = self._open
        if held is None:
            held = self._open = _Object(shared_path(self._topic_id, self._producer_id))
            if self._note is not None:
                self._note(held.path)
        at = held.end
        held.parts += parts
        held.end += size
        if held.end >= OBJECT_BYTES:
            self._open = None
            self._put(held)
        return NewEntry(self._partition_ids[partition], base_sequence, batch.num_rows, held.path, at, size, checksum)

    def start(self) -> Upload:
        """Begin to make safe what was appended since the last time; return what to wait for."""
        held, self._open = self._open, None
        if held is not None:
            self._put(held)
        begun, self._begun = self._begun, []
        return Together(begun) if begun else Safe()

    def sync(self) -> None:
        """Return when all that was appended since the last time is safe."""
        self.start().wait()

    def follow(self, partition: int, ledger_id: int) -> None:
        """Objects are of no ledger."""

    def add_partitions(self, view: TopicView) -> None:
        """Take the partitions that were added to the topic; adding them again is harmless."""
        self._partition_ids += [p.partition_id for p in view.partitions[len(self._partition_ids) :]]

    def placed(self, entries: Sequence[NewEntry]) -> list[NewEntry]:
        if self._copied is None:
            return list(entries)
        return [replace(entry, roots=self._copied.roots_of(entry.segment, entry.roots)) for entry in entries]

    def complete(self, entries: Sequence[NewEntry]) -> list[NewEntry]:
        if self._copied is None:
            return list(entries)
        done = {path: self._copied.complete(path) for path in {entry.segment for entry in entries}}
        return [replace(entry, roots=entry.roots | done[entry.segment]) for entry in entries]

    def lack_copies(self, entries: Sequence[NewEntry]) -> bool:
        copies = ONE_COPY if self._copied is None else self._copied.copies
        return any(copies.lacks(entry.roots) for entry in entries)

    def retain(self, waiting: Callable[[], Iterable[NewEntry]]) -> None:
        if self._copied is not None:
            self._copied.retain({entry.segment for entry in waiting()})

    def take_late(self) -> list[SegmentRoots]:
        late = {} if self._copied is None else self._copied.take_late()
        return [SegmentRoots(path, roots, 0, end) for path, (roots, end) in late.items()]

    def close(self) -> None:
        """Let go of what was not put; what is under way goes on, and isn't registered."""
        self._open = None
        self._begun = []

    def _put(self, held: _Object) -> None:
        under_way = [put for put in self._under_way if not put.done]
        while len(under_way) >= MOST_UNDER_WAY:
            under_way.pop(0).settle()
            under_way = [put for put in under_way if not put.done]
        data = b"".join(held.parts)
        put = Put(held.path, lambda: self._store.put(held.path, data), self._done)
        self._begun.append(put)
        self._under_way = [*under_way, put]

    def _done(self, put: Put) -> None:
        if not put.failed:
            self._put_s += _WEIGHT * (put.seconds - self._put_s) if self._put_s else put.seconds
        self._then()
