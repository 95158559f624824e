"""Parts of an import that other processes read and write: what they do, and what comes back of it.

A part's entries lie in files that nothing refers to until the importer registers them, in the order of the source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.hot_roots import delete_everywhere
from txn_source.client.writing.batch_buffer import entry_sized
from txn_source.client.writing.entry_files import open_files
from txn_source.client.writing.partitions import Partitions
from txn_source.client.writing.uploads import placed
from txn_source.foreign.foreign_log import TransactionSpans
from txn_source.foreign.target import ForeignTarget
from txn_source.importing.course import Lane
from txn_source.importing.feed import Feed, Run, Written
from txn_source.importing.history import SourcePartition, SourceTopic, is_same
from txn_source.importing.source import open_source, topics_of
from txn_source.model.errors import DataLossError, TopicNotFoundError
from txn_source.model.position import PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.model.visibility import IntArray, needed
from txn_source.storage.schema import conform, deserialize_schema

_PART_BYTES = 32 << 20
_MAX_OPEN = 16


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is imported, as each process can open it; picklable."""

    source: ForeignTarget
    topics: tuple[str, ...]
    metadata: tuple[str, ...]
    typed: bool

    def open(self) -> list[SourceTopic]:
        """Open the topics."""
        return topics_of(open_source(self.source), self.topics, self.metadata, typed=self.typed)


@dataclass(frozen=True, slots=True)
class PartToWrite:
    """A range of a lane, with the transactions in it, and whose entries they become; picklable."""

    topic: int
    partition: int
    identity: str
    of: PositionRange
    spans: TransactionSpans
    groups: IntArray
    target: TopicName
    topic_id: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """What lies below a key, exclusive, and behind the step before it."""

    at: int
    written: tuple[Written, ...]


class WrittenFeed(Feed):
    """A lane that others read. ``next_parts`` takes parts to be written, ``take`` what came of them, in that order."""

    def __init__(self, lane: Lane, fill: Callable[[WrittenFeed], None]) -> None:
        """Begin a lane; ``fill`` is called when nothing is ready, and has some of it written."""
        super().__init__(lane)
        ends = [of.end for of in lane.source.ranges(lane.of, _PART_BYTES)][:-1] if not lane.of.empty else []
        bounds = [lane.of.start, *ends, lane.of.end]
        self._left = deque(PositionRange(*pair) for pair in pairwise(bounds))
        self._ready: deque[WrittenStep] = deque()
        self._fill = fill

    @property
    def is_waiting(self) -> bool:
        """True if something is left to be written, and nothing is ready."""
        return bool(self._left) and not self._ready

    def next_part(self, identity: str, target: TopicName, topic_id: int, producer_id: int) -> PartToWrite | None:
        """Return what is to be written next; None if that is all."""
        if not self._left:
            return None
        lane, of = self.lane, self._left.popleft()
        which = needed(lane.spans.firsts, lane.spans.markers, of.start.key, of.end.key)
        spans = TransactionSpans(lane.spans.names[which], lane.spans.firsts[which], lane.spans.markers[which])
        index = lane.source.index
        return PartToWrite(lane.topic, index, identity, of, spans, lane.groups[which], target, topic_id, producer_id)

    def take(self, steps: Sequence[WrittenStep]) -> None:
        """Take what came of the next part."""
        self._ready.extend(steps)

    def step(self) -> list[Run | Written]:
        if not self._ready:
            self._fill(self)
        step = self._ready.popleft()
        self.at = step.at
        return list(step.written)


def write_part(access: Access, topics: Sequence[SourceTopic], part: PartToWrite) -> list[WrittenStep]:
    """Read a part and write its entries; what was written by then is removed again if that fails.

    Raises:
        DataLossError: the topic was deleted, and made again, since the import was planned.
        TopicNotFoundError: that of the target was.
    """
    source = topics[part.topic]
    if not is_same(source.identity, part.identity):
        raise DataLossError(f"{source.name} was deleted and made again.", "Import it into a topic of another name.")
    [view] = access.metadata.get_view([part.target]).topics
    if view.topic.topic_id != part.topic_id:
        raise TopicNotFoundError(f"Topic {part.target.short!r} was deleted, and made again.", "Run the import again.")
    partition = _partition(source, part.partition)
    schema = deserialize_schema(view.topic.schema)
    feed = Feed(Lane(part.topic, partition, part.of, part.spans, part.groups, part.spans.markers))
    paths: list[str] = []
    files = open_files(access, view.topic, Partitions(view), part.producer_id, _MAX_OPEN, paths.append)
    try:
        steps = []
        while not feed.ended:
            written = []
            for run in _joined(feed.step()):
                batches = entry_sized(conform(run.batch, schema))
                entries = tuple(files.append(part.partition, 0, batch) for batch in batches)
                written.append(Written(run.group, entries))
            steps.append(WrittenStep(feed.at, tuple(written)))
        roots = files.start().wait()
    except BaseException:
        files.close()
        for path in paths:
            delete_everywhere(access, path)  # what stays is garbage for `txnlog gc`
        raise
    files.close()
    return [
        WrittenStep(step.at, tuple(Written(one.group, tuple(placed(one.entries, roots))) for one in step.written))
        for step in steps
    ]


def _partition(source: SourceTopic, index: int) -> SourcePartition:
    return next(partition for partition in source.partitions if partition.index == index)


def _joined(runs: Sequence[Run | Written]) -> list[Run]:
    """Return runs of which none has the group, and the columns, of the one before it."""
    joined: list[tuple[int, list[pa.RecordBatch]]] = []
    for run in runs:
        assert isinstance(run, Run)
        if joined and joined[-1][0] == run.group and joined[-1][1][0].schema.equals(run.batch.schema):
            joined[-1][1].append(run.batch)
        else:
            joined.append((run.group, [run.batch]))
    return [Run(group, batches[0] if len(batches) == 1 else pa.concat_batches(batches)) for group, batches in joined]
