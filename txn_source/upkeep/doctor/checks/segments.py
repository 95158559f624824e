"""Hot segments: is each where the database says, whole, in as many roots as it is to be in; and what else is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from txn_source.client.hot_roots import Place
from txn_source.client.segment_copying import unsound
from txn_source.client.tiering.inventory import Inventory
from txn_source.client.tiering.upload_garbage import abort_uploads
from txn_source.metadata.stub.roots import HotSegment
from txn_source.model.roots import ONLY_MAIN
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count
from txn_source.model.verdict import Verdict
from txn_source.storage.object_names import may_be_object
from txn_source.storage.object_root import resolved
from txn_source.storage.object_store import is_passing, is_refused, reason
from txn_source.storage.segment import SegmentName, is_old_note
from txn_source.upkeep.doctor.checks.policies import policies_fit
from txn_source.upkeep.doctor.codes import Severity
from txn_source.upkeep.doctor.extent import Extent, Ledgers, extent, extent_of
from txn_source.upkeep.doctor.findings import Finding, finding, some_files
from txn_source.upkeep.doctor.subject import DAY_S, Checksums, Subject
from txn_source.upkeep.reading_ahead import read_ahead


def check_segments(subject: Subject) -> Iterator[Finding]:
    """Compare the files with what is registered: there, as long as their last entry ends, and as many of their entries
    as was asked for with the checksums that they had when they were written."""
    yield from subject.of_each_topic(lambda topic: _of_topic(subject, topic))


@dataclass(frozen=True, slots=True)
class _Damage:
    """What is wrong with a copy of a segment: how the finding's code ends, and the fact with the entries that are lost
    with the copy."""

    kind: str
    fact: str
    lost: Extent


def _of_topic(subject: Subject, topic: TopicName) -> Iterator[Finding]:
    if not policies_fit(subject, topic):
        return  # which another check tells; where its segments are to be can't be said
    stub = subject.access.metadata
    segments = list(stub.list_hot_segments(topic))
    copies = [(each, place) for each in segments for place in subject.places if place.bit & each.roots]
    of_all = subject.checksums is Checksums.ALL
    total = sum(segment.end for segment, _ in copies) if of_all else None
    subject.watch.begin(f"bytes of {topic.short}", "bytes", total)
    looked_at = read_ahead(
        copies,
        lambda of: _damage(subject, topic, *of),
        is_remote=any(place.segments.is_remote for place in subject.places),
        size=lambda of: of[0].end,
    )
    damaged: dict[str, dict[int, _Damage]] = {}
    for (segment, place), found in looked_at:
        subject.watch.advance(segment.end)
        if isinstance(found, OSError):
            subject.may_not_read("segments", resolved(place.root, segment.path), found)
        elif found is not None and found.lost.entries:  # else it was deleted meanwhile
            damaged.setdefault(segment.path, {})[place.bit] = found
    if damaged or any(segment.wanted & ~segment.roots for segment in segments):
        ledgers = Ledgers(stub, topic)
        known = {segment.path for segment in segments}
        for segment in stub.list_hot_segments(topic):  # as it is now
            if segment.path in known:
                yield from _of_segment(subject, topic, segment, damaged.get(segment.path, {}), ledgers)


def _of_segment(
    subject: Subject, topic: TopicName, segment: HotSegment, damaged: dict[int, _Damage], ledgers: Ledgers
) -> Iterator[Finding]:
    about, path = f"topic {topic.short}", segment.path
    bad = {place: damaged[place.bit] for place in subject.places if place.bit & segment.roots & sum(damaged)}
    others = segment.roots & ~sum(place.bit for place in bad)
    if bad and not others:
        found = next(iter(bad.values()))
        where = "" if [place.bit for place in bad] == [ONLY_MAIN] else f" in {', '.join(place.name for place in bad)}"
        with_object = ledgers.with_object(found.lost)
        elsewhere = "; an object has them, too" if with_object else ""
        yield finding(
            f"segment-{found.kind}",
            about,
            f"Segment {path}{where} {found.fact}{elsewhere}.",
            Severity.WARNING if with_object else None,
            topic=topic.short,
            path=path,
            entries=found.lost.entries,
            ledgers=found.lost.ledgers,
            ledger=found.lost.ledgers[0],
        )
    for place, found in bad.items() if others else ():
        code = "copy-damaged" if found.kind == "damaged" else "copy-missing"
        fact = f"The copy of {path} in the root {place.name} {found.fact}; others are there."
        yield finding(code, about, fact, topic=topic.short, path=path, root=place.name)
    few = segment.wanted & ~segment.roots
    if few and not bad:
        names = [root.name for root in subject.access.metadata.roots if root.bit & few]
        names = ["main", *names] if few & ONLY_MAIN else names
        fact = f"Segment {path} with {segment.entries:,} entries has no copy in {', '.join(names)}."
        yield finding("copies-few", about, fact, topic=topic.short, path=path, roots=names)


def _damage(subject: Subject, topic: TopicName, segment: HotSegment, place: Place) -> _Damage | OSError | None:
    """Return what is damaged in a root, or why this user may not read it.

    Raises:
        OSError: the store can't be asked now.
    """
    stub = subject.access.metadata

    def of_all(kind: str, fact: str) -> _Damage:
        lost = extent(stub, topic, segment.path)
        return _Damage(kind, f"{fact}, which has {lost}", lost)

    def some(count: int) -> Sequence[int]:
        return sorted({0, count - 1, subject.chance.randrange(count)})

    try:
        size = place.segments.size(segment.path)
        if size is None or size < segment.end:
            return (
                of_all("missing", "is missing")
                if size is None
                else of_all("short", f"has {size:,} bytes of {segment.end:,}")
            )
        if subject.checksums is Checksums.NONE:
            return None
        chosen = some if subject.checksums is Checksums.SAMPLE else None
        lost = extent_of(unsound(stub, topic, segment, place, chosen, subject.pace.take))
        fact = f"has other bytes than were written (CRC-32C) in {lost} of those that were read"
        return _Damage("damaged", fact, lost) if lost.entries else None
    except OSError as error:
        if is_refused(error):
            return error
        if is_passing(error):
            raise
        return of_all("damaged", f"can't be read ({reason(error)})")


def check_short_entries(subject: Subject) -> Iterator[Finding]:
    """Look for entries that nobody reads yet because they have too few copies."""
    if not subject.access.metadata.roots:
        return

    def of_topic(topic: TopicName) -> Iterator[Finding]:
        for first, then in zip(_short(subject, topic), _short(subject, topic), strict=False):
            if first == then and first is not None:  # it hasn't moved since: no producer is waiting for a root only now
                partition, high, end = first
                fact = f"Partition {partition} of {topic.short} has entries in [{high}, {end}) with too few copies."
                yield finding("entries-short", f"topic {topic.short}", fact, topic=topic.short, partition=partition)

    yield from subject.of_each_topic(of_topic)


def _short(subject: Subject, topic: TopicName) -> list[tuple[int, str, str] | None]:
    [view] = subject.access.metadata.get_view([topic]).topics
    return [
        None
        if p.bounds.high_watermark == p.bounds.log_end
        else (p.index, str(p.bounds.high_watermark), str(p.bounds.log_end))
        for p in view.partitions
    ]


def check_unreferenced(subject: Subject) -> Iterator[Finding]:
    """Look for old files that the log doesn't refer to: what is garbage, what nobody knows, and what has numbers that
    this database has not given yet."""
    oldest = subject.now_s - DAY_S
    found = Inventory(subject.access, subject.places)
    for verdict, code, what in (
        (Verdict.LEFTOVER, "segment-unreferenced", "from which nothing can be registered any more"),
        (Verdict.UNKNOWN, "file-unknown", "of which the log doesn't know whether somebody needs them"),
    ):
        files = found.of(verdict, oldest)
        if files:
            size = sum(file.size for copies in files.values() for file in copies)
            fact = f"{format_count(len(files), 'file')}, {size:,} bytes, {what}: older than a day."
            yield finding(code, "files", fact, **some_files(list(files)))
    ahead = found.of(Verdict.AHEAD)
    beside = {uri for uri in ahead if may_be_object(uri) and resolved(subject.access.root, uri) == uri}
    if ahead.keys() - beside:
        fact = f"{format_count(len(ahead), 'file')} have numbers that this database has not given yet."
        yield finding("database-behind", "files", fact, **some_files(list(ahead)))
    elif beside:
        fact = f"{format_count(len(beside), 'object')} name this log, and ledgers that it has not made."
        yield finding("log-twice", "files", fact, **some_files(sorted(beside)))
    uploads = abort_uploads(subject.access, oldest, dry_run=True)
    if uploads:
        fact = f"{len(uploads)} uploads of objects were begun more than a day ago and never ended."
        yield finding("segment-unreferenced", "uploads", fact, **some_files(uploads))


def check_among_segments(subject: Subject) -> Iterator[Finding]:
    """Look for files among the segments that are none of ours."""
    for place in subject.places:
        strange = [
            found.path
            for found in place.segments.stored()
            if SegmentName.parse(found.path) is None and not is_old_note(found.path)
        ]
        if strange:
            where = "" if place.bit == ONLY_MAIN else f" in the root {place.name}"
            fact = f"{format_count(len(strange), 'file')} among the segments{where}, not txnlog's."
            yield finding("file-strange", f"root {place.name}", fact, root=place.name, **some_files(strange))
