"""Reading topics batch by batch: what a streaming query asks of its source, without Spark.

1. ``initial`` says where to begin.
2. ``latest`` says how far the next batch goes: up to the level's bounds or to its limits, at a consistent cut. What one
   batch ends with is what the next one begins with, so no transaction is ever cut in two between batches either.
3. ``plan`` divides a batch into tasks. It depends on the two offsets alone, whenever it is asked again.

A stream with a subscription begins where that stands, and acknowledges what lies below the ends of its batches. As
long as both are in the same epoch, the checkpoint says where the next batch begins. When a seek has begun a newer one,
that batch begins where the seek has put the subscription, and its end carries the new epoch and that beginning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.places import Offsets
from txn_source.client.reading.plan import ReadPlan, plan_ranges
from txn_source.client.reading.ranges import check_position, start_positions
from txn_source.client.reading.request import ReadRequest
from txn_source.client.reading.source import ReadPartition, Source, resolve
from txn_source.client.stream_offset import StreamOffset, TopicPartition
from txn_source.client.streaming.batch_limits import Admission, StreamLimits
from txn_source.client.streaming.holders import Holders
from txn_source.client.streaming.level_change import check_change
from txn_source.client.streaming.stream_subscription import Cursors, StreamSubscription
from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    OutOfRangeError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.packing import Slice
from txn_source.model.position import LATEST, MessageId, Position, PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass

_log = logging.getLogger(__name__)
_LOOKS_MAX = 5
"""How often a stream looks again whose topics are trimmed or deleted while it does."""


@dataclass(frozen=True, slots=True)
class StreamedTopics:
    """Which topics a stream reads: names, or those that match a pattern, new ones too; and the columns that suffice."""

    topics: Sequence[str] | None
    pattern: str | None
    columns: Sequence[str] | None


class TopicStream:
    """A streaming query's view of its topics. It keeps nothing that a restart would miss."""

    def __init__(
        self,
        access: Access,
        of: StreamedTopics,
        request: ReadRequest,
        limits: StreamLimits,
        clock: Callable[[], float] = time.monotonic,
        subscription: StreamSubscription | None = None,
    ) -> None:
        """Begin a view; ``subscription`` is the one that the query follows, of its only topic."""
        if subscription is not None:
            request = replace(request, isolation_level=subscription.isolation_level)
        self._subscription = subscription
        self._access = access
        self._stub = access.metadata
        self._of = of
        self._request = request
        self._limits = limits
        self._clock = clock
        self._level = request.isolation_level
        self._admission = Admission(access, request)
        self._frozen: StreamOffset | None = None
        self._last_batch_s = clock()
        self._known: dict[TopicPartition, int] = {}
        self._lost_before: set[str] = set()
        self._changed_at: StreamOffset | None = None
        self._holders = Holders(access.metadata, clock)

    def initial(self) -> StreamOffset:
        """Return where a new query begins.

        ``latest`` begins at a cut. Positions and times are taken as they were given, also in the middle of a
        transaction, whose rest is seen then. Whatever the start, every transaction that lies wholly at or above it
        comes whole in one batch.

        With a subscription it is where that stands; one that isn't there is made where the query would begin without.
        """
        if self._subscription is not None and self._subscription.is_there:
            if self._request.start != Offsets(LATEST):
                _log.warning(
                    "subscription %r is there, so the stream begins where it stands, and not at startingOffsets",
                    self._subscription.name,
                )
            return self._at(self._subscription.cursors(), self.source().decisions)
        source = resolve(self._stub, self._of.topics, self._of.pattern, self._of.columns)
        starts = start_positions(self._access, source, self._request)
        if self._request.start == Offsets(LATEST):
            starts = self._cut(source, [p.view.bounds.log_start for p in source.partitions], starts)
        if self._subscription is not None:
            self._subscription.create(_by_index(self._offset(source, starts)))
            return self._at(self._subscription.cursors(), source.decisions)
        first = self._offset(source, starts)
        return replace(first, begins=_begins(source, starts, first, moved=True))

    def newest(self) -> StreamOffset:
        """Return how far the log could be read now."""
        for _ in range(_LOOKS_MAX):
            with suppress(DataLossError, TopicNotFoundError):  # nothing is read here: look again
                return self._newest()
        return self._newest()

    def _newest(self) -> StreamOffset:
        source = self.source()
        starts = [p.view.bounds.log_start for p in source.partitions]
        epoch = 0 if self._subscription is None else self._subscription.epoch
        return self._offset(source, self._tops(source, starts), epoch=epoch)

    def freeze(self) -> None:
        """Never read further than one could now: the target of ``Trigger.AvailableNow``."""
        self._frozen = self.newest()

    def latest(self, start: StreamOffset, *, limited: bool = True) -> StreamOffset:
        """Return where the batch that begins at ``start`` ends; ``start`` itself if there is nothing to read yet.

        That follows from ``start``, the limits and what there is to read alone; time only decides, with
        ``min_messages``, if there is a batch now.

        Raises:
            DataLossError: what comes next was trimmed, or its topic was deleted.
            InvalidArgumentError: the stream can't go on at another level than it had (``level_change``).
        """
        for _ in range(0 if self._request.fail_on_data_loss else _LOOKS_MAX):
            try:
                return self._latest(start, limited=limited)
            except (DataLossError, TopicNotFoundError) as error:
                _log.info("the batch is planned again: %s", error.fact)
        try:
            return self._latest(start, limited=limited)
        except TopicNotFoundError as error:
            raise self._topic_gone(start, error) from error

    def _latest(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        begin = self._beginning(start)
        source = self.source(start)
        starts = self._starts(source, begin)
        if begin is start and start.level is not self._level and start != self._changed_at:
            check_change(self._stub, source, start, starts, self._level)
            self._changed_at = start  # what is decided stays so
        tops = self._tops(source, starts)
        limits = self._limits if limited else StreamLimits()
        ends, turn = tops, begin.turn
        if limits.max_messages is not None or limits.max_bytes is not None:
            ends, turn = self._limit(source, starts, tops, limits, turn)
        # That a seek was followed is told at once, also by a batch without messages.
        if begin is start and (ends == starts or self._too_few(source, starts, tops, limits)):
            if self._level is IsolationLevel.READ_COMMITTED:
                self._holders.tell(source.partitions)
            return start
        self._last_batch_s = self._clock()
        end = self._offset(source, ends, _begins(source, starts, begin, moved=begin is not start), begin.epoch)
        return replace(end, positions={**self._not_taken(source, begin), **end.positions}, turn=turn)

    def commit(self, end: StreamOffset) -> None:
        """Acknowledge what lies before the end of a batch that was processed; harmless without a subscription."""
        if self._subscription is not None and end.subscription == self._subscription.subscription_id:
            self._subscription.acknowledge(end.epoch, _by_index(end))

    def plan(self, start: StreamOffset, end: StreamOffset) -> ReadPlan:
        """Return the tasks of the batch between two offsets.

        It is read at the level that it was planned with. One whose offset doesn't tell it has the stream's.

        Raises:
            DataLossError: a part of the batch was trimmed, or its topic was deleted, or the query doesn't take that.
            InvalidArgumentError: the offset doesn't tell its level, which must have been read_uncommitted.
        """
        request = self._request if end.level is None else replace(self._request, isolation_level=end.level)
        source = self.source(end)
        by_place = {(p.topic, p.view.index): p for p in source.partitions}
        wanted, inside = [], {}
        for place, until in sorted(end.positions.items()):
            first = end.begins.get(place) or start.next_message(place)
            partition = by_place.get(place)
            if partition is None:
                if first is None or first.position != until:
                    self._unread(place, f"[{first and first.position}, {until})")
                continue
            begin = self._kept(partition, first.position if first else partition.view.bounds.log_start, until)
            if begin < until and request.isolation_level is IsolationLevel.READ_COMMITTED:  # a start may lie above
                until = self._decided(partition, until, end.level)
            if begin < until:
                wanted.append((partition, PositionRange(begin, until)))
            if first is not None and first.batch_index > 0:
                inside[partition.view.partition_id] = first
        # Where a batch of read_uncommitted ended, some transactions were decided later than its decisions tell.
        decisions = end.decisions if end.level is not None else source.decisions
        planned = plan_ranges(self._access, source, wanted, request)
        tasks = tuple(_skipping(task, inside) for task in planned.tasks) if inside else planned.tasks
        return replace(planned, tasks=tasks, decisions=decisions)

    def source(self, offset: StreamOffset | None = None) -> Source:
        """Return the topics as they are now; ``offset`` is one that the query has reached.

        Raises:
            TopicNotFoundError: a topic isn't there, or none matches the pattern.
            DataLossError: likewise, and the query has read it. ``failOnDataLoss=false`` goes on without it.
        """
        of = self._of
        try:
            return resolve(self._stub, of.topics, of.pattern, of.columns)
        except TopicNotFoundError as error:
            if not self._request.fail_on_data_loss:
                return self._without_deleted()
            if offset is None or not offset.positions:
                raise
            raise self._topic_gone(offset, error) from error

    def _topic_gone(self, offset: StreamOffset, error: TopicNotFoundError) -> DataLossError:
        return DataLossError(
            f"A topic that the query has read up to {offset.text} is gone. {error.fact}",
            "Begin a new query with a new checkpoint, or make the pattern match other topics only.",
        )

    def _without_deleted(self) -> Source:
        there = set(self._stub.list_topics())
        topics = [text for text in self._of.topics or () if _topic_of(text) in there]
        if topics:
            return resolve(self._stub, topics, None, self._of.columns)
        return Source((), pa.schema([]), self._stub.get_view([]).decisions)

    def _beginning(self, start: StreamOffset) -> StreamOffset:
        """Return ``start``, or where its subscription stands if that was moved.

        Spark asks for the next batch when the last one is in its log of commits. So all before ``start`` is processed,
        and is acknowledged here: its ``commit`` comes only when there is a next batch.
        """
        held = self._subscription
        if held is None:
            return start
        try:
            cursors = held.cursors()
        except (TopicNotFoundError, SubscriptionNotFoundError):
            self.source(start)  # of a topic that is gone it has more to say
            raise
        if start.subscription != cursors.subscription_id or start.epoch > cursors.epoch:
            raise InvalidArgumentError(
                f"The checkpoint is at {start.text}, but not of what subscription {held.name!r} is now: that was made"
                " anew, or the log was put back, or the query had none before.",
                "Begin a new query with a new checkpoint: it begins where the subscription stands.",
            )
        self.commit(start)
        if start.epoch == cursors.epoch:
            return start
        moved = self._at(cursors, start.decisions)
        _log.warning("subscription %r was moved: the stream goes on from %s", held.name, moved.text)
        return moved

    def _at(self, cursors: Cursors, decisions: int) -> StreamOffset:
        """Return where a subscription stands as an offset, with ``begins`` where that is inside an entry."""
        assert self._subscription is not None
        marks = {(self._subscription.topic, index): mark for index, mark in cursors.marks.items()}
        return StreamOffset(
            {place: mark.position for place, mark in marks.items()},
            decisions,
            cursors.epoch,
            {place: mark for place, mark in marks.items() if mark.batch_index > 0},
            cursors.subscription_id,
            self._level,
        )

    def _starts(self, source: Source, start: StreamOffset) -> list[Position]:
        """Return where the batch begins on each partition; one that is new begins at its start."""
        kept = self._not_taken(source, start)
        for place in sorted(start.positions.keys() - {(p.topic, p.view.index) for p in source.partitions}):
            if place in kept:
                self._lost(
                    f"Partition {place[1]} of topic {place[0].short!r}",
                    f"is at {kept[place]} and not read: the query takes other topics now, or the checkpoint is another"
                    " query's; its place is kept",
                )
            else:
                self._gone(place, f"[{start.positions[place]}, ...)")
        return [self._start(p, start.positions.get((p.topic, p.view.index))) for p in source.partitions]

    def _start(self, partition: ReadPartition, at: Position | None) -> Position:
        bounds, place = partition.view.bounds, (partition.topic, partition.view.index)
        if at is None or at < bounds.log_start:
            return self._kept(partition, at or bounds.log_start, None)
        if self._known.get(place) != partition.view.partition_id:
            try:
                check_position(self._stub, partition, at)
            except OutOfRangeError as error:
                self._lost(_named(partition), f"was made anew, or the checkpoint is another query's: {error.fact}")
                return bounds.log_start
            self._known[place] = partition.view.partition_id
        return at

    def _kept(self, partition: ReadPartition, begin: Position, until: Position | None) -> Position:
        """Return where what is still there of a batch begins; ``until`` is its end, None if it has none yet."""
        bounds = partition.view.bounds
        reach = bounds.log_start if until is None else min(until, bounds.log_start)
        if begin < reach and not partition.view.lost_nothing(begin):
            lost = PositionRange(begin, reach)
            self._lost(_named(partition), f"has lost {lost}: it was trimmed, or the topic was made anew")
        if until is not None and until > bounds.log_end:
            lost = PositionRange(max(begin, bounds.log_end), until)
            self._lost(_named(partition), f"has lost {lost}: it ends at {bounds.log_end}, so the log was put back")
        return max(begin, reach)

    def _decided(self, partition: ReadPartition, until: Position, known: IsolationLevel | None) -> Position:
        """Return the end of a read_committed batch, which must lie where all is decided."""
        stable = partition.view.bounds.last_stable
        if until <= stable:
            return until
        if known is None:
            raise InvalidArgumentError(
                f"{_named(partition)} is stable up to {stable}, and the batch ends at {until}: it was planned at"
                " read_uncommitted.",
                'Finish it with .option("isolationLevel", "read_uncommitted"); then change the level.',
            )
        self._lost(_named(partition), f"was decided up to {until} and is up to {stable} only: the log was put back")
        return stable

    def _not_taken(self, source: Source, start: StreamOffset) -> dict[TopicPartition, Position]:
        """Return the positions in partitions that are there, and that the query had, but doesn't take now.

        They stay in its offsets, so that it goes on there when it takes them again.
        """
        other = start.positions.keys() - {(p.topic, p.view.index) for p in source.partitions}
        if not other:
            return {}
        there = set(self._stub.list_topics()) & {topic for topic, _ in other}
        view = self._stub.get_view(sorted(there))
        places = {(topic.topic.name, p.index) for topic in view.topics for p in topic.partitions}
        return {place: start.positions[place] for place in sorted(other & places)}

    def _unread(self, place: TopicPartition, lost: str) -> None:
        """Refuse to leave out what was planned of a partition that is there; one that is gone is lost."""
        if place in self._not_taken(Source((), pa.schema([]), 0), StreamOffset({place: Position(0, 0)}, 0)):
            raise DataLossError(
                f"Partition {place[1]} of topic {place[0].short!r} has {lost} of the batch, and the query doesn't take"
                " it now: it was given other topics, or the checkpoint is another query's.",
                "Start the query with the topics that it had, so that the batch is finished; then change them.",
            )
        self._gone(place, lost)

    def _gone(self, place: TopicPartition, lost: str) -> None:
        self._lost(
            f"Partition {place[1]} of topic {place[0].short!r}",
            f"is gone, and {lost} with it: its topic was deleted, or the checkpoint is another query's",
        )

    def _lost(self, what: str, happened: str) -> None:
        if self._request.fail_on_data_loss:
            raise DataLossError(
                f"{what} {happened}.",
                'Begin a new query with a new checkpoint, or set .option("failOnDataLoss", "false") to go on without.',
            )
        if what + happened not in self._lost_before:  # a stream that stands still asks again and again
            self._lost_before.add(what + happened)
            _log.warning("%s %s (failOnDataLoss=false)", what, happened)

    def _tops(self, source: Source, starts: Sequence[Position]) -> list[Position]:
        """Return how far each partition could be read: a cut, at the frozen target if there is one."""
        tops = [max(s, p.view.bounds.upper(self._level)) for p, s in zip(source.partitions, starts, strict=True)]
        if self._frozen is not None:
            targets = [self._frozen.positions.get((p.topic, p.view.index)) for p in source.partitions]
            return [
                start if target is None else max(start, min(top, target))
                for start, top, target in zip(starts, tops, targets, strict=True)
            ]
        return self._cut(source, starts, tops)

    def _cut(self, source: Source, starts: Sequence[Position], bounds: Sequence[Position]) -> list[Position]:
        ends = [p.view.bounds.log_end for p in source.partitions]
        if not self._cuts() or len(source.partitions) < 2 or list(bounds) == ends:
            return list(bounds)
        cut = self._stub.find_cut(_by_id(source, bounds))
        return [max(s, cut[p.view.partition_id]) for p, s in zip(source.partitions, starts, strict=True)]

    def _cuts(self) -> bool:
        return self._request.consistent_cut and self._level is IsolationLevel.READ_COMMITTED

    def _limit(
        self, source: Source, starts: list[Position], tops: list[Position], limits: StreamLimits, turn: int
    ) -> tuple[list[Position], int]:
        """Return ends within the limits, at a cut, and the next turn; behind at least one entry, or one whole
        transaction."""
        ends, turn = self._admission.admit(source.partitions, starts, tops, limits, turn)
        if ends == tops or not self._cuts():
            return ends, turn
        cut = self._stub.find_cut(_by_id(source, ends), _by_id(source, starts))
        lowered = [max(s, cut[p.view.partition_id]) for p, s in zip(source.partitions, starts, strict=True)]
        if lowered != starts:
            return lowered, turn
        cut = self._stub.find_cut(_by_id(source, ends), _by_id(source, starts), upward=True)
        return [min(top, cut[p.view.partition_id]) for p, top in zip(source.partitions, tops, strict=True)], turn

    def _too_few(self, source: Source, starts: list[Position], tops: list[Position], limits: StreamLimits) -> bool:
        """True if the batch has to wait for more; what a limit leaves to the next batches counts as well."""
        fewest = limits.min_messages
        if fewest is None or self._frozen is not None or self._clock() - self._last_batch_s >= limits.max_delay_s:
            return False
        return self._admission.count(source.partitions, starts, tops, fewest) < fewest

    def _offset(
        self,
        source: Source,
        positions: Sequence[Position],
        begins: Mapping[TopicPartition, MessageId] | None = None,
        epoch: int = 0,
    ) -> StreamOffset:
        places = [(p.topic, p.view.index) for p in source.partitions]
        held = None if self._subscription is None else self._subscription.subscription_id
        at = dict(zip(places, positions, strict=True))
        return StreamOffset(at, source.decisions, epoch, begins or {}, held, self._level)


def _begins(
    source: Source, starts: Sequence[Position], known: StreamOffset, *, moved: bool
) -> dict[TopicPartition, MessageId]:
    """Return where the partitions begin of which the offset before doesn't tell it; ``moved``: of none.

    Of a query's first batch Spark keeps the end alone. So what ``initial`` said is told there, too.
    """
    found = {}
    for partition, at in zip(source.partitions, starts, strict=True):
        place = partition.topic, partition.view.index
        first = known.next_message(place)
        is_new = first is None or first == known.begins.get(place)
        if first is None or first.position != at:
            first = MessageId(at.ledger_id, at.entry_id)
        if moved or is_new or first.batch_index > 0:
            found[place] = first
    return found


def _skipping(task: Sequence[Slice], inside: Mapping[int, MessageId]) -> tuple[Slice, ...]:
    """Return a task's slices, of which some begin inside an entry: the first messages, by partition id."""
    return tuple(
        replace(piece, skip=first.batch_index)
        if (first := inside.get(piece.partition_id)) is not None and first.position == piece.range.start
        else piece
        for piece in task
    )


def _by_index(offset: StreamOffset) -> dict[int, Position]:
    """Return the positions of an offset in one topic."""
    return {index: at for (_, index), at in offset.positions.items()}


def _topic_of(text: str) -> TopicName:
    name = TopicName.parse(text)
    one_partition = name.split_partition()
    return name if one_partition is None else one_partition[0]


def _named(partition: ReadPartition) -> str:
    return f"Partition {partition.view.index} of topic {partition.topic.short!r}"


def _by_id(source: Source, positions: Sequence[Position]) -> dict[int, Position]:
    return {p.view.partition_id: at for p, at in zip(source.partitions, positions, strict=True)}
