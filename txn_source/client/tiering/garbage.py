"""Garbage collection: what ended writers left goes, what nobody knows is told, and stays where it lies.

1. All files in the log's places are listed, and then judged by the database (``metadata/store/verdicts.py``).
2. If one has a number that the log hasn't given out, its database is older than its files: nothing is deleted.
3. What nothing can be registered from any more is doomed, in the transaction that judges it once more, and deleted.

Ages, and with them clocks, only decide what is tried. An unknown file is deleted only at the operator's word
(``delete_unknown``); one that becomes known again, since the newer database was put back, isn't unknown any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from txn_source.client.access import Access
from txn_source.client.hot_roots import Place
from txn_source.client.tiering.deletion import delete_all_doomed, note_deleted
from txn_source.client.tiering.inventory import Inventory, UnknownFile
from txn_source.client.tiering.upload_garbage import abort_uploads
from txn_source.model.errors import InvalidArgumentError, TopicNotFoundError, UnavailableError
from txn_source.model.units import format_count, is_number
from txn_source.model.verdict import Doom, Verdict

DEFAULT_AGE_S = 24 * 3600.0
"""Younger files are left for a later collection."""
DEFAULT_UNKNOWN_AGE_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a collection removed, or would remove: paths relative to the root, and their size."""

    paths: tuple[str, ...]
    bytes: int
    uploads: tuple[str, ...] = ()
    """URIs of uploads to S3 that were begun by an offload and never ended."""
    unknown: tuple[str, ...] = ()
    """What nobody knows, and what stays."""


def collect_garbage(
    access: Access,
    older_than_s: float,
    *,
    dry_run: bool,
    clock: Callable[[], float] = time.time,
    told: Callable[[int, int], object] = lambda *_: None,
) -> Garbage:
    """Remove files from which nothing can be registered any more and that were last written so many seconds ago, and
    uploads of offloaded ledgers that were begun as long ago and never ended.

    ``clock`` returns seconds since the epoch, as the files' times are. ``told`` is given how many files were removed,
    of how many.

    Raises:
        UnavailableError: the log's database is older than its files.
    """
    oldest = clock() - _age(older_than_s)
    found = _inventory(access)
    left = found.of(Verdict.LEFTOVER, oldest)
    unknown = found.of(Verdict.UNKNOWN)
    surplus = list(_surplus(access, found, oldest))
    if not dry_run:
        left = _removed(access, left, Doom.LEFTOVER, told)
        surplus = [each for each in surplus if _deleted(access, *each)]
    paths = (*sorted(left), *(f"{place.name}:{file.uri}" for place, file in surplus))
    size = sum(file.size for files in left.values() for file in files) + sum(file.size for _, file in surplus)
    uploads = tuple(abort_uploads(access, oldest, dry_run=dry_run))
    return Garbage(paths, size, uploads, tuple(sorted(unknown)))


def unknown_files(access: Access) -> list[UnknownFile]:
    """Return the files of which the log doesn't know whether somebody needs them, oldest first.

    Raises:
        UnavailableError: the log's database is older than its files.
    """
    found = [file for files in _inventory(access).of(Verdict.UNKNOWN).values() for file in files]
    return sorted(found, key=lambda file: (file.modified_at_s, file.uri, file.place))


def delete_unknown(
    access: Access, older_than_s: float, *, settled: bool = False, clock: Callable[[], float] = time.time
) -> Garbage:
    """Delete the unknown files that were last written so many seconds ago, at the operator's word.

    ``settled``: the log was put back to an earlier moment, and what it lost was looked at.

    Raises:
        UnavailableError: the log's database is older than its files.
        InvalidArgumentError: the log was put back, and that isn't settled.
    """
    oldest = clock() - _age(older_than_s)
    unknown = _inventory(access).of(Verdict.UNKNOWN, oldest)
    if settled:
        access.metadata.judge_files([], settled=True)
    gone = _removed(access, unknown, Doom.UNKNOWN)
    return Garbage(tuple(sorted(gone)), sum(file.size for files in gone.values() for file in files))


def _inventory(access: Access) -> Inventory:
    found = Inventory(access)
    ahead = list(found.of(Verdict.AHEAD))
    if ahead:
        raise UnavailableError(
            f"{format_count(len(ahead), 'file')}, such as {ahead[0].partition('?')[0]}, have numbers that the log"
            " hasn't given out: its database is older than its files. Nothing was deleted.",
            "Put the newer database back. If it is lost, move this one away and run `txnlog recover`.",
        )
    return found


def _age(seconds: float) -> float:
    if not is_number(seconds):
        raise InvalidArgumentError(f"{seconds!r:.80} is not an age.", "Use seconds, or a text such as 7d or 24h.")
    if seconds < 0:
        raise InvalidArgumentError(f"{seconds:g} s is not an age.", "Use 0 or more.")
    return seconds


def _removed(
    access: Access,
    files: dict[str, list[UnknownFile]],
    doom: Doom,
    told: Callable[[int, int], object] = lambda *_: None,
) -> dict[str, list[UnknownFile]]:
    """Doom files, if they are still what they were judged to be, and delete them; return those that were doomed."""
    if not files:
        return {}
    uris = sorted(files)
    going = (Verdict.LEFTOVER, Verdict.RELEASED, *((Verdict.UNKNOWN,) if doom is Doom.UNKNOWN else ()))
    found = access.metadata.judge_files(uris, doom)
    gone = {uri: files[uri] for uri, verdict in zip(uris, found, strict=True) if verdict in going}
    told(0, len(gone))
    delete_all_doomed(access)
    told(len(gone), len(gone))
    return gone


def _surplus(access: Access, found: Inventory, oldest: float) -> Iterator[tuple[Place, UnknownFile]]:
    """Yield old copies of segments in roots that they are no longer to be in, and that others have.

    Whether a root has a segment is asked after it was listed: what a repair has just brought there is its own.
    """
    if len(found.places) == 1:
        return
    wanted: dict[str, int] = {}
    for topic in access.metadata.list_topics():
        try:
            wanted.update({s.path: s.roots | s.wanted for s in access.metadata.list_hot_segments(topic)})
        except TopicNotFoundError:
            continue  # deleted since it was listed
    for place in found.places:
        for uri, files in sorted(found.files.items()):
            for file in files:
                in_it = file.place == place.name and file.modified_at_s <= oldest
                if in_it and uri in wanted and not wanted[uri] & place.bit:
                    yield place, file


def _deleted(access: Access, place: Place, file: UnknownFile) -> bool:
    try:
        place.segments.delete(file.uri)
    except OSError as error:
        place.failed(error)
        return False
    note_deleted(access, file.uri, place.name)
    return True
