"""Planning a read: which topics, up to which bounds, in which tasks.

1. View: the bounds of all partitions, read in one moment.
2. Range: each partition's ``[start, end)``, cut off at the isolation level's bound, and for read_committed lowered to
   a consistent cut over all partitions of the read.
3. Slices: the ledgers of each range, large ones cut at entries, packed into tasks by bytes.

A plan is pinned: it carries positions and the number of decisions made, so that whoever reads it, and reads it again,
gets the same rows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from txn_source.client.reading.as_of import bounds_as_of
from txn_source.client.reading.footers import TieredPlanning
from txn_source.client.reading.offsets import Cut, Offsets
from txn_source.client.reading.slice_reader import SliceReader
from txn_source.client.reading.tasks import tasks_of
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.bounds import Bounds
from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    OutOfRangeError,
    SchemaMismatchError,
    TopicNotFoundError,
    UnavailableError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.packing import Slice
from txn_source.model.position import EARLIEST, LATEST, Position, PositionRange
from txn_source.model.read_priority import ReadPriority
from txn_source.model.topic import PartitionView, TopicView, View
from txn_source.model.topic_name import TopicName
from txn_source.storage.schema import deserialize_schema

_log = logging.getLogger(__name__)
MAX_PARTITION_BYTES = 128 << 20
_FROM_EARLIEST, _TO_LATEST = Offsets(EARLIEST), Offsets(LATEST)
_VIEWS_MAX = 20
_LOOKS_MAX = 5
"""How often a plan that may leave out what is gone looks again, if that has happened while it was made."""


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """A partition that a read takes, with its topic."""

    topic: TopicName
    view: PartitionView

    @property
    def label(self) -> str:
        """The partition's name for people."""
        return f"{self.topic.short}-partition-{self.view.index}"


@dataclass(frozen=True, slots=True)
class Source:
    """Topics resolved to partitions, at one moment."""

    partitions: tuple[ReadPartition, ...]
    payload: pa.Schema
    decisions: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """How to read a source."""

    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    start: Offsets = _FROM_EARLIEST
    end: Offsets = _TO_LATEST
    consistent_cut: bool = True
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_partition_bytes: int = MAX_PARTITION_BYTES
    read_priority: ReadPriority | None = None
    """None: each topic's own."""
    as_of_us: int | None = None
    """End where read_committed would have ended at this time, instead of at ``end``."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The tasks of a read, each a list of slices in order, and what they need to be read the same way again."""

    tasks: tuple[tuple[Slice, ...], ...]
    request: ReadRequest
    decisions: int
    payload: pa.Schema
    """Of the source that was planned."""

    def reader(self, stub: MetadataStub, root: Path, schema: pa.Schema) -> SliceReader:
        """Return what reads the tasks' slices, as batches of a schema."""
        return slice_reader(stub, root, schema, self.request, self.decisions)


def check_as_of(level: IsolationLevel, has_end: bool) -> None:
    """Raise INVALID_ARGUMENT for a read as of a time that has another end, or shows what wasn't committed."""
    if level is not IsolationLevel.READ_COMMITTED or has_end:
        what = "has an end of its own" if has_end else f"is {level}"
        raise InvalidArgumentError(
            f"The read asks for what was committed at a time, and {what}.",
            "Leave out the end, or the time; a read as of a time is read_committed.",
        )


def slice_reader(
    stub: MetadataStub, root: Path, schema: pa.Schema, request: ReadRequest, decisions: int
) -> SliceReader:
    """Return what reads slices as a request says, with the decisions that its plan knew."""
    return SliceReader(
        stub, root, schema, request.isolation_level, decisions, request.read_priority, request.fail_on_data_loss
    )


def resolve(
    stub: MetadataStub,
    topics: Sequence[str] | None = None,
    pattern: str | None = None,
    columns: Sequence[str] | None = None,
) -> Source:
    """Find the topics of a read and look at their bounds.

    Args:
        stub: the service.
        topics: names; one may name a single partition (``orders-partition-3``).
        pattern: instead of names, a regular expression that the whole short or full name matches.
        columns: payload columns that suffice, if the topics' schemas differ; None: the schemas must be equal.
    """
    if pattern is not None:
        view = _view_of_matching(stub, pattern)
        picked: dict[TopicName, int | None] = {topic.topic.name: None for topic in view.topics}
    else:
        picked = _named(stub, topics or ())
        view = stub.get_view(list(picked))
    partitions = []
    for topic, only in zip(view.topics, picked.values(), strict=True):
        partitions += [ReadPartition(topic.topic.name, p) for p in topic.partitions if only in (None, p.index)]
    return Source(tuple(partitions), _common_schema(view, columns), view.decisions)


