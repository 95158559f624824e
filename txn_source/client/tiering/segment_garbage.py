"""Removing segment files that nothing refers to: of crashed producers, failed jobs and deleted topics.

1. The files that are there are listed; a young one is left alone, since its writer is likely to be at work.
2. Those that have been registered from are kept.
3. The others are condemned: from then on nothing can be registered from them, whoever comes late.
4. They are deleted. After a crash before that, the next collection finds them condemned, and deletes them.

So ages, and with them clocks, only decide what is tried. A producer whose file was taken writes its data to a new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from txn_source.client.access import Access
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
    access: Access, older_than_s: float, *, dry_run: bool, clock: Callable[[], float] = time.time
) -> Garbage:
    """Remove files that no entry was ever registered from and that were last written so many seconds ago, and uploads
    of offloaded ledgers that were begun as long ago and never ended.

    ``clock`` returns seconds since the epoch, as the files' times are.
    """
    if not is_number(older_than_s):
        raise InvalidArgumentError(f"{older_than_s!r:.80} is not an age.", "Use seconds, or a text such as 7d or 24h.")
    if older_than_s < 0:
        raise InvalidArgumentError(f"{older_than_s:g} s is not an age.", "Use 0 or more.")
    oldest = clock() - older_than_s
    sizes = {found.path: found.size for found in access.segments.stored() if found.modified_at_s <= oldest}
    unused = sorted(sizes.keys() - set(access.metadata.list_segments()))
    unused = [path for path in unused if SegmentName.parse(path) is not None]  # what isn't ours isn't our garbage
    if not dry_run:
        unused = _remove(access, unused)
    uploads = abort_uploads(access, oldest, dry_run=dry_run)
    return Garbage(tuple(unused), sum(sizes[path] for path in unused), tuple(uploads))


def _remove(access: Access, paths: list[str]) -> list[str]:
    """Condemn files and delete those of them that may be; return these."""
    gone = []
    for start in range(0, len(paths), _CONDEMNED_AT_ONCE):
        some = paths[start : start + _CONDEMNED_AT_ONCE]
        for path in _asked_for(some, access.metadata.condemn_segments(some)):
            access.segments.delete(path)
            gone.append(path)
    return gone


def _asked_for(paths: Iterable[str], answered: Iterable[str]) -> list[str]:
    """Return what is in both: no answer leads to a file that wasn't asked for."""
    return sorted(set(paths) & set(answered))
