"""The version of the metadata database's tables, which they tell themselves (``schema_versions.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txn_source.metadata.store.dialects import has_table
from txn_source.metadata.store.prepared import Prepared
from txn_source.model.errors import LogNotFoundError, LogVersionError

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

SCHEMA_VERSION = 6
"""The version of this release's tables (``tables.py``). A change of them adds one, and an upgrade to it
(``upgrades.py``)."""


def read_version(connection: Connection) -> int:
    """Return the version of a log's tables.

    Raises:
        LogNotFoundError: the database holds no log.
        LogVersionError: they are newer than this release's.
    """
    if has_table(connection, "schema_versions"):
        [(version,)] = _VERSION.rows(connection, {})
        if version is None:
            raise LogVersionError("The metadata database has lost its schema version.", "Restore it from a backup.")
    elif has_table(connection, "log_info"):
        version = 1
    else:
        raise LogNotFoundError("The metadata database has no log in it.", "Check the path of the root.")
    if version > SCHEMA_VERSION:
        raise LogVersionError(
            f"The metadata database has schema version {version}; this release reads up to {SCHEMA_VERSION}.",
            "Upgrade txn-source.",
        )
    return int(version)


_VERSION = Prepared("SELECT MAX(version) FROM schema_versions")