def plan(stub: MetadataStub, root: Path, source: Source, request: ReadRequest) -> ReadPlan:
    """Return the tasks that read the source as requested.

    Raises:
        DataLossError: what was to be read was trimmed, or its topic deleted, since the source was looked at.
            ``fail_on_data_loss=False`` leaves it out, with a warning.
        TopicNotFoundError: a topic was deleted since then, whatever ``fail_on_data_loss`` says.
    """
    for side in (request.start, request.end):
        _check_named(side, source)
        _check_cut(side, source, request.isolation_level)
    for _ in range(_LOOKS_MAX if not request.fail_on_data_loss else 0):
        try:
            return _plan(stub, root, source, request)
        except (DataLossError, OutOfRangeError) as error:
            again = _look_again(stub, source)
            if again is None or again.partitions == source.partitions:
                raise
            _log.warning("the read is planned again: %s (failOnDataLoss=false)", error.fact)
            source = again
    return _plan(stub, root, source, request)


def _plan(stub: MetadataStub, root: Path, source: Source, request: ReadRequest) -> ReadPlan:
    objects = TieredPlanning(stub, root)
    starts = _side(stub, objects, source, request.start, request)
    if request.as_of_us is None:
        ends = _side(stub, objects, source, request.end, request)
    else:
        ends = bounds_as_of(stub, objects, [p.view for p in source.partitions], request.as_of_us)
    reaches = [
        partition.view.bounds.clip(start, max(start, end), request.isolation_level)
        for partition, start, end in zip(source.partitions, starts, ends, strict=True)
    ]
    if request.consistent_cut and request.isolation_level is IsolationLevel.READ_COMMITTED:
        reaches = _cut(stub, source, reaches)
    wanted = [(p, reach) for p, reach in zip(source.partitions, reaches, strict=True) if not reach.empty]
    return plan_ranges(stub, root, source, wanted, request)


def _look_again(stub: MetadataStub, source: Source) -> Source | None:
    """Return the same partitions as they are now; None if a topic was made anew."""
    view = stub.get_view(list(dict.fromkeys(p.topic for p in source.partitions)))
    now = {p.partition_id: p for topic in view.topics for p in topic.partitions}
    if any(p.view.partition_id not in now for p in source.partitions):
        return None
    partitions = tuple(ReadPartition(p.topic, now[p.view.partition_id]) for p in source.partitions)
    return Source(partitions, source.payload, view.decisions)


def plan_ranges(
    stub: MetadataStub,
    root: Path,
    source: Source,
    wanted: Sequence[tuple[ReadPartition, PositionRange]],
    request: ReadRequest,
) -> ReadPlan:
    """Return the tasks that read ranges of partitions of a source."""
    tasks = tasks_of(stub, TieredPlanning(stub, root), wanted, request)
    return ReadPlan(tuple(tuple(task) for task in tasks), request, source.decisions, source.payload)


def start_positions(stub: MetadataStub, root: Path, source: Source, request: ReadRequest) -> list[Position]:
    """Return where a read of the source begins on each partition."""
    _check_named(request.start, source)
    _check_cut(request.start, source, request.isolation_level)
    return _side(stub, TieredPlanning(stub, root), source, request.start, request)


def _named(stub: MetadataStub, topics: Sequence[str]) -> dict[TopicName, int | None]:
    if not topics:
        raise InvalidArgumentError("No topic is named.", "Name one at least.")
    picked: dict[TopicName, int | None] = {}
    for text in topics:
        name, index = TopicName.parse(text), None
        one_partition = name.split_partition()
        if one_partition is not None:
            name, index = one_partition
            [topic] = stub.get_view([name]).topics
            if index >= len(topic.partitions):
                raise TopicNotFoundError(
                    f"Topic {name.short!r} has no partition {index}.",
                    f"Its partitions are 0 to {len(topic.partitions) - 1}.",
                )
        if name in picked:
            raise InvalidArgumentError(f"Topic {name.short!r} is named twice.", "Name each topic once.")
        picked[name] = index
    return picked


