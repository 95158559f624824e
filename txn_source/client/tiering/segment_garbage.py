"""Removing segment files that nothing refers to: of crashed producers, failed jobs and deleted topics.

1. The files that are there are listed; a young one is left alone, since its writer is likely to be at work.
2. Those that have been registered from are kept.
3. The others are condemned: from then on nothing can be registered from them, whoever comes late.
4. They are deleted. After a crash before that, the next collection finds them condemned, and deletes them.

So ages, and with them clocks, only decide what is tried. A producer whose file was taken writes its data to a new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from txn_source.client.access import Access
from txn_source.client.hot_roots import Place, delete_everywhere, places_of
from txn_source.client.tiering.upload_garbage import abort_uploads
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.units import is_number
from txn_source.model.values import dataclass
from txn_source.storage.segment import SegmentName

DEFAULT_AGE_S = 24 * 3600.0
"""A file counts as abandoned after this: longer than any producer or job needs from writing to registering."""
_CONDEMNED_AT_ONCE = 1000
"""So many paths in one write transaction, which others wait for."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a collection removed, or would remove: paths relative to the root, and their size."""

    paths: tuple[str, ...]
    bytes: int
    uploads: tuple[str, ...] = ()
    """URIs of uploads to S3 that were begun by an offload and never ended."""


def collect_garbage(
    access: Access,
    older_than_s: float,
    *,
    dry_run: bool,
    clock: Callable[[], float] = time.time,
    told: Callable[[int, int], object] = lambda *_: None,
) -> Garbage:
    """Remove files that no entry was ever registered from and that were last written so many seconds ago, and uploads
    of offloaded ledgers that were begun as long ago and never ended.

    ``clock`` returns seconds since the epoch, as the files' times are. ``told`` is given how many files were looked at
    to be removed, of how many.
    """
    if not is_number(older_than_s):
        raise InvalidArgumentError(f"{older_than_s!r:.80} is not an age.", "Use seconds, or a text such as 7d or 24h.")
    if older_than_s < 0:
        raise InvalidArgumentError(f"{older_than_s:g} s is not an age.", "Use 0 or more.")
    oldest = clock() - older_than_s
    places = places_of(access)
    sizes = _stored(places, oldest)
    strange = _not_theirs(access, places, oldest)
    unused = sorted(sizes.keys() - set(access.metadata.list_segments()))
    unused = [path for path in unused if SegmentName.parse(path) is not None]  # what isn't ours isn't our garbage
    if not dry_run:
        unused = _remove(access, unused, told)
        strange = [(place, path, size) for place, path, size in strange if _deleted(place, path)]
    paths = [*unused, *(f"{place.name}:{path}" for place, path, _ in strange)]
    size = sum(sizes[path] for path in unused) + sum(size for _, _, size in strange)
    return Garbage(tuple(paths), size, tuple(abort_uploads(access, oldest, dry_run=dry_run)))


def _stored(places: Sequence[Place], oldest: float) -> dict[str, int]:
    """Return the sizes of the files that were last written before a time, over all roots that can be listed."""
    sizes: dict[str, int] = {}
    for place in places:
        try:
            place.check()
            for found in place.segments.stored():
                if found.modified_at_s <= oldest:
                    sizes[found.path] = sizes.get(found.path, 0) + found.size
        except OSError as error:
            if len(places) == 1:
                raise
            place.failed(error)
    return sizes


def _not_theirs(access: Access, places: Sequence[Place], oldest: float) -> list[tuple[Place, str, int]]:
    """Return old copies of segments in roots that they are no longer to be in, and that others have.

    Whether a root has a segment is asked after it was listed: what a repair has just brought there is its own.
    """
    if len(places) == 1:
        return []
    stored: dict[Place, dict[str, int]] = {}
    for place in places:
        try:
            place.check()
            there = {found.path: found.size for found in place.segments.stored() if found.modified_at_s <= oldest}
        except OSError as error:
            place.failed(error)
            continue
        stored[place] = there
    registered: dict[str, int] = {}
    for topic in access.metadata.list_topics():
        for segment in access.metadata.list_hot_segments(topic):
            registered[segment.path] = segment.roots | segment.wanted
    return [
        (place, path, size)
        for place, there in stored.items()
        for path, size in sorted(there.items())
        if path in registered and not registered[path] & place.bit
    ]


def _deleted(place: Place, path: str) -> bool:
    try:
        place.segments.delete(path)
    except OSError as error:
        place.failed(error)
        return False
    return True


def _remove(access: Access, paths: list[str], told: Callable[[int, int], object]) -> list[str]:
    """Condemn files and delete those of them that may be; return these."""
    gone = []
    for start in range(0, len(paths), _CONDEMNED_AT_ONCE):
        some = paths[start : start + _CONDEMNED_AT_ONCE]
        for path in _asked_for(some, access.metadata.condemn_segments(some)):
            failed = delete_everywhere(access, path)
            if failed and not access.metadata.roots:
                raise failed[0]
            gone.append(path)
            told(len(gone), len(paths))
    return gone


def _asked_for(paths: Iterable[str], answered: Iterable[str]) -> list[str]:
    """Return what is in both: no answer leads to a file that wasn't asked for."""
    return sorted(set(paths) & set(answered))
