"""Repair: bringing hot segments back to the copies that their topic's policy asks for.

1. Each root that can be reached is listed; one that can't is left out, and what it has stays its own: it may come back.
2. A segment that a root should have and that is missing there, or too short, is lost there; with ``verify`` also one
   whose entries' checksums differ.
3. Lost and missing copies are written anew, of checked bytes, and the service is told.
4. Copies in roots that the policy no longer names are given up once every byte of all others was found right;
   `txnlog gc` removes them.

Two repairs at once write the same bytes; each file is put in one step. Offloaded ledgers whose hot copies were deleted
have no segments any more, and need none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from txn_source.client.access import Access
from txn_source.client.hot_roots import Place, places_of
from txn_source.client.segment_copying import copy_segment, read_sound
from txn_source.metadata.stub.roots import HotSegment, SegmentRoots
from txn_source.model.errors import SegmentUnreadableError, TxnLogError
from txn_source.model.topic_name import TopicName
from txn_source.storage import root_health
from txn_source.storage.segment import topic_prefix

_log = logging.getLogger(__name__)
_LIST_S = 300.0
_TOLD_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair has done: copies written and given up, and of how many segments an entry is sound nowhere."""

    copied: int = 0
    given_up: int = 0
    lost: int = 0

    def __add__(self, other: RepairReport) -> RepairReport:
        return RepairReport(self.copied + other.copied, self.given_up + other.given_up, self.lost + other.lost)


def reachable_places(access: Access) -> tuple[list[Place], dict[str, str]]:
    """Return the roots that can be reached now, and why the others can't, by name."""
    access.metadata.get_log()
    found, failed = [], {}
    for place in places_of(access):
        try:
            root_health.bounded(place.look, root_health.READ_S)
        except OSError as error:
            place.failed(error)
            failed[place.name] = _reason(error)
        else:
            found.append(place)
    return found, failed


def repair_topic(access: Access, topic: TopicName, places: Sequence[Place], *, verify: bool = False) -> RepairReport:
    """Bring the segments of a topic back to full copies; ``places`` are the roots that can be reached."""
    stub, report = access.metadata, RepairReport()
    changes: list[SegmentRoots] = []
    listed: dict[int, dict[str, int]] | None = None
    for segment in stub.list_hot_segments(topic):
        if segment.roots == segment.wanted == 1 and not verify:
            continue  # as it is where there is one root
        if listed is None:
            listed = dict(_listed(places, topic, access))
        change, done = _repair(access, topic, segment, [p for p in places if p.bit in listed], listed, verify)
        report += done
        if change is not None:
            changes.append(change)
        if len(changes) >= _TOLD_AT_ONCE:
            stub.change_segment_roots(topic, changes)
            changes = []
    if changes:
        stub.change_segment_roots(topic, changes)
    return report


def _repair(
    access: Access,
    topic: TopicName,
    segment: HotSegment,
    places: Sequence[Place],
    listed: dict[int, dict[str, int]],
    verify: bool,
) -> tuple[SegmentRoots | None, RepairReport]:
    near = sum(place.bit for place in places)
    there = sum(bit for bit, sizes in listed.items() if sizes.get(segment.path, -1) >= segment.end)
    lost = segment.roots & near & ~there
    surplus = segment.roots & ~segment.wanted
    gives_up = bool(surplus) and not segment.wanted & ~(segment.roots & near)
    if verify or gives_up:
        lost |= _damaged(access, topic, segment, [p for p in places if p.bit & segment.roots & there])
    sound = segment.roots & ~lost
    missing = segment.wanted & near & ~sound
    if missing or lost:
        sources = HotSegment(
            segment.path, segment.roots & ~lost or segment.roots, segment.wanted, segment.end, segment.entries
        )
        try:
            change = copy_segment(access.metadata, topic, sources, places)
        except SegmentUnreadableError as error:
            if sound & ~near:
                return None, RepairReport()  # a root that can't be reached has it
            _log.error("%s", error)
            return None, RepairReport(lost=1)
        removed = (change.removed | lost) & ~change.added
        return SegmentRoots(segment.path, change.added, removed, change.end), RepairReport(
            change.added.bit_count() if change.added else 0
        )
    if gives_up:
        return SegmentRoots(segment.path, 0, surplus, segment.end), RepairReport(given_up=surplus.bit_count())
    return None, RepairReport()


def _damaged(access: Access, topic: TopicName, segment: HotSegment, places: Sequence[Place]) -> int:
    """Return the set of those roots whose copy of a segment isn't sound."""
    found = 0
    for place in places:
        try:
            found |= read_sound(access.metadata, topic, segment, [place]).damaged
        except SegmentUnreadableError:
            found |= place.bit
    return found


def _listed(places: Sequence[Place], topic: TopicName, access: Access) -> Iterator[tuple[int, dict[str, int]]]:
    [view] = access.metadata.get_view([topic]).topics
    prefix = f"{topic_prefix(view.topic.topic_id)}/"
    for place in places:
        try:
            yield place.bit, root_health.bounded(partial(_sizes, place, prefix), _LIST_S)
        except (OSError, TxnLogError) as error:
            place.failed(error)


def _sizes(place: Place, prefix: str) -> dict[str, int]:
    return {found.path: found.size for found in place.segments.stored() if found.path.startswith(prefix)}


def _reason(error: OSError) -> str:
    from txn_source.storage.object_store import reason

    return reason(error)
