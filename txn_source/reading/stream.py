"""Reading a log batch by batch: the calls of a streaming query, without Spark.

1. ``initial`` returns the offset of a new query's start.
2. ``latest`` returns the end of the next batch: the level's bounds or the batch's limits, lowered to a consistent cut
   as far as the log tells one. The next batch starts there, so batches cut no transaction in two either.
3. ``plan`` divides a batch into tasks. The result depends on the two offsets alone, also when it is repeated.

A ``Guard`` has further rules of a stream, such as those of a subscription.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, Protocol

import pyarrow as pa

from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    LogNotFoundError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
    TxnLogError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import ALL_DECISIONS
from txn_source.model.position import LATEST, MessageId, Position, PositionRange
from txn_source.reading.limits import StreamLimits, admit, too_few
from txn_source.reading.log_source import Cutting, L, LogSource, Rows, lost
from txn_source.reading.places import AsOf, AtTime, Inside, Kept, Name, Place, Side, by_topic
from txn_source.reading.plan import ReadPlan
from txn_source.reading.ranges import ending, positions_of, tell
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream_offset import StreamOffset, position_of

_log = logging.getLogger(__name__)
_LOOKS_MAX = 5
"""Looks at most, if topics are trimmed or deleted meanwhile."""
_ALL_FROM_HERE = Side(LATEST)


class Guard(Protocol):
    """Rules of a stream beyond its offsets."""

    def initial(self, first: Callable[[], StreamOffset]) -> StreamOffset:
        """Return the start of a new query: that of its options, which ``first`` returns, or another one."""

    def begin(self, start: StreamOffset) -> StreamOffset:
        """Return the start of the batch after an offset: the offset itself, or where the query was moved."""

    def check_level(self, look: Any, start: StreamOffset, starts: Sequence[Position]) -> None:
        """Raise INVALID_ARGUMENT if the stream can't go on from ``start`` at its level; ``starts`` are its positions on
        the look's partitions."""

    def marked(self, newest: StreamOffset) -> StreamOffset:
        """Return the newest offset in the form that a batch which ends there would have."""

    def waiting(self, look: Any) -> None:
        """Handle that there is nothing to read yet."""

    def commit(self, end: StreamOffset) -> None:
        """Handle that everything before an offset was processed."""


class KeepsLevel:
    """The guard of streams over others' logs: a query keeps the level that it began with."""

    def __init__(self, level: IsolationLevel) -> None:
        self._level = level

    def initial(self, first: Callable[[], StreamOffset]) -> StreamOffset:
        """Return the start of the options."""
        return first()

    def begin(self, start: StreamOffset) -> StreamOffset:
        """Return the offset."""
        return start

    def check_level(self, look: Any, start: StreamOffset, starts: Sequence[Position]) -> None:
        """Refuse another level."""
        if start.level not in (None, self._level):
            raise InvalidArgumentError(
                f"The checkpoint is of a query at {start.level}, and this one is at {self._level}: the two show other"
                " rows below its offsets.",
                "Keep the isolation level, or begin a new query with a new checkpoint.",
            )

    def marked(self, newest: StreamOffset) -> StreamOffset:
        """Return the offset."""
        return newest

    def waiting(self, look: Any) -> None:
        """Do nothing."""

    def commit(self, end: StreamOffset) -> None:
        """Do nothing: the checkpoint has the query's progress."""


