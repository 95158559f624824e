"""Runs an import: feeds are read side by side, and what was read is registered batch by batch.

A transaction is begun with its first entry and ended when all of its partitions have come past its end. Whoever goes
on after a stop finds the ones that were open there, with how each of them ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from txn_source.client.access import Access
from txn_source.importing.batch_writer import BatchWriter
from txn_source.importing.course import Course, Lane
from txn_source.importing.feed import Feed, Run
from txn_source.importing.history import SourceTopic
from txn_source.importing.target_topics import OpenPart, Progress, TargetTopic
from txn_source.model.errors import TransactionEndedError
from txn_source.model.imported import TxnRef
from txn_source.model.position import Position
from txn_source.model.topic import TopicView
from txn_source.model.transaction import MAX_TIMEOUT_MS, TxnId

BATCH_ENDS = 2_000
"""A batch is registered when so many transactions end with it."""

LANES_AT_ONCE = 32
"""So many partitions are read side by side: what was read of each is in memory."""


FeedsOf = Callable[[Sequence[Lane], BatchWriter], Sequence[Feed]]


class _Ends:
    """Tells of each transaction when its last partition has come past its end."""

    def __init__(self, course: Course) -> None:
        count = len(course.committed)
        self._left = np.zeros(count, np.int64)
        self._orders = []
        for lane in course.lanes:
            taken = np.flatnonzero(lane.spans.firsts < lane.of.end.key)
            np.add.at(self._left, lane.groups[taken], 1)
            order = taken[np.argsort(lane.ends[taken], kind="stable")]
            self._orders.append((lane.ends[order], lane.groups[order]))
        self._at = [0] * len(course.lanes)

    def advance(self, lane: int, key: int) -> list[int]:
        """Return the transactions that are over now that a lane has come to a key, exclusive."""
        ends, groups = self._orders[lane]
        begin = self._at[lane]
        self._at[lane] = end = int(np.searchsorted(ends, key, side="right"))
        over = []
        for group in groups[begin:end].tolist():
            self._left[group] -= 1
            if not self._left[group]:
                over.append(group)
        return over


class Importer:
    """One run of an import."""

    def __init__(
        self,
        access: Access,
        sources: Sequence[SourceTopic],
        targets: Sequence[TargetTopic],
        views: Sequence[TopicView],
        course: Course,
        told: Callable[[int], object] | None = None,
        feeds_of: FeedsOf | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            access: the log to import to.
            sources: the topics.
            targets: what is known of each in that log.
            views: those, made if they weren't there.
            course: what is imported.
            told: is given, after each batch, how many messages have been imported.
            feeds_of: makes the feeds of all lanes, if they are to be read elsewhere.
        """
        self._stub = access.metadata
        self._sources, self._course, self._told = sources, course, told
        self._topic_names = [target.name.short for target in targets]
        self._texts = [target.text for target in targets]
        self._names, self._gone = found_again(course, [target.progress for target in targets])
        self._ends = _Ends(course)
        self._writer = BatchWriter(access, views)
        self._feeds_of = feeds_of
        self._rows = 0

    def run(self) -> int:
        """Import all, and return how many messages that were."""
        over: list[int] = []
        try:
            lanes = self._course.lanes
            feeds = [Feed(lane) for lane in lanes] if self._feeds_of is None else self._feeds_of(lanes, self._writer)
            for number, feed in enumerate(feeds):
                over += self._ends.advance(number, feed.at)
            while waiting := [number for number, feed in enumerate(feeds) if not feed.ended]:
                number = min(waiting[:LANES_AT_ONCE], key=lambda at: feeds[at].fraction)
                feed = feeds[number]
                topic, partition = feed.lane.topic, feed.lane.source.index
                for run in feed.step():
                    if isinstance(run, Run):
                        self._writer.add(topic, partition, run.group, run.batch)
                    elif run.entries:
                        self._writer.add_written(topic, partition, run.group, run.entries)
                over += self._ends.advance(number, feed.at)
                if self._writer.is_full or len(over) >= BATCH_ENDS:
                    self._register(feeds, over)
                    over = []
            self._register(feeds, over)
        finally:
            self._writer.close()
        return self._rows

    def _register(self, feeds: Sequence[Feed], over: Sequence[int]) -> None:
        """Register what waits, with the ends of the transactions that are over."""
        ended = set(over)
        waiting = self._writer.groups
        begun = [group for group in over if group in waiting and group not in self._names]
        txns: dict[int, TxnRef] = {group: number for number, group in enumerate(begun)}
        for group in waiting - ended - self._names.keys():
            self._names[group] = self._stub.begin_transaction(MAX_TIMEOUT_MS)
        txns.update(self._names)
        committed = self._course.committed
        ends = [(txns[group], committed[group]) for group in over if group in txns]
        ends += self._gone
        opened = {group: txn for group, txn in self._names.items() if group not in ended}
        progress = self._progress(feeds, opened)
        if progress == self._texts and not self._writer.rows and not ends:
            return
        rows = self._writer.rows
        try:
            self._writer.register(txns, len(begun), ends, list(opened.values()), self._texts, progress)
        except TransactionEndedError as error:
            raise TransactionEndedError(
                f"A transaction that was open where the import into {', '.join(self._topic_names)} had stopped has"
                f" ended: {error.fact}",
                "The import can't go on as its source does: delete the topics, and import them again.",
            ) from None
        self._names, self._gone, self._texts = opened, [], progress
        self._rows += rows
        if self._told is not None:
            self._told(self._rows)

    def _progress(self, feeds: Sequence[Feed], opened: Mapping[int, TxnId]) -> list[str]:
        together = tuple(source.identity for source in self._sources)
        positions: list[dict[int, int]] = [{} for _ in self._sources]
        traces: list[dict[int, Mapping[str, Any]]] = [{} for _ in self._sources]
        parts: list[list[OpenPart]] = [[] for _ in self._sources]
        groups = np.array(sorted(opened), np.int64)
        for feed in feeds:
            lane = feed.lane
            positions[lane.topic][lane.source.index] = feed.at
            traces[lane.topic][lane.source.index] = lane.source.partition.trace(Position.from_key(feed.at))
            to_come = np.flatnonzero(np.isin(lane.groups, groups) & (lane.ends > feed.at))
            for span in to_come.tolist():
                group, name, first = (int(of[span]) for of in (lane.groups, lane.spans.names, lane.spans.firsts))
                part = OpenPart(lane.source.index, name, first, opened[group], self._course.committed[group])
                parts[lane.topic].append(part)
        return [
            Progress(source.identity, of_topic, tuple(opened_there), together, of_traces).text
            for source, of_topic, opened_there, of_traces in zip(self._sources, positions, parts, traces, strict=True)
        ]


