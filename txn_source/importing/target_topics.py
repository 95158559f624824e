"""The topics that an import writes to: made, or found as it left them, and how far it has come there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from txn_source.client.access import Access
from txn_source.client.topics import create_topic
from txn_source.importing.history import SourceTopic, is_same
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError, TopicNotFoundError
from txn_source.model.topic import TopicView
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId
from txn_source.storage.schema import deserialize_schema

_VERSION = 1


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A transaction that was open where an import stopped, on one partition of the source."""

    partition: int
    name: int
    """What its messages name it by there."""
    first: int
    """Key of its first entry there."""
    txn: TxnId
    """That of the target."""
    committed: bool
    """How it ends, as was known then."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a topic's import has come: up to which key of each partition, exclusive, and what is open there.

    ``text`` is what the target keeps; empty: it has not begun.
    """

    identity: str
    positions: dict[int, int]
    opened: tuple[OpenPart, ...]
    with_topics: tuple[str, ...]
    """What was imported together, if anything is open."""
    traces: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What partitions of the source noted with their positions."""

    @property
    def text(self) -> str:
        opened = [[part.partition, part.name, part.first, str(part.txn), part.committed] for part in self.opened]
        positions = {str(partition): key for partition, key in sorted(self.positions.items())}
        told: dict[str, Any] = {
            "version": _VERSION,
            "of": self.identity,
            "at": positions,
            "open": opened,
            "with": list(self.with_topics) if opened else [],
        }
        if any(self.traces.values()):
            told["traces"] = {str(partition): dict(trace) for partition, trace in sorted(self.traces.items()) if trace}
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str, topic: str) -> Progress:
        """Return what a text tells.

        Raises:
            InvalidArgumentError: another release wrote it.
        """
        told: dict[str, Any] = json.loads(text)
        if told.get("version") != _VERSION:
            raise InvalidArgumentError(
                f"The import into topic {topic!r} was begun by another release of txnlog.", "Go on with that one."
            )
        opened = tuple(OpenPart(p, name, first, TxnId.parse(txn), done) for p, name, first, txn, done in told["open"])
        positions = {int(p): key for p, key in told["at"].items()}
        traces = {int(p): trace for p, trace in told.get("traces", {}).items()}
        return cls(told["of"], positions, opened, tuple(told["with"]), traces)


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic of the target: its name there, and what is known of its import; None: it isn't there yet."""

    name: TopicName
    view: TopicView | None
    progress: Progress | None
    text: str
    """Of the progress, as the target keeps it."""


def find_targets(stub: MetadataStub | None, sources: Sequence[SourceTopic], names: Sequence[str]) -> list[TargetTopic]:
    """Look at the topics that are written to, and check that each can be; nothing is changed.

    ``stub`` is None where there is no log yet.

    Raises:
        SchemaMismatchError: one has other columns than its source.
        InvalidArgumentError: one has fewer or more partitions than its source, messages that weren't imported, or
            those of another source; or what was open where an import stopped was imported together with others.
    """
    for source in sources:
        numbers = [partition.index for partition in source.partitions]
        if len(set(numbers)) < len(numbers):
            raise InvalidArgumentError(
                f"{source.name} has ledgers of a topic without partitions, and of one with them.",
                "Import from a place that has one of the two.",
            )
    targets = [_find(stub, source, TopicName.parse(name)) for source, name in zip(sources, names, strict=True)]
    for target in targets:
        before = () if target.progress is None else target.progress.with_topics
        missing = [name for name in before if not any(is_same(name, source.identity) for source in sources)]
        if missing:
            raise InvalidArgumentError(
                f"The import into topic {target.name.short!r} was stopped within transactions that it shares with"
                f" {', '.join(missing)}.",
                "Name the same topics again, so that these come to their ends.",
            )
    return targets


def _find(stub: MetadataStub | None, source: SourceTopic, name: TopicName) -> TargetTopic:
    if stub is None:
        return TargetTopic(name, None, None, "")
    try:
        [view] = stub.get_view([name]).topics
    except TopicNotFoundError:
        return TargetTopic(name, None, None, "")
    if view.topic.schema is not None and source.schema is None:
        raise SchemaMismatchError(
            f"Topic {name.short!r} has typed columns, and what is imported has key and value as bytes.",
            "Import into a topic of another name.",
        )
    if source.schema is not None and deserialize_schema(view.topic.schema) != source.schema:
        raise SchemaMismatchError(
            f"Topic {name.short!r} has other columns than {', '.join(str(field) for field in source.schema)}, which"
            f" {source.name} has.",
            "Give the schema that the import was begun with, or import into a topic of another name.",
        )
    if len(view.partitions) != source.partition_count:
        raise InvalidArgumentError(
            f"Topic {name.short!r} has {len(view.partitions)} partitions, and {source.name} has"
            f" {source.partition_count}.",
            "Import into a topic of another name.",
        )
    text = stub.get_import(name)
    if not text:
        if any(partition.messages for partition in view.partitions):
            raise InvalidArgumentError(
                f"Topic {name.short!r} has messages that weren't imported.", "Import into a topic of another name."
            )
        return TargetTopic(name, view, None, "")
    progress = Progress.parse(text, name.short)
    if not is_same(progress.identity, source.identity):
        raise InvalidArgumentError(
            f"Topic {name.short!r} was imported from {progress.identity}, and this is {source.identity}.",
            "Import into a topic of another name.",
        )
    return TargetTopic(name, view, progress, text)


def make_missing(access: Access, sources: Sequence[SourceTopic], targets: Sequence[TargetTopic]) -> list[TopicView]:
    """Make the topics that aren't there; return the views of all."""
    for source, target in zip(sources, targets, strict=True):
        if target.view is None:
            create_topic(access, target.name, source.partition_count, source.schema, {})
    return [access.metadata.get_view([target.name]).topics[0] for target in targets]
