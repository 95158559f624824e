"""Which part of each partition an import takes, and the transactions in it, over all partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from txn_source.foreign.foreign_log import TransactionSpans
from txn_source.importing.history import COMMITTED, UNDECIDED, Parts, SourcePartition
from txn_source.model.errors import DataLossError, InvalidArgumentError
from txn_source.model.position import Position, PositionRange
from txn_source.model.visibility import IntArray

_ENDLESS = (1 << 63) - 1


@dataclass(slots=True)
class Lane:
    """A partition: what is taken of it, and its transactions by their index in the course."""

    topic: int
    source: SourcePartition
    of: PositionRange
    spans: TransactionSpans
    groups: IntArray
    """The transaction of each span."""
    ends: IntArray
    """Of the spans: from this key on nothing of the transaction comes any more in this run."""


@dataclass(frozen=True, slots=True)
class Course:
    """All that an import takes; ``committed`` says how each transaction ends."""

    lanes: list[Lane]
    committed: list[bool]

    @property
    def transactions(self) -> int:
        """How many transactions have something in what is taken."""
        taken = [lane.groups[lane.spans.firsts < lane.of.end.key] for lane in self.lanes]
        return len(np.unique(np.concatenate(taken))) if taken else 0


def chart(
    sources: Sequence[tuple[int, SourcePartition]],
    starts: Mapping[tuple[int, int], int],
    *,
    abort_undecided: bool = False,
) -> Course:
    """Find out what to take of partitions.

    It ends where everything is decided, lowered to a cut: a committed transaction is taken wholly or not at all.

    Args:
        sources: partitions, each with the number of its topic.
        starts: by topic and partition where to go on; others begin at their log's start.
        abort_undecided: take all up to the high watermark; what is undecided is aborted.

    Raises:
        DataLossError: a partition begins above where to go on.
        InvalidArgumentError: it ends below.
    """
    ranges, found = [], []
    for topic, source in sources:
        bounds = source.bounds()
        start = bounds.log_start
        if (key := starts.get((topic, source.index))) is not None:
            start = _checked(Position.from_key(key), source.index, bounds.log_start, bounds.log_end)
        end = bounds.high_watermark if abort_undecided else bounds.last_stable
        ranges.append([start, max(start, end)])
        found.append(source.parts(PositionRange(start, max(start, bounds.high_watermark))))
    groups = _groups(found)
    committed = np.zeros(max((int(of.max()) + 1 for of in groups if len(of)), default=0), np.bool_)
    for parts, of in zip(found, groups, strict=True):
        committed[of[parts.states == COMMITTED]] = True
    if not abort_undecided:
        _lower(ranges, found, groups, committed)
    lanes = []
    for (topic, source), limits, parts, group in zip(sources, ranges, found, groups, strict=True):
        ends = np.minimum(parts.spans.markers, limits[1].key)
        if not abort_undecided:
            ends[parts.states == UNDECIDED] = _ENDLESS
        lanes.append(Lane(topic, source, PositionRange(*limits), parts.spans, group, ends))
    return Course(lanes, committed.tolist())


def _groups(found: Sequence[Parts]) -> list[IntArray]:
    """Number the transactions over all partitions.

    Ids of a producer of which one comes twice on a partition name nothing beyond it: of Kafka's these are of the time
    before each transaction had an epoch of its own. Nor does one that is committed here and aborted there.
    """
    vague: set[int] = set()
    states: dict[tuple[int, int], int] = {}
    torn: set[tuple[int, int]] = set()
    for parts in found:
        vague |= {id_[0] for id_, count in Counter(parts.ids).items() if count > 1}
        for id_, state in zip(parts.ids, parts.states.tolist(), strict=True):
            if state != UNDECIDED and states.setdefault(id_, state) != state:
                torn.add(id_)
    numbers: dict[tuple[int, ...], int] = {}
    groups = []
    for at, parts in enumerate(found):
        of = []
        for id_, first in zip(parts.ids, parts.spans.firsts.tolist(), strict=True):
            name = (*id_, at, first) if id_[0] in vague or id_ in torn else id_
            of.append(numbers.setdefault(name, len(numbers)))
        groups.append(np.array(of, np.int64))
    return groups


def _checked(start: Position, partition: int, log_start: Position, log_end: Position) -> Position:
    if start < log_start:
        raise DataLossError(
            f"Partition {partition} begins at {log_start}, and its import had come to {start}: what lies between was"
            " deleted before it was imported.",
            "Restore it in the source, or delete the topic and import it again.",
        )
    if start > log_end:
        raise InvalidArgumentError(
            f"Partition {partition} ends at {log_end}, and its import had come to {start}.",
            "Import from the same log, or from a copy that isn't older.",
        )
    return start


def _lower(
    ranges: list[list[Position]], found: Sequence[Parts], groups: Sequence[IntArray], committed: np.ndarray
) -> None:
    """Lower ends until each committed transaction lies wholly below or wholly above them."""
    while True:
        below, above = np.zeros(len(committed), np.bool_), np.zeros(len(committed), np.bool_)
        for (_, end), parts, of in zip(ranges, found, groups, strict=True):
            lasts = np.where(parts.states == UNDECIDED, _ENDLESS, parts.lasts)
            below[of[parts.spans.firsts < end.key]] = True
            above[of[lasts >= end.key]] = True
        torn = committed & below & above
        changed = False
        for limits, parts, of in zip(ranges, found, groups, strict=True):
            firsts = parts.spans.firsts[torn[of]]
            if len(firsts) and (first := int(firsts.min())) < limits[1].key:
                lowered = max(limits[0], Position.from_key(first))
                changed |= lowered < limits[1]
                limits[1] = lowered
        if not changed:
            return
