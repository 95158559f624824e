"""The upgrades of the metadata database's tables (``schema_versions.py``)."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, func, insert, select, text
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


def _to_6(connection: Connection) -> None:
    """Note when producers end, what snapshots have, and that a log was recovered."""
    for table, column in (
        ("log_info", "snapshot_doomed_id BIGINT"),
        ("log_info", "snapshot_wait_until_ms BIGINT"),
        ("log_info", "snapshot_activity BIGINT"),
        ("log_info", "recovered_at_ms BIGINT"),
        ("producers", "ended SMALLINT NOT NULL DEFAULT 0"),
        ("producers", "seen_ms BIGINT NOT NULL DEFAULT 0"),
    ):
        there = list(connection.execute(text(f"SELECT * FROM {table} WHERE 1 = 0")).keys())
        if column.split()[0] not in there:
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column}")
    connection.exec_driver_sql("UPDATE producers SET seen_ms = (SELECT measured_ms FROM log_info)")
    connection.exec_driver_sql("CREATE INDEX IF NOT EXISTS deleted_segments ON segments (path) WHERE deleted > 0")


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


UPGRADES: dict[int, Upgrade] = {1: _to_2, 2: _to_3, 3: _to_4, 4: _to_5, 5: _to_6}
"""By the version that each begins with. An upgrade stays as it is; where a later one changes what it makes, it gets
statements of its own instead of ``tables.py``'s."""
