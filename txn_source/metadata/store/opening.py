"""Which kind of database a URL means."""

from __future__ import annotations

from txn_source.metadata.store.database import Database
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.sqlite_database import SqliteDatabase


def open_database(url: str | DatabaseUrl) -> Database:
    """Return the database of a URL; nothing is connected yet.

    Raises:
        InvalidArgumentError: the URL is of no metadata database, or its driver is missing.
    """
    of = DatabaseUrl.of(url)
    if of.is_postgres:
        from txn_source.metadata.store.postgres_database import PostgresDatabase  # its driver may be missing

        return PostgresDatabase(of)
    return SqliteDatabase(of)
