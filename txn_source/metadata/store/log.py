"""The log itself in the database: making it, and telling which one it is."""

from __future__ import annotations

import uuid

from sqlalchemy import Connection, update

from txn_source.metadata.store.database import Database
from txn_source.metadata.store.log_identity import read_info
from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.table_making import make_tables
from txn_source.metadata.store.table_version import read_version
from txn_source.metadata.store.tables import log_info
from txn_source.model.errors import InvalidArgumentError
from txn_source.storage.root import FORMAT_VERSION


def create_log(database: Database, log_id: str | None = None, *, new_id: str | None = None) -> None:
    """Make the tables of a new log; harmless where they are there, also when two processes do it at once.

    Tables of an older release are left as they are (``schema_versions.upgrade``).

    ``log_id`` is the log's; None is a new one, which is ``new_id`` if that is given, or whichever is there.

    Raises:
        InvalidArgumentError: the database holds another log.
    """

    def create(connection: Connection) -> None:
        make_tables(connection)
        found = _LOG_ID.rows(connection, {})
        if not found:
            _INSERT.run(connection, {"log_id": log_id or new_id or uuid.uuid4().hex})
        elif log_id not in (None, found[0][0]):
            raise _of_another(found[0][0])

    database.write(create)


def check_log(database: Database, log_id: str) -> None:
    """Raise an error unless the database holds a log of this id and release, and can be written.

    The root has this id, so a copy of the log that was left unfinished is the log: its mark goes.

    Raises:
        InvalidArgumentError: it holds another log.
        LogNotFoundError: it holds none.
        LogVersionError: its format or schema is newer than this release's.
        StorageWriteError: it can only be read.
    """
    with database.read() as connection:
        read_version(connection)
        found = read_info(connection)
    if found.log_id not in (log_id, unfinished(log_id)):
        raise _of_another(found.log_id)
    database.write(lambda c: c.execute(update(log_info).values(log_id=log_id)))


def unfinished(log_id: str) -> str:
    """Return what a copy of a log has in place of its id until the root says that the log's metadata is there."""
    return f"{log_id}-unfinished"


def _of_another(found: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The metadata database holds the log {found}, which has another root.",
        "Give each log a database of its own, or a schema (?options=-csearch_path%3D<schema>), and check root and URL.",
    )


_LOG_ID = Prepared("SELECT log_id FROM log_info")
_INSERT = Prepared(f"""
    INSERT INTO log_info
        (log_id, format_version, decisions, transactions, last_ended_at_ms, looked_at_ms, measured_ms)
    VALUES (:log_id, {FORMAT_VERSION}, 0, 0, 0, 0, 0)""")
