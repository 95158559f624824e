"""The topics of a read, with their partitions and bounds at one moment."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.bounds import Bounds
from txn_source.model.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TopicNotFoundError,
    UnavailableError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic import PartitionView, Topic, TopicView, View
from txn_source.model.topic_name import TopicName
from txn_source.reading.places import Kept, Name
from txn_source.reading.request import Selection
from txn_source.storage.schema import deserialize_schema

_VIEWS_MAX = 20
_EVERY = range(1 << 31)


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """A partition of a read, with its topic."""

    topic: TopicName
    view: PartitionView

    @property
    def name(self) -> Name:
        """The topic and the partition's index."""
        return self.topic, self.view.index

    @property
    def bounds(self) -> Bounds:
        """The four bounds."""
        return self.view.bounds

    @property
    def label(self) -> str:
        """The partition's name for people."""
        return label(self.name)

    @property
    def identity(self) -> None:
        """Ledger ids are never used again, so positions tell a topic from another one of its name."""
        return None

    def has_lost(self, at: Position) -> bool:
        """True if messages were trimmed that lay at a position or behind it."""
        return at < self.bounds.log_start and not self.view.lost_nothing(at)

    def trace(self, at: Position) -> Mapping[str, Any]:
        """Return nothing: positions tell all there is to tell."""
        return {}

    def again(self, begin: Kept, end: Kept, level: IsolationLevel) -> tuple[PositionRange, list[str]]:
        """Return the readable part of a batch that was planned before, and a text for each part that is gone."""
        until = end.position
        assert until is not None
        first, gone = self.kept(begin.position or self.bounds.log_start, until)
        if first < until and level is IsolationLevel.READ_COMMITTED and until > self.bounds.last_stable:
            stable = self.bounds.last_stable
            gone.append(f"was decided up to {until} and is up to {stable} only: the log was put back")
            until = stable
        return PositionRange(first, max(first, until)), gone

    def kept(self, begin: Position, until: Position | None) -> tuple[Position, list[str]]:
        """Return a batch's first readable position, and texts of lost parts; ``until``: its end, None: no end yet."""
        bounds, gone = self.bounds, []
        reach = bounds.log_start if until is None else min(until, bounds.log_start)
        if begin < reach and not self.view.lost_nothing(begin):
            gone.append(f"has lost {PositionRange(begin, reach)}: it was trimmed, or the topic was made anew")
        if until is not None and until > bounds.log_end:
            behind = PositionRange(max(begin, bounds.log_end), until)
            gone.append(f"has lost {behind}: it ends at {bounds.log_end}, so the log was put back")
        return max(begin, reach), gone


def label(name: Name) -> str:
    """Return a partition's name for people."""
    topic, index = name
    return f"{topic.short}-partition-{index}"


@dataclass(frozen=True, slots=True)
class Source:
    """Topics resolved to partitions, at one moment."""

    partitions: tuple[ReadPartition, ...]
    payload: pa.Schema
    decisions: int
    named: tuple[Topic, ...] = ()
    """The topics, if each was named: those that only match a pattern may be younger than the time of a read."""
    identity: None = None
    """A log's own id isn't kept in checkpoints: its ledgers' are enough."""


def resolve(stub: MetadataStub, of: Selection) -> Source:
    """Find the topics of a read and look at their bounds.

    A topic's name may be that of a single partition (``orders-partition-3``). If the topics' schemas differ, the
    columns of the selection must be the same in all of them.

    Raises:
        TopicNotFoundError: one isn't there, or none matches the pattern.
        SchemaMismatchError: they differ in a column that is wanted.
    """
    picked: dict[TopicName, Container[int]]
    if of.pattern is not None:
        view = _view_of_matching(stub, of.pattern, if_there=of.if_there)
        picked = {topic.topic.name: _EVERY for topic in view.topics}
    elif of.partitions is not None:
        places: dict[TopicName, set[int]] = {}
        for topic, index in of.partitions:
            places.setdefault(topic, set()).add(index)
        view = stub.get_view(_there(stub, places, if_there=of.if_there))
        picked = {topic.topic.name: places[topic.topic.name] for topic in view.topics}
    else:
        picked = _named(stub, of.topics or (), if_there=of.if_there)
        view = stub.get_view(list(picked))
    partitions = []
    for topic, wanted in zip(view.topics, picked.values(), strict=True):
        partitions += [ReadPartition(topic.topic.name, p) for p in topic.partitions if p.index in wanted]
    named = () if of.pattern is not None else tuple(topic.topic for topic in view.topics)
    return Source(tuple(partitions), _common_schema(view, of.columns), view.decisions, named)


