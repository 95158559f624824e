"""Statements that run often: compiled once for each dialect, and run on the driver's own cursor.

SQLAlchemy takes some 10 µs for a statement that SQLite answers in one. A write of one small transaction has fifteen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Dialect, Executable, Table, bindparam, insert

from txn_source.metadata.store.dialects import dialect_of
from txn_source.model.errors import TxnLogError

R = TypeVar("R")
ERRORS = "errors"
"""The key in ``Connection.info`` of what turns the driver's errors into ours, or into None."""
_MOST = 256
"""So many values are looked for in one statement."""
_MOST_INSERTED = 64
_COPIED = 4
"""From so many rows on, copying them is cheaper than inserting each."""


class _Text:
    """A statement as the driver takes it."""

    __slots__ = ("_fixed", "_names", "sql")

    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})  # type: ignore[attr-defined]
        self.sql = str(compiled)
        self._names: tuple[str, ...] | None = tuple(compiled.positiontup) if compiled.positional else None
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}

    def values(self, given: Mapping[str, Any]) -> Any:
        if self._names is None:
            return {**self._fixed, **given} if self._fixed else given
        fixed = self._fixed
        return tuple([given[name] if name in given else fixed[name] for name in self._names])


class Prepared:
    """A statement with named parameters; values are what the driver takes: numbers, texts, bytes, None."""

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._texts: dict[str, _Text] = {}

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        """Run it, and return all rows of its answer."""
        text = self._text(connection)
        return _run(connection, text.sql, text.values(values), _all_rows)

    def run(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Run it, and return how many rows it changed."""
        text = self._text(connection)
        return _run(connection, text.sql, text.values(values), _count)

    def run_many(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Run it for each of some rows, and return how many rows of the database it changed."""
        if not rows:
            return 0
        if len(rows) == 1:
            return self.run(connection, rows[0])
        text = self._text(connection)
        return _run(connection, text.sql, [text.values(row) for row in rows], _count, many=True)

    def _text(self, connection: Connection) -> _Text:
        name = connection.dialect.name
        text = self._texts.get(name)
        if text is None:
            text = self._texts.setdefault(name, _Text(self._statement, connection.dialect))
        return text


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


class Lookup:
    """Rows by the value of a column, for any number of values; ``build`` makes the statement with ``value_0`` ..."""

    def __init__(self, build: Callable[[Sequence[str]], Executable]) -> None:
        self._build = build
        self._of_size: dict[int, Prepared] = {}

    def rows(self, connection: Connection, wanted: Iterable[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of some different values, in no order."""
        values = list(wanted)
        found: list[tuple[Any, ...]] = []
        for start in range(0, len(values), _MOST):
            some = values[start : start + _MOST]
            size = 1 << (len(some) - 1).bit_length()
            some += [some[-1]] * (size - len(some))
            found += self._of(size).rows(connection, {f"value_{i}": value for i, value in enumerate(some)})
        return found

    def _of(self, size: int) -> Prepared:
        found = self._of_size.get(size)
        if found is None:
            statement = self._build([f"value_{i}" for i in range(size)])
            found = self._of_size.setdefault(size, Prepared(statement))
        return found


def _run(connection: Connection, sql: str, values: Any, result: Callable[[Any], R], *, many: bool = False) -> R:
    """Run a statement, and return what ``result`` takes of its cursor."""
    with driver_cursor(connection) as cursor:
        if many:
            cursor.executemany(sql, values)
        else:
            cursor.execute(sql, values)
        return result(cursor)


@contextmanager
def driver_cursor(connection: Connection) -> Iterator[Any]:
    """The driver's cursor, whose errors become ours.

    It is closed whatever happens: one that was interrupted would hold the database's file open.
    """
    cursor = connection.connection.cursor()
    try:
        yield cursor
    except Exception as error:
        translated = connection.info.get(ERRORS)
        ours: TxnLogError | None = None if translated is None else translated(error)
        if ours is None:
            raise
        raise ours from error
    finally:
        cursor.close()


def _all_rows(cursor: Any) -> Sequence[tuple[Any, ...]]:
    rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _count(cursor: Any) -> int:
    return int(cursor.rowcount)
