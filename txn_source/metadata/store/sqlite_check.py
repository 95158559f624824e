"""Whether a SQLite file is what SQLite wrote, and what lies beside it. Nothing of it is changed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from urllib.parse import quote

from txn_source.model.values import dataclass

_MOST = 20
"""So many faults of a file are told."""
_WAIT_S = 30.0


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
    """Check a file from its first page to its last; it may be in use."""
    log = f"{os.fspath(path)}-wal"
    sizes = os.path.getsize(path), os.path.getsize(log) if os.path.exists(log) else 0
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fspath(path))}?mode=ro", timeout=_WAIT_S, uri=True)) as raw:
            return _look(raw, sizes)
    except sqlite3.Error as error:
        return FileState((str(error),), (), None, *sizes)


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
