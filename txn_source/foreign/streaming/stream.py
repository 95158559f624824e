"""Reading a log that others write batch by batch: what a streaming query asks of its source, without Spark.

1. ``initial`` says where to begin.
2. ``latest`` says how far the next batch goes: up to the level's bounds, as the storage shows them at that moment, or
   to its limits, at a consistent cut where the format can tell one. What one batch ends with is what the next one
   begins with.
3. ``plan`` divides a batch into tasks. It depends on the two offsets alone: below an end everything was decided, or
   had enough copies, when it was handed out.

The log is opened anew for each: its writers roll, trim, clean and move what it consists of.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from txn_source.foreign.foreign_log import ForeignLog, ForeignPartition, Inside, PartitionName
from txn_source.foreign.reading.cut import lowered_to_cut, raised_to_cut, tell
from txn_source.foreign.reading.plan import ForeignPlan, plan_ranges
from txn_source.foreign.reading.ranges import label, positions_of
from txn_source.foreign.reading.request import ForeignRequest, Selection, Side
from txn_source.foreign.reading.source import SourcePartition, look_at, names_of
from txn_source.foreign.streaming.limits import ForeignLimits, admit, too_few
from txn_source.foreign.streaming.offset import ForeignOffset
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    LogNotFoundError,
    SegmentUnreadableError,
    TopicNotFoundError,
    TxnLogError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import LATEST, MessageId, Position, PositionRange

_log = logging.getLogger(__name__)
_LOOKS_MAX = 5
"""How often a stream looks again at files that are moved while it does."""
_MOVED = (DataLossError, SegmentUnreadableError, TopicNotFoundError, LogNotFoundError)
"""What files say that were moved between being listed and being read."""


class ForeignStream:
    """A streaming query's view of a log. It keeps nothing that a restart would miss.

    Args:
        target: the log.
        selection: what is read; topics and partitions that come to match are read from their beginning.
        request: how; ``start`` counts for a new query only.
        limits: of each batch.
        clock: seconds, for ``max_delay_s``.
    """

    def __init__(
        self,
        target: ForeignTarget,
        selection: Selection,
        request: ForeignRequest,
        limits: ForeignLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._rules = target.rules
        self._selection = selection
        self._request = request
        self._level = request.isolation_level
        self._limits = limits
        self._clock = clock
        self._frozen: ForeignOffset | None = None
        self._last_batch_s = clock()
        self._told_before: set[str] = set()
        self._untold: str | None = None
        self._before: dict[PartitionName, ForeignPartition] = {}

    def initial(self) -> ForeignOffset:
        """Return where a new query begins.

        ``latest`` begins at a cut. Positions and times are taken as they were given. Whatever the start, every
        transaction that lies wholly at or above it comes whole in one batch, where the format tells which ones are one.
        """
        log, partitions = self._look(None)
        starts = positions_of(self._rules, partitions, self._request.start, self._request)
        if self._request.start == Side(LATEST):
            starts = self._lowered(partitions, [of.bounds.log_start for of in partitions], starts)
        inside = ((of.name, self._request.start.inside(of.name)) for of in partitions)
        first = self._offset(log, partitions, starts)
        begins = {
            name: begin for name, begin in inside if begin is not None and begin.position == first.positions[name]
        }
        return replace(first, begins={**first.positions, **begins})

    def newest(self) -> ForeignOffset:
        """Return how far the log could be read now."""
        log, partitions = self._look(None)
        starts = [of.bounds.log_start for of in partitions]
        tops = [of.bounds.upper(self._level) for of in partitions]
        return self._offset(log, partitions, self._lowered(partitions, starts, tops))

    def freeze(self) -> None:
        """Never read further than one could now: the target of ``Trigger.AvailableNow``."""
        self._frozen = self.newest()

    def latest(self, start: ForeignOffset, *, limited: bool = True) -> ForeignOffset:
        """Return where the batch that begins at ``start`` ends; ``start`` itself if there is nothing to read yet.

        Raises:
            DataLossError: what comes next has gone, or its topic was deleted.
            InvalidArgumentError: the checkpoint is of another log, or of another isolation level.
        """
        log, partitions = self._look(start)
        self._check_same(log, start)
        starts = self._starts(log, partitions, start)
        tops = [max(at, of.bounds.upper(self._level)) for of, at in zip(partitions, starts, strict=True)]
        if self._frozen is not None:
            targets = [self._frozen.positions.get(of.name, at) for of, at in zip(partitions, starts, strict=True)]
            tops = [max(a, min(top, to)) for a, top, to in zip(starts, tops, targets, strict=True)]
        else:
            tops = self._lowered(partitions, starts, tops)
        read = [of.partition for of in partitions]
        limits = self._limits if limited else ForeignLimits()
        ends, turn = tops, start.turn
        if limits.limited and tops != starts:
            ends, turn = admit(read, starts, tops, limits, turn)
            ends = self._at_cut(partitions, starts, ends, tops)
        if ends == starts:
            return start
        waited = self._clock() - self._last_batch_s >= limits.max_delay_s
        if limits.patient and not waited and self._frozen is None and too_few(read, starts, tops, limits):
            return start
        self._last_batch_s = self._clock()
        begins: dict[PartitionName, Position | MessageId] = start.pinned()
        begins |= {
            of.name: at
            for of, at in zip(partitions, starts, strict=True)
            if of.name not in start.positions or _made_again(of, start)
        }
        end = self._offset(log, partitions, ends)
        kept = {name: at for name, at in start.positions.items() if name not in end.positions}
        topics = {**start.topics, **end.topics}
        traces = {**{name: trace for name, trace in start.traces.items() if name in kept}, **end.traces}
        return replace(end, positions={**kept, **end.positions}, topics=topics, begins=begins, turn=turn, traces=traces)

    def plan(self, start: ForeignOffset, end: ForeignOffset) -> ForeignPlan:
        """Return the tasks of the batch between two offsets; it is read at the level that it was planned with.

        Raises:
            DataLossError: a part of the batch has gone, or its topic was deleted.
            InvalidArgumentError: the offsets are of another log.
        """
        request = self._request if end.level is None else replace(self._request, isolation_level=end.level)
        log, partitions = self._look(end, sorted(end.positions))
        self._check_log(log, end)
        found = {of.name: of for of in partitions}
        wanted = []
        inside = {}
        for name, until in sorted(end.positions.items()):
            begin = end.begins.get(name, start.positions.get(name))
            if isinstance(begin, MessageId):
                inside[name] = Inside(begin)
                begin = begin.position
            of = found.get(name)
            if begin == until:
                continue
            if of is None or _made_again(of, end):
                self._lost(name, f"is gone, and with it {self._shown(begin, until)} of a batch that was planned")
                continue
            of.partition.without_late(end.traces.get(name, {}), until)
            first = of.bounds.log_start if begin is None else begin
            if first < of.bounds.log_start and of.partition.follows(start.traces.get(name, {})):
                first = of.bounds.log_start
            reach = self._there(of, PositionRange(first, max(first, until)), request.isolation_level)
            if not reach.empty:
                wanted.append((of, reach))
        as_of_ends = request.isolation_level is IsolationLevel.READ_UNCOMMITTED
        return plan_ranges(wanted, request, as_of_ends=as_of_ends, inside=inside)

    def _lowered(
        self, partitions: Sequence[SourcePartition], starts: Sequence[Position], ends: Sequence[Position]
    ) -> list[Position]:
        """Return ends lowered to a cut, if the query wants one."""
        if not self._cuts():
            return list(ends)
        ranges, untold = lowered_to_cut(partitions, _ranges(starts, ends))
        if untold != self._untold:
            self._untold = untold
            tell(untold)
        return [of.end for of in ranges]

    def _at_cut(
        self,
        partitions: Sequence[SourcePartition],
        starts: list[Position],
        ends: list[Position],
        tops: list[Position],
    ) -> list[Position]:
        """Return limited ends at a cut; behind one whole transaction at least."""
        if ends == tops or not self._cuts():
            return ends
        lowered = self._lowered(partitions, starts, ends)
        if lowered != starts:
            return lowered
        ranges, _ = raised_to_cut(partitions, _ranges(starts, ends))
        return [min(top, of.end) for of, top in zip(ranges, tops, strict=True)]

    def _cuts(self) -> bool:
        return self._request.consistent_cut and self._level is IsolationLevel.READ_COMMITTED

    def _look(
        self, known: ForeignOffset | None, names: Sequence[PartitionName] | None = None
    ) -> tuple[ForeignLog, list[SourcePartition]]:
        """Return the partitions as they are now; again and again while their files move."""
        for looks in range(_LOOKS_MAX):
            try:
                log = self._target.open()
                there = set(log.partitions())
                taken = self._names(log, known) if names is None else [name for name in names if name in there]
                found = look_at(log, taken, self._before)
                self._before |= {of.name: of.partition for of in found}
                return log, found
            except LogNotFoundError as error:
                if known is not None and known.positions:
                    raise self._gone(known, error) from error
                raise
            except _MOVED as error:
                if looks == _LOOKS_MAX - 1 or (isinstance(error, TopicNotFoundError) and known is None):
                    raise
                if isinstance(error, TopicNotFoundError) and known is not None and self._request.fail_on_data_loss:
                    raise self._gone(known, error) from error
        raise AssertionError("unreachable")

    def _names(self, log: ForeignLog, known: ForeignOffset | None) -> list[PartitionName]:
        """Return what the selection takes; without topics that are gone, if the query goes on without them."""
        try:
            return names_of(log, self._rules, self._selection)
        except TopicNotFoundError:
            if known is None:
                raise
            waits = all(self._waits_for(name, known) for name in known.positions.keys() - set(log.partitions()))
            if self._request.fail_on_data_loss and not waits:
                raise
        there = log.partitions()
        if self._selection.partitions is not None:
            return sorted(set(self._selection.partitions) & set(there))
        found = (self._rules.find(text, there) for text in self._selection.topics or ())
        return list(dict.fromkeys(name for names in found for name in names))

    def _waits_for(self, name: PartitionName, known: ForeignOffset) -> bool:
        """True if a partition that isn't there any more was read to its end, and others may come: that is told."""
        if known.traces.get(name, {}).get("end") != "log":
            return False
        self._tell(f"{label(name)} has no files any more. It was read to its end; the query waits for new ones")
        return True

    def _gone(self, known: ForeignOffset, error: TxnLogError) -> DataLossError:
        return DataLossError(
            f"What the query has read up to {known.text(self._rules)} is gone. {error.fact}",
            "Begin a new query with a new checkpoint, or name other topics.",
        )

    def _check_log(self, log: ForeignLog, offset: ForeignOffset) -> None:
        if offset.log is not None and log.identity is not None and offset.log != log.identity:
            raise InvalidArgumentError(
                f"The checkpoint is of the log with id {offset.log}, and {self._target} is {log.identity}.",
                "Name the folders that the query had, or begin a new query with a new checkpoint.",
            )

    def _check_same(self, log: ForeignLog, start: ForeignOffset) -> None:
        self._check_log(log, start)
        if start.level is not None and start.level is not self._level:
            raise InvalidArgumentError(
                f"The checkpoint is of a query at {start.level.value}, and this one is at {self._level.value}: what"
                " lies below its offsets was seen otherwise.",
                "Keep the isolation level, or begin a new query with a new checkpoint.",
            )

    def _starts(self, log: ForeignLog, partitions: Sequence[SourcePartition], start: ForeignOffset) -> list[Position]:
        """Return where the batch begins on each partition; one that is new begins at its start."""
        read = {of.name for of in partitions}
        there = set(log.partitions())
        for name in sorted(start.positions.keys() - read):
            if name in there:
                self._lost(name, "was read, and the query takes others now; its place is kept")
            elif not self._waits_for(name, start):
                self._lost(name, f"is gone, and with it all from {self._rules.offset(start.positions[name])} on")
        return [self._start(of, start) for of in partitions]

    def _start(self, of: SourcePartition, known: ForeignOffset) -> Position:
        at, first, end = known.positions.get(of.name), of.bounds.log_start, of.bounds.log_end
        if at is None or _made_again(of, known):
            shown = self._rules.offset(first)
            if at is not None:
                self._lost(of.name, f"was deleted and made again: its topic's id is {of.partition.identity} now")
            elif known.positions and isinstance(shown, int) and shown > 0:
                self._lost(of.name, f"is new, and begins at {shown} already: what lay before is gone")
            return first
        trace = known.traces.get(of.name, {})
        for late in of.partition.late(trace, at):
            self._lost(of.name, f"has {late} now, which came when the query was at {self._rules.offset(at)} already")
        if at < first:
            if of.partition.follows(trace):
                return first
            self._lost(of.name, f"begins at {self._rules.offset(first)}: {self._shown(at, first)} is gone")
            return first
        if at > end:
            self._lost(of.name, f"ends at {self._rules.offset(end)}, and was read up to {self._rules.offset(at)}")
        return at

    def _there(self, of: SourcePartition, reach: PositionRange, level: IsolationLevel) -> PositionRange:
        """Return what is there of a range of a batch that was planned."""
        first, upper = of.bounds.log_start, of.bounds.upper(level)
        if reach.start < first:
            gone = self._shown(reach.start, min(first, reach.end))
            self._lost(of.name, f"begins at {self._rules.offset(first)}: {gone} of a batch that was planned is gone")
        if reach.end > upper:
            bound = f"shows {level.value} up to {self._rules.offset(upper)} now"
            self._lost(of.name, f"{bound}, and {self._shown(reach.start, reach.end)} was planned")
        low = max(reach.start, first)
        return PositionRange(low, max(low, min(reach.end, upper)))

    def _shown(self, start: Position | None, end: Position) -> str:
        return f"[{'...' if start is None else self._rules.offset(start)}, {self._rules.offset(end)})"

    def _lost(self, name: PartitionName, happened: str) -> None:
        what = f"{label(name)} {happened}"
        if self._request.fail_on_data_loss:
            raise DataLossError(
                f"{what}.",
                'Begin a new query with a new checkpoint, or set .option("failOnDataLoss", "false") to go on without.',
            )
        self._tell(f"{what} (failOnDataLoss=false)")

    def _tell(self, what: str) -> None:
        if what not in self._told_before:  # a stream that stands still asks again and again
            self._told_before.add(what)
            _log.warning("%s", what)

    def _offset(
        self, log: ForeignLog, partitions: Sequence[SourcePartition], positions: Sequence[Position]
    ) -> ForeignOffset:
        at = {of.name: position for of, position in zip(partitions, positions, strict=True)}
        topics = {of.name.topic: of.partition.identity for of in partitions}
        known = {topic: identity for topic, identity in topics.items() if identity is not None}
        traces = {of.name: trace for of in partitions if (trace := of.partition.trace(at[of.name]))}
        return ForeignOffset(at, self._level, log.identity, known, traces=traces)


def _ranges(starts: Sequence[Position], ends: Sequence[Position]) -> list[PositionRange]:
    return [PositionRange(start, end) for start, end in zip(starts, ends, strict=True)]


def _made_again(of: SourcePartition, known: ForeignOffset) -> bool:
    """True if the topic is another one of that name."""
    before = known.topics.get(of.name.topic)
    return before is not None and of.partition.identity not in (None, before)
