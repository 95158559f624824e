"""The log itself in the database: making it, and telling which one it is."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sqlalchemy import Connection, insert, inspect, select

from txn_source.metadata.store.database import Database
from txn_source.metadata.store.tables import log_info, make_tables
from txn_source.model.errors import LogNotFoundError, LogVersionError
from txn_source.storage.root import FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class LogInfo:
    """Which log a database holds, and the version of its format."""

    log_id: str
    format_version: int


def create_log(database: Database) -> None:
    """Make the tables of a new log; harmless where they are there, also when two processes do it at once."""

    def create(connection: Connection) -> None:
        make_tables(connection)
        if connection.execute(select(log_info)).first() is None:
            values = {"log_id": uuid.uuid4().hex, "format_version": FORMAT_VERSION, "decisions": 0, "transactions": 0}
            connection.execute(insert(log_info).values(values))

    database.write(create)


def read_info(connection: Connection) -> LogInfo:
    """Return which log the database holds.

    Raises:
        LogNotFoundError: it holds none.
        LogVersionError: its format is newer than this release's.
    """
    if not inspect(connection).has_table(log_info.name):
        raise LogNotFoundError("The metadata database has no log in it.", "Check the path of the root.")
    row = connection.execute(select(log_info)).one()
    if row.format_version > FORMAT_VERSION:
        raise LogVersionError(
            f"The log has format version {row.format_version}; this release reads up to {FORMAT_VERSION}.",
            "Upgrade txn-source.",
        )
    return LogInfo(row.log_id, row.format_version)
