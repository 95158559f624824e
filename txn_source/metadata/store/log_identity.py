"""Which log a database holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.metadata.store.dialects import has_table
from txn_source.metadata.store.prepared import Prepared
from txn_source.model.errors import LogNotFoundError, LogVersionError
from txn_source.storage.root import FORMAT_VERSION

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@dataclass(frozen=True, slots=True)
class LogInfo:
    """Which log a database holds, and the version of its format."""

    log_id: str
    format_version: int


def read_info(connection: Connection) -> LogInfo:
    """Return which log the database holds.

    Raises:
        LogNotFoundError: it holds none.
        LogVersionError: its format is newer than this release's.
    """
    rows = _INFO.rows(connection, {}) if has_table(connection, "log_info") else []
    if not rows:
        raise LogNotFoundError("The metadata database has no log in it.", "Check the path of the root.")
    [(log_id, version)] = rows
    if version > FORMAT_VERSION:
        raise LogVersionError(
            f"The log has format version {version}; this release reads up to {FORMAT_VERSION}.",
            "Upgrade txn-source.",
        )
    return LogInfo(log_id, version)


_INFO = Prepared("SELECT log_id, format_version FROM log_info")
