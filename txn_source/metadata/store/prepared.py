"""Statements that run often: compiled once for each dialect, and run on the driver's own cursor.

SQLAlchemy takes some 10 µs for a statement that SQLite answers in one. A write of one small transaction has fifteen.

What readers ask is written as text, in the SQL that both databases have, with ``:name`` for a parameter: then a process
that only reads need not load SQLAlchemy, which takes longer than all that it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from txn_source.model.errors import TxnLogError

if TYPE_CHECKING:
    from sqlalchemy import Dialect, Executable

    from txn_source.metadata.store.connection import Connection

R = TypeVar("R")
ERRORS = "errors"
"""The key in ``Connection.info`` of what turns the driver's errors into ours, or into None."""
_MOST = 256
"""So many values are looked for in one statement."""


class _Compiled:
    """A statement of SQLAlchemy's as the driver takes it."""

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


class _Written:
    """A statement in a text as the driver takes it: SQLite's knows ``:name``, PostgreSQL's ``%(name)s``."""

    __slots__ = ("sql",)

    def __init__(self, text: str, database: str) -> None:
        self.sql = text if database == "sqlite" else re.sub(r"(?<![\w:]):(\w+)", r"%(\1)s", text.replace("%", "%%"))

    def values(self, given: Mapping[str, Any]) -> Any:
        return given


class Prepared:
    """A statement with named parameters; values are what the driver takes: numbers, texts, bytes, None."""

    def __init__(self, statement: Executable | str) -> None:
        self._statement = statement
        self._texts: dict[str, _Compiled | _Written] = {}

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

    def _text(self, connection: Connection) -> _Compiled | _Written:
        name = connection.dialect.name
        text = self._texts.get(name)
        if text is None:
            if isinstance(self._statement, str):
                text = _Written(self._statement, name)
            else:
                text = _Compiled(self._statement, connection.engine.dialect)
            text = self._texts.setdefault(name, text)
        return text


class Lookup:
    """Rows by the value of a column, for any number of values.

    ``build`` makes the statement with ``value_0`` ...; of one in a text, ``:values`` stands for them.
    """

    def __init__(self, build: Callable[[Sequence[str]], Executable] | str) -> None:
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
            names = [f"value_{i}" for i in range(size)]
            if isinstance(self._build, str):
                statement: Executable | str = self._build.replace(":values", ", ".join(f":{name}" for name in names))
            else:
                statement = self._build(names)
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
