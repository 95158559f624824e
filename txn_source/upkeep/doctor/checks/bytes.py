"""The checksums of entries in hot segments: all of them, or of each segment its first, its last and one between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txn_source.client.hot_roots import Place
from txn_source.client.segment_copying import unsound
from txn_source.metadata.stub.roots import HotSegment
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass
from txn_source.storage.object_root import located
from txn_source.storage.object_store import is_passing, is_refused, reason
from txn_source.upkeep.doctor.checks.policies import policies_fit
from txn_source.upkeep.doctor.codes import Severity
from txn_source.upkeep.doctor.extent import Extent, Ledgers, extent, extent_of
from txn_source.upkeep.doctor.findings import Finding, finding
from txn_source.upkeep.doctor.subject import Checksums, Subject
from txn_source.upkeep.reading_ahead import read_ahead


def check_bytes(subject: Subject) -> Iterator[Finding]:
    """Read entries of all hot segments, from every root that has them, and compare their checksums."""
    if subject.checksums is not Checksums.NONE:
        yield from subject.of_each_topic(lambda topic: _of_topic(subject, topic))


def _of_topic(subject: Subject, topic: TopicName) -> Iterator[Finding]:
    if not policies_fit(subject, topic):
        return  # which another check tells
    stub = subject.access.metadata
    segments = {segment.path: segment for segment in stub.list_hot_segments(topic)}
    copies = [(s, place) for s in segments.values() for place in subject.places if place.bit & s.roots]
    of_all = subject.checksums is Checksums.ALL
    total = sum(segment.end for segment, _ in copies) if of_all else None
    subject.watch.begin(f"bytes of {topic.short}", "bytes", total)
    damage: dict[str, dict[str, _Damage]] = {}
    looked_at = read_ahead(
        copies,
        lambda of: _damage(subject, topic, *of),
        is_remote=any(place.segments.is_remote for place in subject.places),
        size=lambda of: of[0].end,
    )
    for (segment, place), found in looked_at:
        subject.watch.advance(segment.end)
        if isinstance(found, OSError):
            subject.may_not_read("segments", located(place.root, segment.path), found)
        elif found is not None:
            damage.setdefault(segment.path, {})[place.name] = found
    ledgers: Ledgers | None = None
    for path, by_root in sorted(damage.items()):
        if not extent(stub, topic, path).entries:
            continue  # deleted meanwhile
        bad = sum(place.bit for place in subject.places if place.name in by_root)
        if segments[path].roots & ~bad:
            for name, found in by_root.items():
                fact = f"The copy of {path} in the root {name}: {found}."
                yield finding("copy-damaged", f"topic {topic.short}", fact, topic=topic.short, path=path, root=name)
        else:
            ledgers = ledgers or Ledgers(stub, topic)
            yield _damaged(topic, path, next(iter(by_root.values())), ledgers)


@dataclass(frozen=True, slots=True)
class _Damage:
    """Entries of a segment in a root that aren't what was written, or that can't be read, and why."""

    lost: Extent
    why: str = "what was written (CRC-32C)"

    def __str__(self) -> str:
        return f"{self.lost} of those that were read isn't {self.why}"


def _damage(subject: Subject, topic: TopicName, segment: HotSegment, place: Place) -> _Damage | OSError | None:
    """Return what is damaged in a root, nothing of a file that is missing or short, which is another finding; or why
    this user may not read it.

    Raises:
        OSError: the store can't be asked now.
    """

    def some(count: int) -> Sequence[int]:
        return sorted({0, count - 1, subject.chance.randrange(count)})

    stub = subject.access.metadata
    chosen = None if subject.checksums is Checksums.ALL else some
    try:
        size = place.segments.size(segment.path)
        if size is None or size < segment.end:
            return None
        positions = unsound(stub, topic, segment, place, chosen, subject.pace.take)
        return _Damage(extent_of(positions)) if positions else None
    except OSError as error:
        if is_refused(error):
            return error
        if is_passing(error):
            raise
        return _Damage(extent(stub, topic, segment.path), f"to be read ({reason(error)})")


def _damaged(topic: TopicName, path: str, found: _Damage, ledgers: Ledgers) -> Finding:
    with_object = ledgers.with_object(found.lost)
    elsewhere = " An object has them, too." if with_object else ""
    return finding(
        "segment-damaged",
        f"topic {topic.short}",
        f"Segment {path}: {found}.{elsewhere}",
        Severity.WARNING if with_object else None,
        topic=topic.short,
        path=path,
        entries=found.lost.entries,
        ledgers=found.lost.ledgers,
        ledger=found.lost.ledgers[0],
    )
