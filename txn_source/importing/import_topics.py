"""Importing topics that others wrote: what a user calls, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from txn_source.client.log import Log
from txn_source.foreign.target import ForeignTarget
from txn_source.importing.course import Course, Undecided, chart
from txn_source.importing.history import SourceTopic
from txn_source.importing.importer import FeedsOf, Importer
from txn_source.importing.source import Source, open_source, topics_of
from txn_source.importing.target_topics import TargetTopic, find_targets, make_missing
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import Position


@dataclass(frozen=True, slots=True)
class ImportedPart:
    """What is imported of a partition: from where up to where, exclusive, and where the source ends."""

    topic: str
    partition: int
    start: Position
    end: Position
    source_end: Position


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was imported, or with a dry run what would be."""

    parts: tuple[ImportedPart, ...]
    transactions: int
    """How many touch the parts."""
    messages: int
    """How many there were, aborted ones among them; 0 with a dry run."""


def import_topics(
    source: str | ForeignTarget | Source,
    topics: str | Sequence[str],
    log: Log | None,
    *,
    names: Sequence[str] | None = None,
    undecided: str = "leave",
    dry_run: bool = False,
    options: Mapping[str, str] | None = None,
    progress: Callable[[int], object] | None = None,
    metadata: str | Sequence[str] = (),
    typed: bool = False,
    feeds_of: FeedsOf | None = None,
) -> ImportReport:
    """Import topics of Kafka's or Pulsar's into a log, with their transactions as transactions.

    Each partition keeps its number and the order of its messages, aborted ones among them; transactions that overlap do
    so again. So both logs show the same at both levels, up to where it ends: at the last stable position, if several
    partitions are imported at a consistent cut, as a read of them. A later call goes on there. So does one after a call
    that was killed, or failed, anywhere: nothing comes twice, nothing is left out. It has a week for that: then
    transactions that were open where it stopped are aborted.

    A topic's bytes are kept: ``key`` and ``value``. Kafka's timestamp becomes the event time, and headers become
    properties (``kafka_source.py``); Pulsar's event time and properties stay. The publish time is that of the import.
    Pulsar's other metadata is kept as properties if it is named (``pulsar_source.py``).

    Args:
        source: ``kafka:/folder`` or ``pulsar:/folder``, or the same of a bucket; or what ``connect`` has as target.
        topics: one, or several. Transactions over several topics stay whole if these are imported together.
        log: the target; None, of a dry run only, one that is still to be made. Topics that aren't there are made;
            nobody else may write to them until all is imported.
        names: of the topics in the target; None: those of the source.
        undecided: what becomes of transactions that the source hasn't decided. ``leave`` ends below the first of them.
            ``keep`` imports up to the high watermark, so that read_uncommitted shows the same, too; they stay open for
            a week, in which a later call brings their ends. ``abort`` imports and aborts them: for a source that ends.
        dry_run: say what would be imported, and change nothing.
        options: what the source's format has to be told, such as Pulsar's ``managedLedgers``.
        progress: is told after each batch how many messages have been imported.
        metadata: what else of Pulsar's is kept, such as ``__ordering_key``; or ``all``.
        typed: give keys and values in the target the types that Pulsar's option ``schema`` says.
        feeds_of: has the topics read elsewhere (``Importer``).

    Raises:
        TopicNotFoundError: the source has no such topic.
        InvalidArgumentError: a topic of the target is another one's, has other partitions, or messages of its own.
        SchemaMismatchError: a topic of the target has other columns.
        MessageUnreadableError: a value isn't of the schema by which it is to be typed.
        ProducerFencedError: another import of a topic has gone on meanwhile.
        DataLossError: the source has lost what wasn't imported yet.
        SegmentUnreadableError: the source is damaged.
    """
    how = _how(undecided)
    if log is None and not dry_run:
        raise InvalidArgumentError("There is no log to import to.", "Give one that txn_source.connect returned.")
    topics = [topics] if isinstance(topics, str) else list(topics)
    if not topics or len(set(topics)) < len(topics):
        raise InvalidArgumentError("No topic is named, or one is twice.", "Name each once.")
    names = list(topics if names is None else names)
    if len(names) != len(topics) or len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"{len(topics)} topics can't have the names {', '.join(names)}.", "Give each a name of its own."
        )
    opened = open_source(source, options) if isinstance(source, str | ForeignTarget) else source
    sources = topics_of(opened, topics, [metadata] if isinstance(metadata, str) else list(metadata), typed=typed)
    targets = find_targets(None if log is None else log.metadata, sources, names)
    course = _course(sources, targets, how)
    parts = tuple(
        ImportedPart(
            topics[lane.topic],
            lane.source.index,
            lane.of.start,
            lane.of.end,
            lane.source.partition.bounds().high_watermark,
        )
        for lane in course.lanes
    )
    if dry_run or log is None:
        return ImportReport(parts, course.transactions, 0)
    views = make_missing(log.access, sources, targets)
    messages = Importer(log.access, sources, targets, views, course, progress, feeds_of).run()
    return ImportReport(parts, course.transactions, messages)


def _how(undecided: str) -> Undecided:
    try:
        return Undecided(undecided)
    except ValueError:
        raise InvalidArgumentError(
            f"What is undecided can't be {undecided!r}.", f"Use {', '.join(how.value for how in Undecided)}."
        ) from None


def _course(sources: Sequence[SourceTopic], targets: Sequence[TargetTopic], undecided: Undecided) -> Course:
    starts = {
        (topic, partition): key
        for topic, target in enumerate(targets)
        if target.progress is not None
        for partition, key in target.progress.positions.items()
    }
    traces = {
        (topic, partition): trace
        for topic, target in enumerate(targets)
        if target.progress is not None
        for partition, trace in target.progress.traces.items()
    }
    lanes = [(topic, partition) for topic, source in enumerate(sources) for partition in source.partitions]
    return chart(lanes, starts, undecided, traces)
