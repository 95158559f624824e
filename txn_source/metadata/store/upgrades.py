"""The upgrades of the metadata database's tables (``schema_versions.py``)."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, func, insert, select
from sqlalchemy.schema import CreateIndex, CreateTable

from txn_source.metadata.store import table_making as table_making  # with what compiles partial indexes
from txn_source.metadata.store.dialects import may_take_long
from txn_source.metadata.store.table_version import SCHEMA_VERSION, read_version
from txn_source.metadata.store.tables import (
    copies,
    log_info,
    owners,
    roots,
    schema_versions,
    segment_copies,
    segment_parts,
    short_entries,
)
from txn_source.model.errors import LogVersionError

Upgrade = Callable[[Connection], None]
"""Changes the tables from one version to the next, in a transaction. What is there already is left."""


def upgrade_once(connection: Connection) -> int:
    """Upgrade the tables by one version, unless somebody else has; return their version."""
    found = read_version(connection)
    if found == SCHEMA_VERSION:
        return found
    step = UPGRADES.get(found)
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
    """Make the table of who made what."""
    connection.execute(CreateTable(owners, if_not_exists=True))
    for index in owners.indexes:
        connection.execute(CreateIndex(index, if_not_exists=True))


def _to_4(connection: Connection) -> None:
    """Make the table of what segments of several partitions have of each."""
    connection.execute(CreateTable(segment_parts, if_not_exists=True))
    for index in sorted(segment_parts.indexes, key=lambda index: str(index.name)):
        connection.execute(CreateIndex(index, if_not_exists=True))


def _to_5(connection: Connection) -> None:
    """Make the tables of hot roots and of the copies in them."""
    for table in (roots, segment_copies, short_entries):
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in table.indexes:
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


UPGRADES: dict[int, Upgrade] = {1: _to_2, 2: _to_3, 3: _to_4, 4: _to_5}
"""By the version that each begins with. An upgrade stays as it is; where a later one changes what it makes, it gets
statements of its own instead of ``tables.py``'s."""