def _view_of_matching(stub: MetadataStub, pattern: str) -> View:
    """Return a view of all topics that match at its moment.

    A topic that is made between a listing and the view may share a transaction with one that was listed, which would be
    seen by half. So the topics are listed again after the view, and viewed again until none has come.
    """
    names = _matching(stub, pattern)
    for _ in range(_VIEWS_MAX):
        view: View | None = None
        with suppress(TopicNotFoundError):  # one was deleted in between
            view = stub.get_view(names)
        known, names = names, _matching(stub, pattern)
        if view is not None and set(names) <= set(known):
            return view
    raise UnavailableError(
        f"Topics that match {pattern!r} were made or deleted during each of {_VIEWS_MAX} looks at them.",
        "Try again when fewer are made.",
    )


def _matching(stub: MetadataStub, pattern: str) -> list[TopicName]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidArgumentError(
            f"{pattern!r} is not a regular expression ({error}).", "Mend it; it must match whole topic names."
        ) from None
    found = [n for n in stub.list_topics() if compiled.fullmatch(n.short) or compiled.fullmatch(str(n))]
    if not found:
        raise TopicNotFoundError(
            f"No topic matches the pattern {pattern!r}.",
            "Check it against `txnlog topics list`; it matches whole names.",
        )
    return found


def _common_schema(view: View, columns: Sequence[str] | None) -> pa.Schema:
    first, *others = view.topics
    schema = deserialize_schema(first.topic.schema)
    for other in others:
        if other.topic.schema == first.topic.schema:
            continue
        theirs = deserialize_schema(other.topic.schema)
        names = _shared(columns, [*schema.names, *theirs.names]) if columns is not None else None
        if names is None and not theirs.equals(schema):
            names = list(dict.fromkeys([*schema.names, *theirs.names]))
        for name in names or ():
            mine, its = (s.field(name) if name in s.names else None for s in (schema, theirs))
            if mine is None or its is None or not mine.equals(its):
                raise _different(first, other, name, mine, its)
    return schema


def _shared(columns: Sequence[str], payload: Sequence[str]) -> list[str]:
    """Return the payload columns that a read wants; Spark asks for them in any case."""
    wanted = {name.lower() for name in columns}
    return [name for name in dict.fromkeys(payload) if name.lower() in wanted]


def _different(
    first: TopicView, other: TopicView, name: str, mine: pa.Field | None, its: pa.Field | None
) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Topics {first.topic.name.short!r} and {other.topic.name.short!r} differ in column {name!r}:"
        f" {mine.type if mine else 'absent'} against {its.type if its else 'absent'}.",
        "Read them apart, or only the columns that they share.",
    )


def _check_named(offsets: Offsets, source: Source) -> None:
    known = {(p.topic, p.view.index) for p in source.partitions}
    for topic, index in offsets.positions if offsets.cut is None else ():
        if (topic, index) not in known:
            raise InvalidArgumentError(
                f"The offsets name partition {index} of topic {topic.short!r}, which this read doesn't take.",
                f"It takes {', '.join(p.label for p in source.partitions[:8])}.",
            )
    if offsets.bare is not None and len(source.partitions) != 1:
        raise InvalidArgumentError(
            f"Position {offsets.bare} doesn't say which of the {len(source.partitions)} partitions it belongs to.",
            'Use JSON such as {"orders": {"0": "12:40"}}.',
        )


def _check_cut(offsets: Offsets, source: Source, level: IsolationLevel) -> None:
    """Refuse a cut that doesn't have what is read, or that isn't one at the level of the read."""
    if offsets.cut is None:
        return
    missing = [p.label for p in source.partitions if (p.topic, p.view.index) not in offsets.positions]
    if missing:
        raise InvalidArgumentError(
            f"The cut has no position of {missing[0]}, which is read.", "Take a cut of all topics: log.cut([...])."
        )
    if offsets.cut is IsolationLevel.READ_UNCOMMITTED and level is not offsets.cut:
        raise InvalidArgumentError(
            f"The cut was taken at {offsets.cut}, and the read is {level}.", f"Take the cut at {level}."
        )


