"""The database of a log that is made of the copy of another one's."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.putting_back import put_back
from txn_source.metadata.store.schema_versions import upgrade


def log_of_copy(copy: Path, made: Path, taken_at_us: int, moved: Mapping[int, str]) -> str:
    """Make the database of another log of the copy of a database, of this release's version; return the log's id.

    ``taken_at_us`` is the moment of the copy; ``moved`` says where tiered copies lie in the log's root, by id.

    Raises:
        LogVersionError: the copy is of a newer release.
        StorageWriteError: it can't be written.
    """
    shutil.copyfile(copy, made)
    database = open_database(f"sqlite:///{made}")
    try:
        upgrade(database)
        now_us = database.clock()
        return database.write(lambda connection: put_back(connection, now_us, taken_at_us, moved))
    finally:
        database.close()
        made.with_name(f"{made.name}-turn").unlink(missing_ok=True)