def found_again(
    course: Course, progress: Sequence[Progress | None]
) -> tuple[dict[int, TxnId], list[tuple[TxnId, bool]]]:
    """Find what was open where an import stopped.

    Returns the target's transactions by their numbers in the course, and those of which nothing is left in the source,
    with how they end. What was one transaction in the target is made one in the course.
    """
    numbers: dict[TxnId, int] = {}
    outcomes: dict[TxnId, bool] = {}
    for topic, told in enumerate(progress):
        for part in () if told is None else told.opened:
            outcomes[part.txn] = part.committed
            for lane in course.lanes:
                if (lane.topic, lane.source.index) == (topic, part.partition):
                    _join(course, lane, part, numbers)
    names = {number: txn for txn, number in numbers.items()}
    return names, [(txn, committed) for txn, committed in outcomes.items() if txn not in numbers]


def _join(course: Course, lane: Lane, part: OpenPart, numbers: dict[TxnId, int]) -> None:
    start = lane.of.start.key
    spans = lane.spans
    same = (spans.firsts == part.first) if part.first >= start else (spans.firsts < start) & (spans.markers >= start)
    for span in np.flatnonzero((spans.names == part.name) & same).tolist():
        group = int(lane.groups[span])
        known = numbers.setdefault(part.txn, group)
        if known != group:
            for other in course.lanes:
                other.groups[other.groups == group] = known
