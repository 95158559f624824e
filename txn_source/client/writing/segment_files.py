"""The segments that a writer has open: one for each partition and set of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.hot_roots import places_in, places_of
from txn_source.client.writing.copied_segments import CopiedSegments
from txn_source.client.writing.object_files import ObjectFiles, OneCopy
from txn_source.client.writing.uploads import Safe, Upload
from txn_source.metadata.stub.roots import SegmentRoots
from txn_source.model.entry import NewEntry
from txn_source.model.roots import ONE_COPY, ONLY_MAIN, HotCopies, hot_copies
from txn_source.model.topic import TopicView
from txn_source.model.topic_name import TopicName
from txn_source.storage.segment import SegmentWriter, segment_path
from txn_source.storage.segment_store import ObjectSegments

_Key = tuple[int, tuple[str, ...]]


class EntryFiles(Protocol):
    """Where a writer's entries go: ``SegmentFiles`` or ``ObjectFiles``."""

    @property
    def linger_s(self) -> float: ...

    def append(self, partition: int, base_sequence: int, batch: pa.RecordBatch) -> NewEntry: ...
    def start(self) -> Upload: ...
    def sync(self) -> None: ...
    def follow(self, partition: int, ledger_id: int) -> None: ...
    def add_partitions(self, view: TopicView) -> None: ...
    def placed(self, entries: Sequence[NewEntry]) -> list[NewEntry]: ...
    def complete(self, entries: Sequence[NewEntry]) -> list[NewEntry]: ...
    def lack_copies(self, entries: Sequence[NewEntry]) -> bool: ...
    def retain(self, waiting: Callable[[], Iterable[NewEntry]]) -> None: ...
    def take_late(self) -> list[SegmentRoots]: ...
    def close(self) -> None: ...


def wanted_copies(access: Access, topic: TopicName) -> HotCopies:
    """Return where a topic's entries are to lie; a log with no root but its own isn't asked."""
    if not access.metadata.roots:
        return ONE_COPY
    in_force = access.metadata.policies_in_force(topic)
    names, acknowledge = in_force["hot_copies"].value, in_force["acknowledge_copies"].value
    return hot_copies(names, acknowledge, access.metadata.roots)


def open_files(
    access: Access,
    view: TopicView,
    producer_id: int,
    max_open: int,
    note: Callable[[str], object] | None = None,
    then: Callable[[], None] = lambda: None,
) -> EntryFiles:
    """Return where entries of a topic go in a log; ``note`` is given each path before anything lies there, and ``then``
    is called whenever something is safe that was waited for in the background."""
    copies = wanted_copies(access, view.topic.name)
    if copies.roots != ONLY_MAIN:
        there = places_in(access, copies.roots, places_of(access))
        copied = CopiedSegments(there, copies)
        return ObjectFiles(copied, view, producer_id, note, then, copied)
    segments = access.segments
    if isinstance(segments, ObjectSegments):
        return ObjectFiles(segments, view, producer_id, note, then)
    assert isinstance(access.root, Path)
    return SegmentFiles(access.root, view, producer_id, max_open, note)


class SegmentFiles(OneCopy):
    """Appends entries to the segments of one topic, opening and closing them as needed.

    1. ``append`` writes an entry, to a new segment where the partition has come to another ledger, or where an error
       left the open one broken or closed: that is never written to again.
    2. ``sync`` makes safe what was appended since the last time. An entry may be registered after that, not before.

    What was appended before an error is not vouched for: it is to be appended once more.
    """

    def __init__(
        self,
        root: Path,
        view: TopicView,
        producer_id: int,
        max_open: int,
        note: Callable[[str], object] | None = None,
    ) -> None:
        """Prepare to write; no file is made yet.

        Args:
            root: the folder of the log.
            view: the topic; each partition's open ledger is the one that its segments are named after.
            producer_id: whose segments they are; 0: of a job that has no producer yet.
            max_open: how many files are open at most; the one that was opened first makes room.
            note: is given the path of each file, relative to the root, before it is made.
        """
        self._root = root
        self._topic_id = view.topic.topic_id
        self._producer_id = producer_id
        self._max_open = max_open
        self._note = note
        self._partition_ids = [p.partition_id for p in view.partitions]
        self._ledgers = [p.bounds.log_end.ledger_id for p in view.partitions]
        self._open: dict[_Key, tuple[int, SegmentWriter]] = {}
        """With each segment the ledger that it was opened for."""
        self._unsynced: dict[SegmentWriter, None] = {}

    def append(self, partition: int, base_sequence: int, batch: pa.RecordBatch) -> NewEntry:
        """Write a batch as one entry, which is safe only after ``sync``.

        Raises:
            StorageWriteError: the file can't be made or written.
        """
        segment = self._segment(partition, batch.schema)
        self._unsynced[segment] = None
        partition_id = self._partition_ids[partition]
        at = segment.append(batch)
        return NewEntry(partition_id, base_sequence, batch.num_rows, segment.path, at.offset, at.length, at.crc32c)

    linger_s = 0.0
    """How long to gather before a write, for its own sake."""

    def start(self) -> Upload:
        """Make safe what was appended since the last time, and return what to wait for: nothing."""
        self.sync()
        return Safe()

    def sync(self) -> None:
        """Return when all that was appended since the last sync would survive a power cut.

        A broken segment is left out: whoever wrote to it was not told of an entry.
        """
        for segment in list(self._unsynced):
            if not segment.broken and not segment.closed:
                segment.sync()
            del self._unsynced[segment]

    def follow(self, partition: int, ledger_id: int) -> None:
        """Take notice of the ledger that a partition has come to; its next entry goes to a new segment."""
        self._ledgers[partition] = ledger_id

    def add_partitions(self, view: TopicView) -> None:
        """Take the partitions that were added to the topic; adding them again is harmless."""
        self._ledgers += [p.bounds.log_end.ledger_id for p in view.partitions[len(self._ledgers) :]]
        self._partition_ids += [p.partition_id for p in view.partitions[len(self._partition_ids) :]]

    def close(self) -> None:
        """Close all of them; the next entries go to new ones."""
        for _, segment in self._open.values():
            segment.close()
        self._open = {}
        self._unsynced = {}

    def _segment(self, partition: int, schema: pa.Schema) -> SegmentWriter:
        """Return the segment for a partition's next entry."""
        key = (partition, tuple(schema.names))
        ledger_id = self._ledgers[partition]
        found = self._open.get(key)
        if found is not None:
            opened_for, segment = found
            if opened_for == ledger_id and not segment.broken and not segment.closed:
                return segment
            segment.close()
        elif len(self._open) >= self._max_open:
            self._make_room()
        path = segment_path(self._topic_id, partition, ledger_id, self._producer_id)
        if self._note is not None:
            self._note(path)
        segment = SegmentWriter(self._root, path, schema)
        self._open[key] = (ledger_id, segment)
        return segment

    def _make_room(self) -> None:
        _, oldest = self._open.pop(next(iter(self._open)))
        try:
            if not oldest.broken and not oldest.closed:
                oldest.sync()  # it may have been written to just now
        finally:
            oldest.close()
