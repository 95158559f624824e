"""The hot roots of a log as a client reaches them: each with its name and its segments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from txn_source.client.access import Access
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.roots import MAIN, ONLY_MAIN
from txn_source.storage import root_health
from txn_source.storage.allowed_places import may_open
from txn_source.storage.copies_marker import check, forget
from txn_source.storage.object_root import Root, root_at
from txn_source.storage.root import LogRoot

if TYPE_CHECKING:
    from txn_source.storage.segment_store import SegmentStore


class Place:
    """One root: the set of it alone (``bit``), its name, and the segments in it."""

    def __init__(self, bit: int, name: str, root: Root, log_id: str) -> None:
        self.bit = bit
        self.name = name
        self.root = root
        self._log_id = log_id

    @cached_property
    def segments(self) -> SegmentStore:
        """The segments below the root."""
        from txn_source.storage.segment_store import segments_at

        return segments_at(self.root, self._log_id if self.bit == ONLY_MAIN else None)

    @property
    def key(self) -> str:
        """What tells it from others in this process."""
        return str(self.root)

    @property
    def rests(self) -> bool:
        """True if it has failed a short while ago."""
        return root_health.roots.rests(self.key)

    def check(self) -> None:
        """Raise OSError unless the root is there: what is no root of the log's is neither written to nor believed."""
        if self.bit != ONLY_MAIN:
            check(self.root, self._log_id)
        elif isinstance(self.root, Path) and not LogRoot(self.root).exists:
            raise OSError("its txnlog.json is missing")

    def look(self) -> None:
        """Raise OSError unless the root is there now, whatever was seen before."""
        if self.bit != ONLY_MAIN:
            forget(self.root, self._log_id)
        self.check()

    def failed(self, error: BaseException) -> None:
        """Note that it has failed."""
        root_health.roots.failed(self.key, self.name, error)

    def works(self) -> None:
        """Note that it works."""
        root_health.roots.works(self.key, self.name)


def places_of(access: Access) -> list[Place]:
    """Return all roots that the client knows of, the log's own one first."""
    log_id = access.metadata.log_id
    found = [Place(ONLY_MAIN, MAIN, access.root, log_id)]
    for root in access.metadata.roots:
        if not may_open(str(access.root), root.uri):
            continue
        try:
            found.append(Place(root.bit, root.name, root_at(root.uri), log_id))
        except InvalidArgumentError:
            continue  # of a newer release, or of a file system that this machine doesn't know
    return found


def places_in(access: Access, roots: int, known: Sequence[Place]) -> list[Place]:
    """Return those of a set of roots; one that isn't known yet is asked for."""
    found = [place for place in known if place.bit & roots]
    if sum(place.bit for place in found) != roots:
        access.metadata.get_log()
        found = [place for place in places_of(access) if place.bit & roots]
    return found


def in_order(places: Sequence[Place]) -> list[Place]:
    """Return roots in the order in which to read them: those that work first, and near ones before stores."""
    return sorted(places, key=lambda place: (place.rests, place.segments.is_remote, place.bit))


def delete_everywhere(access: Access, path: str) -> list[OSError]:
    """Delete a segment in all roots; return why it stays in some."""
    failed = []
    for place in places_of(access):
        try:
            if place.bit == ONLY_MAIN:
                place.segments.delete(path)
            else:
                root_health.bounded(partial(_delete, place, path), root_health.READ_S)
        except OSError as error:
            failed.append(error)
    return failed


def _delete(place: Place, path: str) -> None:
    place.check()
    place.segments.delete(path)
