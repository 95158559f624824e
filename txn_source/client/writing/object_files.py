"""Segments on an object store: what a writer has is put as one object, whole, and only then registered.

Entries of all partitions share an object. It is put when it is large enough, or when the writer has no more for now.
Several are on their way at once; whoever writes waits when there are too many. So memory is bounded, and the time that
a put takes is spent on gathering the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from txn_source.client.writing.partitions import Partitions
from txn_source.client.writing.uploads import Put, Safe, Together, Upload
from txn_source.model.entry import NewEntry
from txn_source.model.roots import HotCopies
from txn_source.storage.encoding_turn import encoding_turn
from txn_source.storage.segment import Data, shared_path
from txn_source.storage.segment_store import MAGIC, encoded

OBJECT_BYTES = 8 << 20
"""An object is put when it has so many bytes or more; its last entry is whole."""
MOST_UNDER_WAY = 4
_LONGEST_LINGER_S = 1.0
_WEIGHT = 0.2
"""Of the newest put in the time that one takes."""


@dataclass(slots=True)
class _Object:
    path: str
    parts: list[Data] = field(default_factory=lambda: [MAGIC])
    end: int = len(MAGIC)


class ObjectFiles:
    """Appends entries to objects of one topic; ``EntryFiles`` has the meaning of the calls."""

    def __init__(
        self,
        put: Callable[[str, bytes, Callable[[Put], None]], Put],
        copies: HotCopies,
        topic_id: int,
        partitions: Partitions,
        producer_id: int,
        note: Callable[[str], object],
        then: Callable[[], None],
    ) -> None:
        """Prepare to write; ``put`` begins to store an object, ``open_files`` has the others."""
        self.copies = copies
        self._begin_put = put
        self._topic_id = topic_id
        self._producer_id = producer_id
        self._note = note
        self._then = then
        self._partitions = partitions
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
        """Add a batch to the open object as one entry."""
        with encoding_turn(batch.nbytes):
            parts, size, checksum = encoded(batch)  # first: what can't be encoded takes nothing else with it
        held = self._open
        if held is None:
            held = self._open = _Object(shared_path(self._topic_id, self._producer_id))
            self._note(held.path)
        at = held.end
        held.parts += parts
        held.end += size
        if held.end >= OBJECT_BYTES:
            self._open = None
            self._put(held)
        partition_id = self._partitions.ids[partition]
        return NewEntry(partition_id, base_sequence, batch.num_rows, held.path, at, size, checksum)

    def start(self) -> Upload:
        """Begin to make safe what was appended since the last time; return what to wait for."""
        held, self._open = self._open, None
        if held is not None:
            self._put(held)
        begun, self._begun = self._begun, []
        return Together(begun) if begun else Safe()

    def close(self) -> None:
        """Let go of what was not put; what is under way goes on, and isn't registered."""
        self._open = None
        self._begun = []

    def _put(self, held: _Object) -> None:
        under_way = [put for put in self._under_way if not put.done]
        while len(under_way) >= MOST_UNDER_WAY:
            under_way.pop(0).settle()
            under_way = [put for put in under_way if not put.done]
        put = self._begin_put(held.path, b"".join(held.parts), self._done)
        self._begun.append(put)
        self._under_way = [*under_way, put]

    def _done(self, put: Put) -> None:
        if not put.failed:
            self._put_s += _WEIGHT * (put.seconds - self._put_s) if self._put_s else put.seconds
        self._then()
