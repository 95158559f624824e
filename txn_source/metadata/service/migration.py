"""Moving the metadata of an embedded log from SQLite to PostgreSQL.

1. The log is upgraded and brought up to date; then its file is held (``store/sqlite_hold.py``): no other process has
   it open, and none can open it until the end.
2. One transaction on PostgreSQL makes the tables, copies all rows, reads them back, and compares a scan of both. It
   ends with a copy that is marked as unfinished, which no service opens.
3. ``txnlog.json`` is replaced: from now on, the metadata lies in PostgreSQL.
4. The mark goes, and the file gets another name. If this isn't reached, the first service that opens the log does it.

What is interrupted before (3) leaves the log in SQLite as it was, and is done again from the start: an unfinished copy
of the same log is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from txn_source.metadata.service.comparison import Scanned, compare
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.service.unit_of_work import Clock, system_clock
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.log import check_log
from txn_source.metadata.store.log_identity import read_info
from txn_source.metadata.store.one_moment import OneMoment
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.postgres_connections import without_idle_limit
from txn_source.metadata.store.schema_versions import upgrade
from txn_source.metadata.store.sqlite_hold import held
from txn_source.metadata.store.table_copy import copy_tables, leave_out_consumers, prepare, read_tables
from txn_source.model.errors import DataLossError, InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.storage.root import LogRoot

Report = Callable[[str], object]
"""Is told of each step, and how far the long ones are, in one line."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """What was moved."""

    log_id: str
    rows: int
    scanned: Scanned


def migrate(root: LogRoot, url: DatabaseUrl, report: Report, clock: Clock = system_clock) -> Migrated:
    """Move a log's metadata from SQLite to an empty PostgreSQL database.

    Raises:
        InvalidArgumentError: the target isn't PostgreSQL or isn't empty, or the log's metadata isn't in SQLite.
        LogNotFoundError: there is no log.
        LogVersionError: the log, or what the database holds, is newer than this release.
        UnavailableError: the log is open elsewhere, or the database can't be reached.
        DataLossError: the copy isn't the same.
    """
    if not url.is_postgres:
        raise InvalidArgumentError(f"The target {url} is not PostgreSQL.", "Use postgresql://<user>@<host>/<database>.")
    root.check()
    root.check_embedded()
    now_us = _bring_up_to_date(root, clock)
    with held(root.database) as source:
        root.check_embedded()  # once more: another migration may just have ended
        log_id = read_info(source).log_id
        report(f"Holding the log {log_id} at {root.path}: nobody else has it open, or can open it.")
        target = open_database(url)
        try:
            rows, scanned = target.write(lambda connection: _copy(source, connection, str(root.path), now_us, report))
            report(f"Committed the copy to {url}.")
            root.finish(log_id)
            report(f"Noted in the root that the metadata of {log_id} lies in PostgreSQL.")
            check_log(target, log_id)
            root.retire_database()
            report(f"Renamed the SQLite file to {root.retired_database}, which nobody opens.")
        finally:
            target.close()
    return Migrated(log_id, rows, scanned)


def _bring_up_to_date(root: LogRoot, clock: Clock) -> int:
    """Upgrade the tables, and abort transactions past their deadline; return the time as of which that was done."""
    now_us = clock()
    database = open_database(root.database_url)
    try:
        upgrade(database)
        MetadataService(database, str(root.path), clock=lambda: now_us)  # sees to it before each write
        database.write(lambda _: None)
    finally:
        database.close()
    return now_us


def _copy(source: Connection, target: Connection, root: str, now_us: int, report: Report) -> tuple[int, Scanned]:
    """Copy the tables in a transaction on the target, and compare both sides; return the rows, and what was scanned."""
    without_idle_limit(target)
    log_id = read_info(source).log_id
    again = prepare(target, log_id)
    report("Removed an unfinished copy of this log, and made new tables." if again else "Made the tables.")
    copied = copy_tables(source, target, lambda rows: report(f"Copied {rows} rows so far."))
    rows = sum(table.rows for table in copied)
    report(f"Copied {rows} rows of {len(copied)} tables.")
    for before, after in zip(copied, read_tables(target), strict=True):
        if before != after:
            raise DataLossError(
                f"The copy differs: the table {before.name} has {before.rows} rows in SQLite and {after.rows} in"
                " PostgreSQL, or other values in them.",
                "Nothing was changed. Please report it.",
            )
    report(f"Compared the counts and checksums of {len(copied)} tables: the same.")
    sides = (MetadataService(OneMoment(c, now_us), root, clock=lambda: now_us) for c in (source, target))
    scanned = compare(sides, lambda topics: report(f"Scanned {topics} topics so far."))
    counts = ", ".join(f"{scanned.messages[level]} messages at {level.value}" for level in IsolationLevel)
    report(f"Scanned {scanned.topics} topics with {scanned.partitions} partitions on both sides: the same, {counts}.")
    leave_out_consumers(target, log_id)
    return rows, scanned