def look_again(stub: MetadataStub, source: Source) -> Source:
    """Return the same partitions as they are now, or raise TOPIC_NOT_FOUND if a topic was made anew."""
    view = stub.get_view(list(dict.fromkeys(p.topic for p in source.partitions)))
    now = {p.partition_id: p for topic in view.topics for p in topic.partitions}
    for partition in source.partitions:
        if partition.view.partition_id not in now:
            raise TopicNotFoundError(f"{partition.label} was deleted, and made anew.", "Plan the read anew.")
    partitions = tuple(ReadPartition(p.topic, now[p.view.partition_id]) for p in source.partitions)
    return Source(partitions, source.payload, view.decisions, source.named)


def _there(stub: MetadataStub, topics: Iterable[TopicName], *, if_there: bool) -> list[TopicName]:
    """Return topics; without those that aren't there, if that is no error."""
    there = set(stub.list_topics()) if if_there else ()
    return [topic for topic in topics if not if_there or topic in there]


def _named(stub: MetadataStub, topics: Sequence[str], *, if_there: bool) -> dict[TopicName, Container[int]]:
    if not topics:
        raise InvalidArgumentError("No topic is named.", "Name one at least.")
    picked: dict[TopicName, Container[int]] = {}
    for text in topics:
        name, index = TopicName.parse(text), None
        one_partition = name.split_partition()
        if one_partition is not None:
            name, index = one_partition
        if not _there(stub, [name], if_there=if_there):
            continue
        if index is not None:
            [topic] = stub.get_view([name]).topics
            if index >= len(topic.partitions):
                raise TopicNotFoundError(
                    f"Topic {name.short!r} has no partition {index}.",
                    f"Its partitions are 0 to {len(topic.partitions) - 1}.",
                )
        if name in picked:
            raise InvalidArgumentError(f"Topic {name.short!r} is named twice.", "Name each topic once.")
        picked[name] = _EVERY if index is None else (index,)
    return picked


def _view_of_matching(stub: MetadataStub, pattern: str, *, if_there: bool) -> View:
    """Return a view of all topics that match at its moment.

    A topic that is made between a listing and the view may share a transaction with one that was listed, which would be
    seen by half. So the topics are listed again after the view, and viewed again until none has come.
    """
    names = _matching(stub, pattern, if_there=if_there)
    for _ in range(_VIEWS_MAX):
        view: View | None = None
        with suppress(TopicNotFoundError):  # one was deleted in between
            view = stub.get_view(names)
        known, names = names, _matching(stub, pattern, if_there=if_there)
        if view is not None and set(names) <= set(known):
            return view
    raise UnavailableError(
        f"Topics that match {pattern!r} were made or deleted during each of {_VIEWS_MAX} looks at them.",
        "Try again when fewer are made.",
    )


def _matching(stub: MetadataStub, pattern: str, *, if_there: bool) -> list[TopicName]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidArgumentError(
            f"{pattern!r} is not a regular expression ({error}).", "Mend it; it must match whole topic names."
        ) from None
    found = [n for n in stub.list_topics() if compiled.fullmatch(n.short) or compiled.fullmatch(str(n))]
    if not found and not if_there:
        raise TopicNotFoundError(
            f"No topic matches the pattern {pattern!r}.",
            "Check it against `txnlog topics list`; it matches whole names.",
        )
    return found


def _common_schema(view: View, columns: Sequence[str] | None) -> pa.Schema:
    if not view.topics:
        return pa.schema([])
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
