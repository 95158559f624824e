"""Versions of the metadata database's tables, and the upgrades from each to the next.

They are independent of the root's format, which is about files. Version 1 is that of the tables that don't say theirs.

An upgrade is one write transaction, so a log is never between two versions, and services that open it at once take
turns: the second one finds it done. Whoever may only read a log upgrades nothing, and reads ``OLDEST_READABLE`` and
newer versions as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, func, insert, inspect, select
from sqlalchemy.schema import CreateIndex, CreateTable

from txn_source.metadata.store.database import Database
from txn_source.metadata.store.dialects import may_take_long
from txn_source.metadata.store.tables import SCHEMA_VERSION, copies, log_info, schema_versions, segment_parts
from txn_source.model.errors import LogNotFoundError, LogVersionError

OLDEST_READABLE = 1
"""The statements of this release read tables from this version on."""
Upgrade = Callable[[Connection], None]
"""Changes the tables from one version to the next, in a transaction. What is there already is left."""


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
        found = database.write(_upgrade_once)


def read_version(connection: Connection) -> int:
    """Return the version of a log's tables.

    Raises:
        LogNotFoundError: the database holds no log.
        LogVersionError: they are newer than this release's.
    """
    there = inspect(connection)
    if there.has_table(schema_versions.name):
        version: int | None = connection.execute(select(func.max(schema_versions.c.version))).scalar()
        if version is None:
            raise LogVersionError("The metadata database has lost its schema version.", "Restore it from a backup.")
    elif there.has_table(log_info.name):
        version = 1
    else:
        raise LogNotFoundError("The metadata database has no log in it.", "Check the path of the root.")
    if version > SCHEMA_VERSION:
        raise LogVersionError(
            f"The metadata database has schema version {version}; this release reads up to {SCHEMA_VERSION}.",
            "Upgrade txn-source.",
        )
    return version


def _upgrade_once(connection: Connection) -> int:
    """Upgrade the tables by one version, unless somebody else has; return their version."""
    found = read_version(connection)
    if found == SCHEMA_VERSION:
        return found
    step = _UPGRADES.get(found)
    if step is None:
        raise LogVersionError(
            f"The metadata database has schema version {found}, which this release can't upgrade.",
            "Open the log with an older release first, which can.",
        )
    may_take_long(connection)
    step(connection)
    connection.execute(insert(schema_versions).values(version=found + 1))
    return found + 1


def _to_2(connection: Connection) -> None:
    """Note the version, and refuse by indexes what mustn't be: two logs, two complete copies of a ledger."""
    connection.execute(CreateTable(schema_versions, if_not_exists=True))
    _refuse_doubled_copies(connection)
    for table, name in ((log_info, "one_log"), (copies, "complete_copies")):
        [index] = (index for index in table.indexes if index.name == name)
        connection.execute(CreateIndex(index, if_not_exists=True))


def _to_3(connection: Connection) -> None:
    """Make the table of what segments of several partitions have of each."""
    connection.execute(CreateTable(segment_parts, if_not_exists=True))
    for index in sorted(segment_parts.indexes, key=lambda index: str(index.name)):
        connection.execute(CreateIndex(index, if_not_exists=True))


def _refuse_doubled_copies(connection: Connection) -> None:
    ledger = copies.c.ledger_id
    doubled = connection.execute(
        select(ledger).where(copies.c.complete == 1).group_by(ledger).having(func.count() > 1).limit(1)
    ).scalar()
    if doubled is not None:
        raise LogVersionError(
            f"The metadata database can't be upgraded: ledger {doubled} has two complete copies.",
            "Use the release that wrote it, and report this.",
        )


_UPGRADES: dict[int, Upgrade] = {1: _to_2, 2: _to_3}
"""By the version that each begins with. An upgrade stays as it is; where a later one changes what it makes, it gets
statements of its own instead of ``tables.py``'s."""
