"""Which part of each partition an import takes, and the transactions in it, over all partitions."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from txn_source.foreign.foreign_log import TransactionSpans
from txn_source.foreign.reading.cut import lowered
from txn_source.foreign.reading.topics import SeenPartition
from txn_source.importing.history import ABORTED, COMMITTED, UNDECIDED, Parts, SourcePartition
from txn_source.model.position import Position, PositionRange
from txn_source.model.visibility import IntArray
from txn_source.reading.ranges import ending

_ENDLESS = (1 << 63) - 1


class Undecided(enum.Enum):
    """What to do with what isn't decided in the source."""

    LEAVE = "leave"
    """Take what lies below the last stable position, lowered to a cut if that is of several partitions."""
    KEEP = "keep"
    """Take it, and keep it open in the target until a later run brings the rest."""
    ABORT = "abort"
    """Take it, and abort it."""


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
    undecided: Undecided = Undecided.LEAVE,
    traces: Mapping[tuple[int, int], Mapping[str, Any]] | None = None,
) -> Course:
    """Find out what to take of partitions.

    Args:
        sources: partitions, each with the number of its topic.
        starts: by topic and partition where to go on; others begin at their log's start.
        undecided: what to do with that.
        traces: by topic and partition what was kept with where to go on.

    Raises:
        DataLossError: a partition begins above where to go on, or something came later below.
        InvalidArgumentError: it ends below.
    """
    ranges, found = [], []
    for topic, source in sources:
        bounds = source.partition.bounds()
        start = bounds.log_start
        if (key := starts.get((topic, source.index))) is not None:
            start = source.check((traces or {}).get((topic, source.index), {}), Position.from_key(key))
        end = bounds.last_stable if undecided is Undecided.LEAVE else bounds.high_watermark
        ranges.append(PositionRange(start, max(start, end)))
        found.append(source.parts(PositionRange(start, max(start, bounds.high_watermark))))
    groups = _groups(found)
    committed = np.zeros(max((int(of.max()) + 1 for of in groups if len(of)), default=0), np.bool_)
    for parts, of in zip(found, groups, strict=True):
        committed[of[parts.states == COMMITTED]] = True
    if undecided is Undecided.LEAVE and len(sources) > 1:
        seen = [SeenPartition(of.partition.name, of.partition.bounds(), of.partition, str) for _, of in sources]
        ranges = ending(ranges, lowered(seen, ranges)[0])
    lanes = []
    for (topic, source), reach, parts, group in zip(sources, ranges, found, groups, strict=True):
        ends = np.minimum(parts.spans.markers, reach.end.key)
        if undecided is not Undecided.ABORT:
            ends[parts.states == UNDECIDED] = _ENDLESS
        lanes.append(Lane(topic, source, reach, parts.spans, group, ends))
    return Course(lanes, committed.tolist())


def _groups(found: Sequence[Parts]) -> list[IntArray]:
    """Number the transactions over all partitions.

    One that the format doesn't name is one of its partition only; so is one that is committed here and aborted there.
    """
    states: dict[tuple[int, int], set[int]] = {}
    for parts in found:
        for id_, state in zip(parts.ids, parts.states.tolist(), strict=True):
            if id_ is not None:
                states.setdefault(id_, set()).add(state)
    numbers: dict[tuple[int, ...], int] = {}
    groups = []
    for at, parts in enumerate(found):
        of = []
        for id_, first in zip(parts.ids, parts.spans.firsts.tolist(), strict=True):
            alone = id_ is None or {COMMITTED, ABORTED} <= states[id_]
            of.append(numbers.setdefault((at, first) if id_ is None or alone else (*id_, 0), len(numbers)))
        groups.append(np.array(of, np.int64))
    return groups
