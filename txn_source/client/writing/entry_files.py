"""Where the entries of a writer go: to files below a folder, or to objects in one or several roots."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.hot_roots import places_in, places_of
from txn_source.client.writing.copies import Copies
from txn_source.client.writing.object_files import ObjectFiles
from txn_source.client.writing.partitions import Partitions
from txn_source.client.writing.segment_files import SegmentFiles
from txn_source.client.writing.uploads import Put, Upload
from txn_source.model.entry import NewEntry
from txn_source.model.roots import ONE_COPY, ONLY_MAIN, HotCopies, hot_copies
from txn_source.model.topic import Topic
from txn_source.model.topic_name import TopicName
from txn_source.storage.segment_store import ObjectSegments


class EntryFiles(Protocol):
    """``SegmentFiles`` or ``ObjectFiles``."""

    copies: HotCopies
    """Where entries are to lie, and how many copies acknowledge them."""

    @property
    def linger_s(self) -> float:
        """How long to gather before a write, for its own sake."""

    def append(self, partition: int, base_sequence: int, batch: pa.RecordBatch) -> NewEntry:
        """Write a batch as one entry. It may be registered when the upload that ``start`` returns is safe."""

    def start(self) -> Upload:
        """Begin to make safe what was appended since the last time; return what to wait for."""

    def close(self) -> None:
        """Let go of what is open; the next entries go to new files. What wasn't started is never registered."""


def wanted_copies(access: Access, topic: TopicName) -> HotCopies:
    """Return where a topic's entries are to lie; a log with no root but its own isn't asked."""
    if not access.metadata.roots:
        return ONE_COPY
    in_force = access.metadata.policies_in_force(topic)
    names, acknowledge = in_force["hot_copies"].value, in_force["acknowledge_copies"].value
    return hot_copies(names, acknowledge, access.metadata.roots)


def open_files(
    access: Access,
    topic: Topic,
    partitions: Partitions,
    producer_id: int,
    max_open: int,
    note: Callable[[str], object] = lambda _: None,
    then: Callable[[], None] = lambda: None,
) -> EntryFiles:
    """Return where entries of a topic go in a log.

    Args:
        access: the log.
        topic: the topic.
        partitions: its partitions; segment files are named after the open ledger of each.
        producer_id: whose segments they are; 0: of a job that has no producer yet.
        max_open: how many files are open at most; the one that was opened first makes room.
        note: is given the path of each file, relative to the root, before anything lies there.
        then: is called, in another thread, whenever something is safe that was waited for in the background.
    """
    copies = wanted_copies(access, topic.name)
    if copies.roots != ONLY_MAIN:
        several = Copies(places_in(access, copies.roots, places_of(access)), copies)
        return ObjectFiles(several.put, copies, topic.topic_id, partitions, producer_id, note, then)
    segments = access.segments
    if isinstance(segments, ObjectSegments):
        put = partial(Put, segments.put)
        return ObjectFiles(put, copies, topic.topic_id, partitions, producer_id, note, then)
    assert isinstance(access.root, Path)
    return SegmentFiles(access.root, topic.topic_id, partitions, producer_id, max_open, note)
