"""The hot roots of a log, and what lies in them, as people look after them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

from txn_source.client.access import Access
from txn_source.client.connected import Connected
from txn_source.client.hot_roots import Place, places_of
from txn_source.client.tiering.garbage import (
    DEFAULT_AGE_S,
    DEFAULT_UNKNOWN_AGE_S,
    Garbage,
    collect_garbage,
    delete_unknown,
    unknown_files,
)
from txn_source.client.tiering.inventory import UnknownFile
from txn_source.model.door import guarded
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.roots import MAIN, parse_root_name
from txn_source.model.units import given_duration
from txn_source.storage import root_health
from txn_source.storage.copies_marker import claim, forget
from txn_source.storage.object_root import Root, root_at


@dataclass(frozen=True, slots=True)
class RootInfo:
    """A root: its place without parameters, and whether it can be reached from here; ``why`` says why it can't.

    ``segments`` and ``bytes`` are what it has all of, ``short_entries`` how many entries it is to have and lacks.
    """

    name: str
    uri: str
    reachable: bool
    why: str
    segments: int
    bytes: int
    short_entries: int


@guarded
class Rooted(Connected):
    """A connection to a log with hot roots."""

    def collect_garbage(self, older_than: float | timedelta | str = DEFAULT_AGE_S, dry_run: bool = False) -> Garbage:
        """Remove segment files that ended producers and jobs left unregistered and that were last written so many
        seconds ago, and uploads of offloaded ledgers to S3 that were begun as long ago and never ended.

        Raises:
            UnavailableError: the log's database is older than its files. Nothing is removed then.
        """
        return collect_garbage(self._access, given_duration(older_than), dry_run=dry_run)

    def unknown_files(self) -> list[UnknownFile]:
        """Return the files in the log's places of which it doesn't know whether somebody needs them, oldest first.

        Nothing deletes them but ``delete_unknown``; one that becomes known again isn't among them any more.

        Raises:
            UnavailableError: the log's database is older than its files.
        """
        return unknown_files(self._access)

    def delete_unknown(
        self, older_than: float | timedelta | str = DEFAULT_UNKNOWN_AGE_S, *, recovered: bool = False
    ) -> Garbage:
        """Delete the unknown files that were last written so many seconds ago.

        Args:
            older_than: seconds, a ``timedelta``, or a text such as ``7d``.
            recovered: the log was put back to an earlier moment, and what lies there of the time that it lost was
                looked at: it is to go, too.

        Raises:
            InvalidArgumentError: the log was put back, and ``recovered`` isn't given. Nothing is deleted then.
            UnavailableError: the log's database is older than its files. Nothing is deleted then.
        """
        return delete_unknown(self._access, given_duration(older_than), settled=recovered)

    def add_root(self, name: str, uri: str | os.PathLike[str]) -> None:
        """Add a root for copies of hot entries; the policy ``hot_copies`` names the roots that have them.

        Args:
            name: lowercase letters, digits, ``-`` and ``_``; the log's own root is ``main``.
            uri: an empty or new folder, or a prefix of an object store, which all clients reach by this path or URI.

        Adding a root that is there again makes its marker anew, after its disk was lost.

        Raises:
            InvalidArgumentError: the name or the place can't be, or is taken, or is another log's.
            StorageWriteError: the place can't be written.
        """
        parse_root_name(name)
        root = root_at(uri)
        _check_apart(root, [place for place in self._places() if place.name != name])
        if name == MAIN:
            raise InvalidArgumentError(f"{MAIN} is the log's own root.", "Choose another name.")
        known = next((r for r in self._stub.roots if r.name == name), None)
        if known is not None and known.uri != str(root):
            self._stub.add_root(name, str(root))  # which is refused
        claim(root, self._stub.log_id, name)
        self._stub.add_root(name, str(root))
        self._stub.get_log()

    def remove_root(self, name: str) -> None:
        """Remove a root. What lies there is left as it is, and no copy of the log's any more.

        Raises:
            InvalidArgumentError: there is none, or a policy names it, or segments lie there alone.
        """
        gone = next((place for place in self._places() if place.name == name), None)
        self._stub.remove_root(name)
        if gone is not None:
            forget(gone.root, self._stub.log_id)
        self._stub.get_log()

    def roots(self) -> list[RootInfo]:
        """Describe all roots, the log's own one first."""
        places = self._places()
        segments, sizes, short = ({place.bit: 0 for place in places} for _ in range(3))
        for topic in self._stub.list_topics():
            for segment in self._stub.list_hot_segments(topic):
                for place in places:
                    if segment.roots & place.bit:
                        segments[place.bit] += 1
                        sizes[place.bit] += segment.end
                    elif segment.wanted & place.bit:
                        short[place.bit] += segment.entries
        found = []
        for place in places:
            why = _why_unreachable(place)
            of = (segments[place.bit], sizes[place.bit], short[place.bit])
            found.append(RootInfo(place.name, str(place.root).partition("?")[0], not why, why, *of))
        return found

    def _places(self) -> list[Place]:
        self._stub.get_log()
        access: Access = self._access
        return places_of(access)


def _why_unreachable(place: Place) -> str:
    from txn_source.storage.object_store import reason

    try:
        root_health.bounded(place.look, root_health.READ_S)
    except OSError as error:
        return reason(error)
    return ""


def _check_apart(root: Root, places: list[Place]) -> None:
    """Raise INVALID_ARGUMENT if a root lies in another one, or another one in it."""
    mine = f"{str(root).partition('?')[0].rstrip('/')}/"
    for place in places:
        other = f"{str(place.root).partition('?')[0].rstrip('/')}/"
        if mine.startswith(other) or other.startswith(mine):
            raise InvalidArgumentError(
                f"The place {mine.rstrip('/')} lies in the root {place.name!r}, or that one in it.",
                "Name a folder, or a prefix, of its own: copies are of use where they fail apart.",
            )
