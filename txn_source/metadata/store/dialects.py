"""What the SQL of the databases differs in, where SQLAlchemy doesn't see to it. Each has a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from txn_source.metadata.store import postgres_dialect, sqlite_dialect
from txn_source.metadata.store.prepared import Prepared

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

Copy: TypeAlias = Callable[[Any, str, Sequence[str], Sequence[tuple[Any, ...]]], None]
"""Inserts many rows by a driver's cursor: into which table, its columns, and their values."""


class Dialect(Protocol):
    """A database's SQL."""

    IN_ORDER: str
    """Joins two tables, and begins with the first one if that can be said."""
    LARGER: str
    """The function that returns the larger one of two values."""
    HAS_TABLE: str
    """Asks for a row if there is a table of a name."""

    @property
    def copy(self) -> Copy | None:
        """What inserts many rows in one step; None: inserting each is as fast."""

    @property
    def UNLIMITED(self) -> str | None:
        """Lets the statements of a transaction take as long as they need; None: they may anyway."""

    def rows(self, parameter: str, columns: Sequence[str]) -> str:
        """Return a SELECT of the rows in a parameter: JSON, a list of lists of integers."""


def dialect_of(database: str) -> Dialect:
    """Return the dialect of a kind of database, by SQLAlchemy's name for it."""
    return sqlite_dialect if database == "sqlite" else postgres_dialect


def may_take_long(connection: Connection) -> None:
    """Let the statements of a transaction take as long as they need: work that can't be cut into pieces.

    Other writers are told UNAVAILABLE meanwhile, after some time.
    """
    unlimited = dialect_of(connection.dialect.name).UNLIMITED
    if unlimited is not None:
        connection.exec_driver_sql(unlimited)


def has_table(connection: Connection, name: str) -> bool:
    """Tell whether the database has a table of a name."""
    return bool(_has_table(connection.dialect.name).rows(connection, {"name": name}))


@cache
def _has_table(database: str) -> Prepared:
    return Prepared(dialect_of(database).HAS_TABLE)
