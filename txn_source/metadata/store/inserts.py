"""New rows: statements that are compiled once, as those of ``prepared.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, insert

from txn_source.metadata.store.dialects import dialect_of
from txn_source.metadata.store.prepared import Prepared, driver_cursor

_MOST_INSERTED = 64
_COPIED = 4
"""From so many rows on, copying them is cheaper than inserting each."""


class NewRows:
    """Rows that are inserted into a table, nothing of which has to be told back; ``given`` are their columns."""

    def __init__(self, table: Table, given: Sequence[str] | None = None) -> None:
        self._table = table.name
        self._given = tuple(given or table.c.keys())
        self._insert = Prepared(insert(table).values({name: bindparam(name) for name in self._given}))

    def add(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows; where the database can copy many at once, they are copied."""
        copy = dialect_of(connection.dialect.name).copy
        if copy is None or len(rows) < _COPIED:
            self._insert.run_many(connection, rows)
            return
        given = self._given
        with driver_cursor(connection) as cursor:
            copy(cursor, self._table, given, [tuple([row[name] for name in given]) for row in rows])


class Insert:
    """New rows of a table, many in one statement; ``given`` are the columns that a row has, the others are left out.

    ``rows`` returns the columns ``back`` of each row, in no order, such as the ids that the database gave.
    """

    def __init__(self, table: Table, given: Sequence[str], back: Sequence[str]) -> None:
        self._table = table
        self._given = given
        self._back = [table.c[name] for name in back]
        self._of_size: dict[int, Prepared] = {}

    def rows(self, connection: Connection, new: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        """Insert rows."""
        found: list[tuple[Any, ...]] = []
        at = 0
        while at < len(new):
            some = new[at : at + min(_MOST_INSERTED, 1 << ((len(new) - at).bit_length() - 1))]
            at += len(some)
            values = {f"{name}_{i}": row[name] for i, row in enumerate(some) for name in self._given}
            found += self._of(len(some)).rows(connection, values)
        return found

    def _of(self, size: int) -> Prepared:
        found = self._of_size.get(size)
        if found is None:
            values: list[Mapping[str, Any]] = [
                {name: bindparam(f"{name}_{i}") for name in self._given} for i in range(size)
            ]
            statement = insert(self._table).values(values).returning(*self._back)
            found = self._of_size.setdefault(size, Prepared(statement))
        return found
