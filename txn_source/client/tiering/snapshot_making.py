"""Making a snapshot of a log's metadata when one is due, in all roots, and removing old ones.

Whoever has the log's SQLite file makes them: a service, maintenance, and embedded logs when they close. A snapshot is
of one moment, and nobody waits for it. Files that were doomed before it may be deleted then: so what the newest
snapshot refers to is always there. With PostgreSQL the database's own means take their place.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from txn_source.client.access import Access
from txn_source.client.hot_roots import places_of
from txn_source.model.errors import TxnLogError
from txn_source.storage import snapshots
from txn_source.storage.object_root import Root
from txn_source.storage.object_store import reason
from txn_source.storage.root_health import bounded
from txn_source.storage.snapshots import Snapshot

if TYPE_CHECKING:
    from txn_source.metadata.store.sqlite_backup import Moment

INTERVAL_S = 900.0
"""So old is the newest snapshot at least when the next one is made."""
_SHARE = 50
"""And so many times as old as it took to make."""
_PUT_S = 300.0
_QUICK_BYTES = 256 << 20
"""A larger database isn't copied by a program that closes its log."""
_log = logging.getLogger(__name__)


class Source(Protocol):
    """The service of a log, in this process, as snapshots need it."""

    @property
    def database_file(self) -> Path | None:
        """The SQLite file with the metadata; None if it lies elsewhere."""

    @property
    def progress(self) -> int:
        """How far the log has come, if its metadata lies elsewhere."""

    def begin_snapshot(self) -> None:
        """Let what was copied of the database before be behind a snapshot that is made from now on."""

    def note_snapshot(self, doomed_id: int | None, activity: int, wait_ms: int) -> None:
        """Note what a snapshot has, and how long files wait for the next one; None: none are kept."""


def make_snapshot(
    access: Access, interval_s: float = INTERVAL_S, *, quick: bool = False, clock: Callable[[], float] = time.time
) -> Snapshot | None:
    """Make a snapshot if one is due; return it, or None.

    One is due if something has changed since the newest one, and that, or the log if there is none, is as old as the
    interval. Another one who is at it is left to it. Trouble is a warning: it is tried again.

    Args:
        access: the log, whose service is in this process; else nothing is done.
        interval_s: seconds; 0 makes one whenever something has changed.
        quick: leave large databases alone.
        clock: seconds since the epoch.
    """
    source: Source | None = access.metadata.service
    file = None if source is None else source.database_file
    if source is None:
        return None
    if file is None:
        _mark(access, source, interval_s, clock())
        return None
    try:
        if quick and file.stat().st_size > _QUICK_BYTES:
            return None
        with _alone(file) as mine:
            return _make(access, source, file, interval_s, clock) if mine else None
    except (OSError, TxnLogError) as error:
        _log.warning("no snapshot of the metadata could be made, which is tried again: %s", reason(error))
        return None


def _mark(access: Access, source: Source, interval_s: float, now_s: float) -> None:
    """Note how far a log has come whose metadata has its own backups, so that an older one is noticed."""
    key, progress = access.metadata.log_id, source.progress
    noted, at_s = _MARKED.get(key, (-1, 0.0))
    if progress == noted or (noted >= 0 and 0 <= now_s - at_s < interval_s):
        return
    try:
        snapshots.mark(access.root, key, int(now_s), progress)
        _MARKED[key] = progress, now_s
    except OSError as error:
        _log.warning("how far the log has come couldn't be noted, which is tried again: %s", reason(error))


_MARKED: dict[str, tuple[int, float]] = {}
"""What this process has noted of a log, and when."""


def keep_none(access: Access) -> None:
    """Note that no snapshots are kept any more: files are deleted without them."""
    if (source := access.metadata.service) is not None:
        source.note_snapshot(None, 0, 0)


def _make(access: Access, source: Source, file: Path, interval_s: float, clock: Callable[[], float]) -> Snapshot | None:
    from txn_source.metadata.store.sqlite_backup import (  # which clients of a service don't load
        copy_moment,
        read_moment,
    )

    now, log_id = read_moment(file), access.metadata.log_id
    there = snapshots.snapshots_in(access.root, log_id)
    if not _is_due(now, there, file, interval_s, clock()):
        return None
    began = time.monotonic()
    copy, packed = (file.with_name(f"{file.name}-snapshot.db{end}") for end in ("", ".zst"))
    try:
        source.begin_snapshot()
        copy_moment(file, copy)
        moment = read_moment(copy)
        made = Snapshot(log_id, int(clock()), moment.progress, snapshots.pack(copy, packed))
        for place in places_of(access):
            try:
                place.check()
                bounded(lambda place=place: _put(place.root, made, packed), _PUT_S)  # type: ignore[misc]
            except (OSError, TxnLogError) as error:
                if place.root == access.root:
                    raise
                place.failed(error)
    finally:
        copy.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)
    _TOOK_S[str(file)] = time.monotonic() - began
    source.note_snapshot(moment.doomed_id, moment.activity, int(2 * max(interval_s, INTERVAL_S) * 1000))
    return made


_TOOK_S: dict[str, float] = {}
"""How long the last snapshot of a database took that this process made."""


def _put(root: Root, made: Snapshot, packed: Path) -> None:
    snapshots.put(root, made, packed)
    snapshots.prune(root, made.log_id)


def _is_due(now: Moment, there: list[Snapshot], file: Path, interval_s: float, now_s: float) -> bool:
    if not there:
        return now.begun_at_s is not None and now_s - now.begun_at_s >= interval_s
    if now.activity == now.snapshot_activity:
        return False
    age_s = now_s - there[-1].taken_at_s  # below 0: the clock was ahead
    return not interval_s or not 0 <= age_s < max(interval_s, _SHARE * _TOOK_S.get(str(file), 0.0))


@contextmanager
def _alone(file: Path) -> Iterator[bool]:
    """Hold a lock of the database's folder, which goes with the process; False if another one has it."""
    fd = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)
