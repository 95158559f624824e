"""SQLite's SQL, where it differs (``dialects.Dialect``)."""

from __future__ import annotations

from collections.abc import Sequence

IN_ORDER = "CROSS JOIN"  # which SQLite's planner doesn't turn round
LARGER = "MAX"
UNLIMITED = None
HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name"
copy = None  # what it does for each row is little more than that


def rows(parameter: str, columns: Sequence[str]) -> str:
    """Return a SELECT of the rows in a parameter: JSON, a list of lists of integers."""
    found = ", ".join(f"json_extract(value, '$[{index}]') AS {name}" for index, name in enumerate(columns))
    return f"SELECT {found} FROM json_each(:{parameter})"