class Stream(Generic[L]):
    """A streaming query's view of a log. A restart loses nothing that it keeps.

    Args:
        source: the log.
        selection: its topics; topics and partitions that match later are read from their start.
        request: how to read them; ``start`` counts for a new query only.
        limits: the limits of each batch.
        guard: further rules; None: the query keeps its level.
        clock: returns seconds, for ``max_delay_s``.
    """

    def __init__(
        self,
        source: LogSource[L],
        selection: Selection,
        request: ReadRequest,
        limits: StreamLimits,
        guard: Guard | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._selection = selection
        self._request = request
        self._level = request.isolation_level
        self._limits = limits
        self._guard = guard or KeepsLevel(self._level)
        self._clock = clock
        self._names = source.describe()
        self._frozen: StreamOffset | None = None
        self._last_batch_s = clock()
        self._told: set[str] = set()
        self._untold: str | None = None

    def initial(self) -> StreamOffset:
        """Return the start of a new query.

        ``latest`` starts at a cut. Positions and times are taken as they are given, also in the middle of a
        transaction, whose rest is then shown. Each transaction that lies wholly at or above the start comes whole in
        one batch, as far as the log tells which entries belong to one transaction.
        """
        return self._guard.initial(self._first)

    def newest(self, look: L | None = None) -> StreamOffset:
        """Return the offset up to which the log can be read now, or could be at a look that ``step`` returned."""
        for _ in range(_LOOKS_MAX):
            with suppress(DataLossError, TopicNotFoundError):  # nothing is read here: look again
                return self._newest(self._look(None) if look is None else look)
            look = None
        return self._newest(self._look(None))

    def freeze(self) -> None:
        """Never read beyond the present end: the target of ``Trigger.AvailableNow``."""
        self._frozen = self.newest()

    def latest(self, start: StreamOffset, *, limited: bool = True) -> StreamOffset:
        """Return the end of the batch that starts at ``start``; ``start`` itself if there is nothing to read yet.

        The end follows from ``start``, the limits and the log alone; with a least number of messages, time decides
        whether there is a batch now.

        Raises:
            DataLossError: the next messages are gone, or their topic was deleted.
            InvalidArgumentError: the checkpoint is of another log, or of a level at which the stream can't go on.
        """
        return self.step(start, limited=limited)[0]

    def step(self, start: StreamOffset, *, limited: bool) -> tuple[StreamOffset, L]:
        """Return what ``latest`` returns, and the look that has the end."""
        for _ in range(0 if self._request.fail_on_data_loss else _LOOKS_MAX):
            try:
                return self._latest(start, limited=limited)
            except (DataLossError, TopicNotFoundError) as error:
                _log.info("the batch is planned again: %s", error.fact)
        try:
            return self._latest(start, limited=limited)
        except TopicNotFoundError as error:
            raise self._gone(start, error) from error

    def plan(self, start: StreamOffset, end: StreamOffset, look: L | None = None) -> ReadPlan:
        """Return the tasks of the batch between two offsets. ``look``: one that has the end; None: look now.

        The batch is read at the level of its offset, or at the stream's level if the offset has none.

        Raises:
            DataLossError: a part of the batch is gone, its topic was deleted, or the query no longer takes the topic.
            InvalidArgumentError: the offsets are of another log; or an offset without a level can only be one of
                read_uncommitted.
        """
        request = self._request if end.level is None else replace(self._request, isolation_level=end.level)
        if look is None:
            look = self._look(end)
            self._check_log(look, end)
        found = {of.name: of for of in look.partitions}
        wanted: list[tuple[Any, PositionRange]] = []
        inside: dict[Name, Inside] = {}
        for name, until in sorted(end.positions.items()):
            begin = end.begins.get(name, start.next(name))
            first = None if begin is None else position_of(begin)
            if (at := end.inside.get(name)) is not None and at != start.next(name):
                raise InvalidArgumentError(
                    f"The batch ends inside an entry, at {at} of {self._names.label(name)}: it was read in real time.",
                    'Finish it as it began, with .trigger(realTime="5 seconds"); then change the trigger.',
                )
            if first == until:
                continue
            identity = end.topics.get(name[0])
            if (of := found.get(name)) is None:
                self._unread(name, self._between(first, until))
                continue
            if end.level is None and request.isolation_level is IsolationLevel.READ_COMMITTED:
                self._check_decided(of, until)
            before = Kept(first, identity, start.traces.get(name, {}))
            reach, gone = of.again(before, Kept(until, identity, end.traces.get(name, {})), request.isolation_level)
            for what in gone:
                self._lost(name, what)
            if not reach.empty:
                wanted.append((of, reach))
            if isinstance(begin, MessageId):
                inside[name] = Inside(begin)
        # A batch of read_uncommitted ends above transactions that its count of decisions doesn't have yet.
        decisions = look.decisions if end.level is None else end.decisions
        as_of_ends = request.isolation_level is IsolationLevel.READ_UNCOMMITTED
        tasks = self._source.split(look, wanted, request, inside=inside, as_of_ends=as_of_ends)
        return ReadPlan(tasks, [(of.name, reach) for of, reach in wanted], request.pinned(), decisions, look)

    def followed(self, start: StreamOffset) -> tuple[StreamOffset, StreamOffset]:
        """Return the start of a real-time batch, new partitions included, and the offset of partitions that the
        query no longer takes, whose positions later offsets keep."""
        look, others, starts = self._ready(start, start)
        begins = _begins(look, starts, start, moved=False)
        inside = {name: at for name, at in start.inside.items() if start.next(name) == begins.get(name)}
        begin = replace(self._offset(look, starts), decisions=start.decisions, begins=begins, inside=inside)
        return begin, start.only(others)

    def commit(self, end: StreamOffset) -> None:
        """Handle that a batch was processed."""
        self._guard.commit(end)

    def _first(self) -> StreamOffset:
        look = self._source.look(self._selection)
        starts = positions_of(self._source, look, self._request.start, self._request)
        if self._request.start == _ALL_FROM_HERE:
            starts = self._lowered(look, [of.bounds.log_start for of in look.partitions], starts)
        begins: dict[Name, Place] = {}
        for of, at in zip(look.partitions, starts, strict=True):
            first = self._request.start.inside(of.name)
            begins[of.name] = first if first is not None and first.position == at else at
        return replace(self._offset(look, starts), begins=begins)

    def _newest(self, look: L) -> StreamOffset:
        tops = self._tops(look, [of.bounds.log_start for of in look.partitions])
        return self._guard.marked(self._offset(look, tops))

    def _latest(self, start: StreamOffset, *, limited: bool) -> tuple[StreamOffset, L]:
        try:
            begin = self._guard.begin(start)
        except (TopicNotFoundError, SubscriptionNotFoundError):
            self._look(start)  # of a topic that is gone it has more to say
            raise
        look, others, starts = self._ready(start, begin)
        tops = self._tops(look, starts)
        limits = self._limits if limited else StreamLimits()
        ends, turn = tops, begin.turn
        if limits.limited and tops != starts:
            ends, turn = admit(self._rows, look.partitions, starts, tops, limits, turn)
            ends = self._at_cut(look, starts, ends, tops)
        # A move of the query is recorded at once, also by a batch without messages.
        if begin is start and (ends == starts or self._waits_for_more(look, starts, tops, limits)):
            self._guard.waiting(look)
            return start, look
        self._last_batch_s = self._clock()
        end = self._offset(look, ends)
        end = replace(
            end,
            positions={**{name: begin.positions[name] for name in others}, **end.positions},
            begins=_begins(look, starts, begin, moved=begin is not start),
            turn=turn,
            epoch=begin.epoch,
            subscription=begin.subscription,
            topics={**start.topics, **end.topics},
            traces={**{name: trace for name, trace in start.traces.items() if name in others}, **end.traces},
        )
        return end, look

    def _ready(self, start: StreamOffset, begin: StreamOffset) -> tuple[L, list[Name], list[Position]]:
        """Return a look, the partitions that the query no longer takes, and the starts of the look's partitions.

        ``begin`` is ``start``, or the offset to which the guard moved the query.
        """
        look = self._look(start)
        self._check_log(look, start)
        others = self._others(look, begin)
        starts = self._starts(look, begin)
        if begin is start:
            self._guard.check_level(look, start, starts)
        return look, others, starts

    @property
    def _rows(self) -> Rows:
        return self._source.read(pa.schema([]), self._request, ALL_DECISIONS)

    def _tops(self, look: L, starts: Sequence[Position]) -> list[Position]:
        """Return the end up to which each partition can be read: a cut, or the frozen target."""
        tops = [max(at, of.bounds.upper(self._level)) for of, at in zip(look.partitions, starts, strict=True)]
        if self._frozen is None:
            return self._lowered(look, starts, tops)
        targets = (self._frozen.positions.get(of.name) for of in look.partitions)
        return [
            start if target is None else max(start, min(top, target))
            for start, top, target in zip(starts, tops, targets, strict=True)
        ]

    def _lowered(
        self, look: L, starts: Sequence[Position], ends: Sequence[Position], *, from_cut: bool = False
    ) -> list[Position]:
        """Return ends lowered to a cut, if the query wants one; log a promise that can't be kept once."""
        if not self._request.cuts:
            return list(ends)
        found = self._source.cut(look, ending(starts, ends), Cutting(from_cut=from_cut))
        if found.untold != self._untold:
            self._untold = found.untold
            tell(found.untold)
        return found.ends

    def _at_cut(self, look: L, starts: list[Position], ends: list[Position], tops: list[Position]) -> list[Position]:
        """Return limited ends moved to a cut, behind one whole transaction at least."""
        if ends == tops or not self._request.cuts:
            return ends
        lowered = self._lowered(look, starts, ends, from_cut=True)
        if lowered != starts:
            return lowered
        raised = self._source.cut(look, ending(starts, ends), Cutting(upward=True)).ends
        return [min(top, end) for top, end in zip(tops, raised, strict=True)]

    def _waits_for_more(self, look: L, starts: list[Position], tops: list[Position], limits: StreamLimits) -> bool:
        """True if the batch must wait for more messages; those beyond its limit count as well."""
        if not limits.patient or self._frozen is not None:
            return False
        if self._clock() - self._last_batch_s >= limits.max_delay_s:
            return False
        return too_few(self._rows, look.partitions, starts, tops, limits)

    def _look(self, known: StreamOffset | None) -> L:
        """Return the partitions that the query takes now; ``known`` is an offset that it has reached.

        Raises:
            TopicNotFoundError: a topic doesn't exist, or none matches the pattern.
            DataLossError: likewise, and the query has read from it. ``failOnDataLoss=false`` goes on without it.
        """
        try:
            return self._source.look(self._selection)
        except LogNotFoundError as error:
            if known is None or not known.positions:
                raise
            raise self._gone(known, error) from error
        except TopicNotFoundError as error:
            if self._request.fail_on_data_loss and (known is None or not known.positions):
                raise
            look = self._source.look(replace(self._selection, if_there=True))
            if self._request.fail_on_data_loss and known is not None:
                missing = known.positions.keys() - {of.name for of in look.partitions}
                if not missing or not all(self._waits_for(name, known) for name in missing):
                    raise self._gone(known, error) from error
            return look

    def _only(self, names: Any) -> L:
        """Return a look at those of some partitions that exist."""
        return self._source.look(
            Selection(partitions=tuple(sorted(names)), columns=self._selection.columns, if_there=True)
        )

    def _starts(self, look: L, start: StreamOffset) -> list[Position]:
        """Return the start of the batch on each partition; a new one starts at its log's start."""
        kept: dict[Name, Position | AtTime | AsOf | Kept] = {
            of.name: Kept(start.positions.get(of.name), start.topics.get(of.name[0]), start.traces.get(of.name, {}))
            for of in look.partitions
            if start.positions
        }
        found = self._source.resolve(look, kept, self._level) if kept else {}
        starts = []
        for of in look.partitions:
            at = found.get(of.name)
            if at is not None and at.lost is not None:
                self._tell_lost(at.lost)
            starts.append(of.bounds.log_start if at is None else at.position)
        return starts

    def _others(self, look: L, start: StreamOffset) -> list[Name]:
        """Return the partitions that the query no longer takes and whose positions stay in its offsets."""
        others = sorted(start.positions.keys() - {of.name for of in look.partitions})
        there = {of.name for of in self._only(others).partitions} if others else set()
        kept = []
        for name in others:
            shown = self._names.shown(start.positions[name])
            if name in there:
                self._lost(
                    name,
                    f"is at {shown} and not read: the query takes other topics now, or the checkpoint is another"
                    " query's; its place is kept",
                )
            elif not self._waits_for(name, start):
                self._lost(
                    name,
                    f"is gone, and with it all from {shown} on: its topic was deleted, or the checkpoint is another"
                    " query's",
                )
                continue
            kept.append(name)
        return kept

    def _unread(self, name: Name, what: str) -> None:
        """Refuse a planned partition that exists and that the query no longer takes; report another one as lost."""
        if self._only([name]).partitions:
            raise DataLossError(
                f"{self._names.label(name)} has {what} of the batch, and the query doesn't take it now: it was given"
                " other topics, or the checkpoint is another query's.",
                "Start the query with the topics that it had, so that the batch is finished; then change them.",
            )
        self._lost(name, f"is gone, and with it {what} of a batch that was planned")

    def _waits_for(self, name: Name, known: StreamOffset) -> bool:
        """True if a partition without files was read to its end; the query waits for new ones, and logs that once."""
        if known.traces.get(name, {}).get("end") != "log":
            return False
        label = self._names.label(name)
        self._tell(f"{label} has no files any more. It was read to its end; the query waits for new ones")
        return True

    def _check_log(self, look: L, offset: StreamOffset) -> None:
        if offset.log is not None and look.identity is not None and offset.log != look.identity:
            raise InvalidArgumentError(
                f"The checkpoint is of the log with id {offset.log}, and this is the log with id {look.identity}.",
                "Name the folders that the query had, or begin a new query with a new checkpoint.",
            )

    def _check_decided(self, of: Any, until: Position) -> None:
        stable = of.bounds.last_stable
        if stable < until <= of.bounds.log_end:
            raise InvalidArgumentError(
                f"{self._names.label(of.name)} is stable up to {self._names.shown(stable)}, and the batch ends at"
                f" {self._names.shown(until)}: it was planned at read_uncommitted.",
                'Finish it with .option("isolationLevel", "read_uncommitted"); then change the level.',
            )

    def _gone(self, known: StreamOffset, error: TxnLogError) -> DataLossError:
        text = json.dumps(by_topic(known.positions, self._names.shown))
        return DataLossError(
            f"What the query has read up to {text} is gone. {error.fact}",
            "Begin a new query with a new checkpoint, or name other topics.",
        )

    def _lost(self, name: Name, happened: str) -> None:
        self._tell_lost(lost(self._names.label(name), happened))

    def _tell_lost(self, error: TxnLogError) -> None:
        if self._request.fail_on_data_loss:
            raise error
        self._tell(f"{error.fact} (failOnDataLoss=false)")

    def _tell(self, what: str) -> None:
        if what not in self._told:  # a stream that stands still asks again and again
            self._told.add(what)
            _log.warning("%s", what)

    def _between(self, start: Position | None, end: Position) -> str:
        return f"[{'...' if start is None else self._names.shown(start)}, {self._names.shown(end)})"

    def _offset(self, look: L, positions: Sequence[Position]) -> StreamOffset:
        at = {of.name: position for of, position in zip(look.partitions, positions, strict=True)}
        topics = {of.name[0]: of.identity for of in look.partitions if of.identity is not None}
        traces = {of.name: trace for of in look.partitions if (trace := of.trace(at[of.name]))}
        return StreamOffset(at, self._level, decisions=look.decisions, log=look.identity, topics=topics, traces=traces)


def _begins(look: L, starts: Sequence[Position], known: StreamOffset, *, moved: bool) -> dict[Name, Place]:
    """Return the starts of a batch that the offset before doesn't have; ``moved``: it has none of them.

    Spark keeps only the end of a query's first batch, so that end has the starts that ``initial`` returned, too.
    """
    found: dict[Name, Place] = {}
    for of, at in zip(look.partitions, starts, strict=True):
        first = known.next(of.name)
        if first is None or position_of(first) != at:
            found[of.name] = at
        elif moved or isinstance(first, MessageId) or known.begins.get(of.name) == first:
            found[of.name] = first
    return found
