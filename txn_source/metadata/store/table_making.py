"""Making the tables of a new metadata database (``tables.py``)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from txn_source.metadata.store.dialects import has_table
from txn_source.metadata.store.prepared import driver_cursor
from txn_source.metadata.store.table_version import SCHEMA_VERSION
from txn_source.metadata.store.tables import log_info, metadata, schema_versions

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import DDLCompiler


def make_tables(connection: Connection) -> None:
    """Make all tables, in a transaction, unless they are there."""
    if not has_table(connection, log_info.name):
        with driver_cursor(connection) as cursor:
            for statement in _statements(connection.dialect.name):
                cursor.execute(statement)
        connection.execute(insert(schema_versions).values(version=SCHEMA_VERSION))


@compiles(CreateIndex, "postgresql")
def create_index(create: CreateIndex, compiler: DDLCompiler, **options: Any) -> str:
    """Return the statement of an index that may be partial.

    Were its condition given as ``postgresql_where``, SQLAlchemy would load all its drivers of PostgreSQL for it.
    """
    made: str = compiler.visit_create_index(create, **options)  # type: ignore[no-untyped-call]
    where = create.element.info.get("where")
    return made if where is None else f"{made} WHERE {where}"


@cache
def _statements(dialect: str) -> tuple[str, ...]:
    """Return what makes the tables; that takes some time."""
    of = URL.create(dialect).get_dialect()()
    indexes = [index for table in metadata.sorted_tables for index in table.indexes]
    made: list[DDLElement] = [CreateTable(table) for table in metadata.sorted_tables]
    made += [CreateIndex(index) for index in sorted(indexes, key=lambda index: str(index.name))]
    return tuple(str(each.compile(dialect=of)) for each in made)
