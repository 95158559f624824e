"""PostgreSQL's SQL, where it differs (``dialects.Dialect``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

IN_ORDER = "JOIN"  # the planner knows how many rows there are
LARGER = "GREATEST"
UNLIMITED = "SET LOCAL statement_timeout = 0"
HAS_TABLE = "SELECT 1 WHERE to_regclass(:name) IS NOT NULL"


def rows(parameter: str, columns: Sequence[str]) -> str:
    """Return a SELECT of the rows in a parameter: JSON, a list of lists of integers."""
    found = ", ".join(f"CAST(value ->> {index} AS bigint) AS {name}" for index, name in enumerate(columns))
    return f"SELECT {found} FROM jsonb_array_elements(CAST(:{parameter} AS jsonb))"


def copy(cursor: Any, table: str, columns: Sequence[str], values: Sequence[tuple[Any, ...]]) -> None:
    """Insert many rows in one step (``dialects.Copy``)."""
    names = ", ".join(f'"{name}"' for name in columns)
    with cursor.copy(f'COPY "{table}" ({names}) FROM STDIN') as copied:
        for row in values:
            copied.write_row(row)
