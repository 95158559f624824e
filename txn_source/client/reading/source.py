"""Which topics a read takes, and how they are at one moment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TopicNotFoundError,
    UnavailableError,
)
from txn_source.model.topic import PartitionView, Topic, TopicView, View
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass
from txn_source.storage.schema import deserialize_schema

_VIEWS_MAX = 20


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
    named: tuple[Topic, ...] = ()
    """The topics, if each was named: those that only match a pattern may be younger than the time of a read."""


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
    named = () if pattern is not None else tuple(topic.topic for topic in view.topics)
    return Source(tuple(partitions), _common_schema(view, columns), view.decisions, named)


def look_again(stub: MetadataStub, source: Source) -> Source | None:
    """Return the same partitions as they are now; None if a topic was made anew."""
    view = stub.get_view(list(dict.fromkeys(p.topic for p in source.partitions)))
    now = {p.partition_id: p for topic in view.topics for p in topic.partitions}
    if any(p.view.partition_id not in now for p in source.partitions):
        return None
    partitions = tuple(ReadPartition(p.topic, now[p.view.partition_id]) for p in source.partitions)
    return Source(partitions, source.payload, view.decisions, source.named)


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