def cut_of(stub: MetadataStub, topics: Sequence[str], level: IsolationLevel) -> Cut:
    """Return up to where topics could be read now at a level, at one moment."""
    for left in range(_LOOKS_MAX, 0, -1):
        source = resolve(stub, topics, columns=())
        ends = [PositionRange(p.view.bounds.log_start, p.view.bounds.upper(level)) for p in source.partitions]
        with suppress(*((DataLossError,) if left > 1 else ())):  # trimmed meanwhile: look again
            if level is IsolationLevel.READ_COMMITTED:
                ends = _cut(stub, source, ends)
            break
    places = [(p.topic, p.view.index) for p in source.partitions]
    return Cut({place: reach.end for place, reach in zip(places, ends, strict=True)}, level)


def _cut(stub: MetadataStub, source: Source, reaches: Sequence[PositionRange]) -> list[PositionRange]:
    """Lower the ends of a read to a consistent cut, never below where it starts.

    Starts are as they were asked for, also where that is in the middle of a transaction: then its rest is seen. Every
    transaction that lies wholly at or above the starts is seen whole, or not at all.
    """
    bounds = {p.view.partition_id: reach.end for p, reach in zip(source.partitions, reaches, strict=True)}
    whole = all(p.view.bounds.log_end == bounds[p.view.partition_id] for p in source.partitions)
    if len(bounds) < 2 or whole:
        return list(reaches)
    cut = stub.find_cut(bounds)
    return [
        PositionRange(reach.start, max(reach.start, cut[p.view.partition_id]))
        for p, reach in zip(source.partitions, reaches, strict=True)
    ]


def _side(
    stub: MetadataStub, objects: TieredPlanning, source: Source, offsets: Offsets, request: ReadRequest
) -> list[Position]:
    by_time: dict[int, Position | None] = {}
    if offsets.publish_time_us is not None:
        by_time = objects.find_positions([p.view.partition_id for p in source.partitions], offsets.publish_time_us)
    found = []
    for partition in source.partitions:
        bounds, level = partition.view.bounds, request.isolation_level
        if offsets.publish_time_us is not None:
            # A first message at or above the bound is no answer yet: nothing is read, or everything up to the bound.
            at: Position | str = min(
                by_time.get(partition.view.partition_id) or bounds.upper(level), bounds.upper(level)
            )
        elif offsets.bare is not None:
            at = offsets.bare
        else:
            at = offsets.positions.get((partition.topic, partition.view.index), offsets.default)
        if isinstance(at, str):
            found.append(bounds.log_start if at == EARLIEST else bounds.upper(level))
        elif offsets.publish_time_us is not None:
            found.append(at)
        else:
            found.append(_checked(stub, partition, at, bounds, request))
    return found


def _checked(
    stub: MetadataStub, partition: ReadPartition, at: Position, bounds: Bounds, request: ReadRequest
) -> Position:
    """Return a position that somebody gave, or raise OUT_OF_RANGE if no reader can ever stand there."""
    if partition.view.lost_nothing(at):
        return bounds.log_start
    if at < bounds.log_start and not request.fail_on_data_loss:
        _log.warning(
            "%s: position %s was trimmed; reading from %s on (failOnDataLoss=false)",
            partition.label, at, bounds.log_start,
        )  # fmt: skip
        return bounds.log_start
    check_position(stub, partition, at)
    return at


def check_position(stub: MetadataStub, partition: ReadPartition, at: Position) -> None:
    """Raise OUT_OF_RANGE if a position is none of the partition's, where no reader can ever stand."""
    bounds = partition.view.bounds
    if not bounds.log_start <= at <= bounds.log_end or at.entry_id < 0:
        raise OutOfRangeError(
            f"Position {at} lies outside {partition.label}, which has [{bounds.log_start}, {bounds.log_end}).",
            "Use a position in that range, earliest or latest.",
        )
    ledger = stub.list_ledgers(partition.view.partition_id, PositionRange(at, at))
    if not len(ledger) or at.entry_id > ledger["entries"][0].as_py():
        why = (
            f"its ledger {at.ledger_id} has {ledger['entries'][0]} entries" if len(ledger) else "that is not its ledger"
        )
        raise OutOfRangeError(
            f"Position {at} is in no ledger of {partition.label}: {why}.",
            "Use positions of this partition, as `txnlog topics stats` or the __ledger_id and __entry_id columns show.",
        )
