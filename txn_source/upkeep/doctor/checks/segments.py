"""Hot segments: is each where the database says, long enough, in as many roots as it is to be in; and what else is
there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txn_source.client.hot_roots import Place
from txn_source.client.tiering.inventory import Inventory
from txn_source.client.tiering.upload_garbage import abort_uploads
from txn_source.metadata.stub.roots import HotSegment
from txn_source.model.roots import ONLY_MAIN
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count
from txn_source.model.verdict import Verdict
from txn_source.storage.object_names import may_be_object
from txn_source.storage.object_root import located
from txn_source.storage.object_store import is_refused
from txn_source.storage.segment import SegmentName, is_old_note
from txn_source.upkeep.doctor.checks.policies import policies_fit
from txn_source.upkeep.doctor.codes import Severity
from txn_source.upkeep.doctor.extent import Extent, Ledgers, extent
from txn_source.upkeep.doctor.findings import Finding, finding, some_files
from txn_source.upkeep.doctor.subject import DAY_S, Subject

_UNKNOWN = 1 << 62


def check_segments(subject: Subject) -> Iterator[Finding]:
    """Compare the files with what is registered: there, and as long as their last entry ends."""
    listed = _listed(subject)
    yield from subject.of_each_topic(lambda topic: _of_topic(subject, topic, listed))


def _listed(subject: Subject) -> dict[int, dict[str, int]]:
    """Return the sizes of all files of roots in which each look at one takes long."""
    return {
        place.bit: {found.path: found.size for found in subject.stored(place)}
        for place in subject.places
        if place.segments.is_remote
    }


def _of_topic(subject: Subject, topic: TopicName, listed: dict[int, dict[str, int]]) -> Iterator[Finding]:
    if not policies_fit(subject, topic):
        return  # which another check tells; where its segments are to be can't be said
    ledgers: Ledgers | None = None
    near = sum(place.bit for place in subject.places)
    for segment in subject.access.metadata.list_hot_segments(topic):
        sizes = {
            p.bit: _size(subject, p, segment.path, listed.get(p.bit)) for p in subject.places if p.bit & segment.roots
        }
        bad = [p for p in subject.places if p.bit & segment.roots and sizes[p.bit] < segment.end]
        few = segment.wanted & ~segment.roots
        if not bad and not few:
            continue
        sizes = {place.bit: _size(subject, place, segment.path) for place in bad}  # now, not when they were listed
        bad = [place for place in bad if sizes[place.bit] < segment.end]
        if few and not bad:
            few = _still_few(subject, topic, segment)
            if few:
                yield _few(subject, topic, segment, few)
            continue
        if not bad:
            continue
        lost = extent(subject.access.metadata, topic, segment.path)
        if not lost.entries:
            continue  # deleted meanwhile
        if segment.roots & ~sum(place.bit for place in bad):
            for place in bad:
                yield _copy_missing(topic, segment, place, sizes[place.bit])
            continue
        ledgers = ledgers or Ledgers(subject.access.metadata, topic)
        if segment.roots & near == segment.roots:
            yield _lost(topic, segment, bad, sizes, lost, ledgers)


def _size(subject: Subject, place: Place, path: str, listed: dict[str, int] | None = None) -> int:
    """Return a file's length, that of any file if this user may not look at it; -1 if it isn't there, or broken."""
    if listed is not None:
        return listed.get(path, -1)
    try:
        found = place.segments.size(path)
    except OSError as error:
        if is_refused(error):
            subject.may_not_read("segments", located(place.root, path), error)
            return _UNKNOWN
        return -1
    return -1 if found is None else found


def _still_few(subject: Subject, topic: TopicName, segment: HotSegment) -> int:
    """Return the set of roots that a segment still lacks, by a second look at the database."""
    for now in subject.access.metadata.list_hot_segments(topic):
        if now.path == segment.path:
            return now.wanted & ~now.roots
    return 0


def _few(subject: Subject, topic: TopicName, segment: HotSegment, few: int) -> Finding:
    names = [root.name for root in subject.access.metadata.roots if root.bit & few]
    names = ["main", *names] if few & ONLY_MAIN else names
    fact = f"Segment {segment.path} with {segment.entries:,} entries has no copy in {', '.join(names)}."
    return finding("copies-few", f"topic {topic.short}", fact, topic=topic.short, path=segment.path, roots=names)


def _copy_missing(topic: TopicName, segment: HotSegment, place: Place, size: int) -> Finding:
    fact = f"The copy of {segment.path} in the root {place.name} {_what(size, segment.end)}; others are there."
    return finding("copy-missing", f"topic {topic.short}", fact, topic=topic.short, path=segment.path, root=place.name)


def _lost(
    topic: TopicName,
    segment: HotSegment,
    bad: Sequence[Place],
    sizes: dict[int, int],
    lost: Extent,
    ledgers: Ledgers,
) -> Finding:
    size = max(sizes[place.bit] for place in bad)
    where = "" if len(bad) == 1 and bad[0].bit == ONLY_MAIN else f" in {', '.join(place.name for place in bad)}"
    with_object = ledgers.with_object(lost)
    elsewhere = "; an object has them, too" if with_object else ""
    fact = f"Segment {segment.path}{where} {_what(size, segment.end)}, which has {lost}{elsewhere}."
    return finding(
        "segment-missing" if size < 0 else "segment-short",
        f"topic {topic.short}",
        fact,
        Severity.WARNING if with_object else None,
        topic=topic.short,
        path=segment.path,
        entries=lost.entries,
        ledgers=lost.ledgers,
        ledger=lost.ledgers[0],
    )


def _what(size: int, end: int) -> str:
    return "is missing" if size < 0 else f"has {size:,} bytes of {end:,}"


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
    beside = {uri for uri in ahead if may_be_object(uri) and located(subject.access.root, uri) == uri}
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
            for found in subject.stored(place)
            if SegmentName.parse(found.path) is None and not is_old_note(found.path)
        ]
        if strange:
            where = "" if place.bit == ONLY_MAIN else f" in the root {place.name}"
            fact = f"{format_count(len(strange), 'file')}{where} among the segments are none of txnlog's."
            yield finding("file-strange", f"root {place.name}", fact, root=place.name, **some_files(strange))
