"""A copy of a SQLite database as it is at one moment, and what a log's database says of the files that it needs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from txn_source.metadata.store.database_errors import translated
from txn_source.metadata.store.sqlite_file import SqliteFile, with_new_tables
from txn_source.model.copies import TieredCopy
from txn_source.model.errors import LogNotFoundError, StorageWriteError
from txn_source.storage.folders import sync_file

_PAGES = 4096
"""So many pages are copied at once; an interrupt is noticed between them."""


@dataclass(frozen=True, slots=True)
class NeededSegment:
    """A segment: its path, the set of the roots that have it, where its last entry ends, and whether all that it has is
    in tiered objects, too."""

    path: str
    roots: int
    end: int
    is_spare: bool


@dataclass(frozen=True, slots=True)
class NeededObject:
    """A complete tiered copy, and its id."""

    copy_id: int
    copy: TieredCopy


@dataclass(frozen=True, slots=True)
class Needed:
    """What a log's database says of the log: its id, its tables' version, its topics, and the files it refers to.

    ``roots`` are those for copies: the set of each alone, and where it is.
    """

    log_id: str
    schema_version: int
    topics: int
    segments: tuple[NeededSegment, ...]
    objects: tuple[NeededObject, ...]
    roots: tuple[tuple[int, str, str], ...]


def copy_moment(source: Path, target: Path, progress: Callable[[int, int], object] = lambda done, total: None) -> None:
    """Copy a database to a new file, as it is at one moment, while others read and write it; synced at the end.

    ``progress`` is told how many bytes are copied, and of how many.

    Raises:
        UnavailableError, LogNotFoundError: it can't be read.
        StorageWriteError: the copy can't be written.
    """
    for left in (target, *(target.with_name(f"{target.name}-{what}") for what in ("journal", "wal", "shm"))):
        left.unlink(missing_ok=True)
    with closing(SqliteFile(str(source)).connect()) as of:
        try:
            of.execute("BEGIN")  # what is held open is one moment, in however many steps it is copied
            page_size = int(of.execute("PRAGMA page_size").fetchone()[0])
            of.execute("SELECT log_id FROM log_info").fetchall()
        except sqlite3.Error as error:
            raise translated(error, str(source)) or error from error
        try:
            with closing(sqlite3.connect(target, isolation_level=None)) as to:
                of.backup(
                    to,
                    pages=_PAGES,
                    progress=lambda _, left, total: progress((total - left) * page_size, total * page_size),
                )
                to.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, which changes no more
        except sqlite3.Error as error:
            raise StorageWriteError(
                f"The metadata can't be copied to {target}: {error}.", "Check the folder, and its free space."
            ) from error
    sync_file(target)


def as_one_file(database: Path) -> None:
    """Bring all of a database that nobody uses into its one file, and sync it."""
    with closing(sqlite3.connect(database)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE").fetchall()
    sync_file(database)


def read_needed(database: Path) -> Needed:
    """Return what a copy of a log's database says that the log needs; it may be of an older release."""
    with _opened(database) as raw:
        info = raw.execute("SELECT log_id FROM log_info").fetchone()
        if info is None:
            raise LogNotFoundError(f"There is no log in {database}.", "Check the path.")
        versions = raw.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_versions'").fetchone()
        version = raw.execute("SELECT MAX(version) FROM schema_versions").fetchone()[0] if versions else 1
        return Needed(
            str(info[0]),
            int(version),
            int(raw.execute("SELECT COUNT(*) FROM topics").fetchone()[0]),
            tuple(NeededSegment(path, roots, end, bool(spare)) for path, roots, end, spare in raw.execute(_SEGMENTS)),
            tuple(NeededObject(copy_id, TieredCopy(*of)) for copy_id, *of in raw.execute(_OBJECTS)),
            tuple((1 << root_id, name, uri) for root_id, name, uri in raw.execute(_ROOTS)),
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """How far a log had come. ``progress`` only grows in the log's life. ``activity`` changes with whatever is stored,
    and was ``snapshot_activity`` at the last snapshot. Files up to ``doomed_id`` were doomed. ``begun_at_s`` is when
    its oldest topic was made, None: it has none.
    """

    log_id: str
    progress: int
    activity: int
    snapshot_activity: int | None
    doomed_id: int
    begun_at_s: float | None


def read_moment(database: Path) -> Moment:
    """Return how far a log has come, as its database says.

    Raises:
        LogNotFoundError: it has no log in it.
    """
    with _opened(database) as raw:
        raw.row_factory = sqlite3.Row
        row = raw.execute(_MOMENT).fetchone()
    if row is None:
        raise LogNotFoundError(f"There is no log in {database}.", "Check the path.")
    begun_at_s = None if row["begun_at_ms"] is None else row["begun_at_ms"] / 1000
    of, counted = dict(row), row["counted"]
    return Moment(
        of["log_id"],
        counted + of["measured_ms"],
        counted + of["moved"],
        of.get("snapshot_activity"),  # tables of older releases have none
        of["doomed_id"],
        begun_at_s,
    )


@contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(os.fspath(database), isolation_level=None)) as raw:
            yield with_new_tables(raw)
    except sqlite3.Error as error:
        raise translated(error, str(database)) or error from error


_SEGMENTS = """
    SELECT s.path, COALESCE(c.roots, 1),
        COALESCE((SELECT e.offset + e.length FROM entries e WHERE e.segment_id = s.segment_id
                  ORDER BY e.offset DESC LIMIT 1), 0),
        NOT EXISTS (SELECT 1 FROM entries e JOIN ledgers l ON l.ledger_id = e.position >> 32
                    WHERE e.segment_id = s.segment_id AND l.offloaded_at_ms IS NULL)
    FROM segments s LEFT JOIN segment_copies c ON c.segment_id = s.segment_id
    WHERE s.deleted = 0 ORDER BY s.path"""
_OBJECTS = "SELECT copy_id, uri, size, footer_bytes, footer_crc32c FROM copies WHERE complete = 1 ORDER BY copy_id"
_MOMENT = """
    SELECT *, transactions + decisions + (SELECT COALESCE(SUM(seq), 0) FROM sqlite_sequence) AS counted,
        (SELECT COALESCE(SUM(messages_before + messages), 0) FROM ledgers WHERE closed_at_ms IS NULL)
            + (SELECT COALESCE(SUM(mark_position & 1048575), 0) FROM cursors) AS moved,
        (SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'doomed_files') AS doomed_id,
        (SELECT MIN(created_at_ms) FROM topics) AS begun_at_ms
    FROM log_info"""
_ROOTS = "SELECT root_id, name, uri FROM roots ORDER BY root_id"
