"""Versions of the metadata database's tables, and the upgrades from each to the next.

They are independent of the root's format, which is about files. Version 1 is that of the tables that don't say theirs.

An upgrade is one write transaction, so a log is never between two versions, and services that open it at once take
turns: the second one finds it done. Whoever may only read a log upgrades nothing, and reads ``OLDEST_READABLE`` and
newer versions as they are.
"""

from __future__ import annotations

from txn_source.metadata.store.database import Database
from txn_source.metadata.store.table_version import SCHEMA_VERSION, read_version
from txn_source.model.errors import LogVersionError

OLDEST_READABLE = 1
"""The statements of this release read tables from this version on."""


def upgrade(database: Database) -> None:
    """Bring a log's tables up to this release's version, if it can be written.

    Raises:
        LogNotFoundError: the database holds no log.
        LogVersionError: its tables are newer than this release's, or can't be upgraded; nothing was changed.
    """
    with database.read() as connection:
        found = read_version(connection)
    if database.read_only:
        if found < OLDEST_READABLE:
            raise LogVersionError(
                f"The metadata database has schema version {found}, and can only be read here; this release reads"
                f" {OLDEST_READABLE} to {SCHEMA_VERSION}.",
                "Open the log once where it can be written.",
            )
        return
    while found < SCHEMA_VERSION:
        from txn_source.metadata.store.upgrades import upgrade_once  # with the tables, which a reader doesn't need

        found = database.write(upgrade_once)
