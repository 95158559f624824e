"""Whether a SQLite file is what SQLite wrote, and what lies beside it. Nothing of it is changed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import quote

from txn_source.metadata.store.database_errors import translated
from txn_source.metadata.store.sqlite_file import SqliteFile
from txn_source.model.errors import UnavailableError

_MOST = 20
"""So many faults of a file are told."""
_WAIT_S = 30.0
_OF_THE_PLACE = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    )
)
"""Errors that tell nothing of what is in a file."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What SQLite says of a file.

    ``faults`` are what its check of the pages and indexes found, or why it can't be read; ``references`` are the tables
    with rows that refer to rows that aren't there, and how many such rows each has. ``version`` is that of the tables,
    None if they don't tell. ``bytes`` and ``log_bytes`` are the sizes of the file and of the write-ahead log beside it.
    """

    faults: tuple[str, ...]
    references: tuple[tuple[str, str, int], ...]
    version: int | None
    bytes: int
    log_bytes: int


def look_at(path: str | os.PathLike[str]) -> FileState:
    """Check a file from its first page to its last; it may be in use, or on a mount that can't be written.

    Raises:
        UnavailableError: it can't be looked at now: somebody has locked it, or its last changes lie beside it where
            nothing can be written.
    """
    name = os.fspath(path)
    log = f"{name}-wal"
    sizes = os.path.getsize(name), os.path.getsize(log) if os.path.exists(log) else 0
    file = SqliteFile(name)
    try:
        with closing(_opened(file, name)) as raw:
            state = _look(raw, sizes)
    except (sqlite3.Error, UnavailableError) as error:
        cause = error if isinstance(error, sqlite3.Error) else error.__cause__
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        if isinstance(cause, sqlite3.Error) and code not in _OF_THE_PLACE:
            return FileState((str(cause),), (), None, *sizes)
        raise (translated(error, name) or error) from cause
    file.check_unchanged()
    return state


def _opened(file: SqliteFile, path: str) -> sqlite3.Connection:
    if file.read_only:
        return file.connect()
    return sqlite3.connect(f"file:{quote(path)}?mode=ro", timeout=_WAIT_S, uri=True)


def _look(raw: sqlite3.Connection, sizes: tuple[int, int]) -> FileState:
    version = None
    tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "schema_versions" in tables:
        [(version,)] = raw.execute("SELECT MAX(version) FROM schema_versions")
    elif "log_info" in tables:
        version = 1
    found = [str(line) for (line,) in raw.execute(f"PRAGMA integrity_check({_MOST})")]
    broken: dict[tuple[str, str], int] = {}
    for table, _, parent, _ in raw.execute("PRAGMA foreign_key_check"):
        broken[table, parent] = broken.get((table, parent), 0) + 1
    faults = () if found == ["ok"] else tuple(found)
    return FileState(faults, tuple((*key, count) for key, count in sorted(broken.items())), version, *sizes)
