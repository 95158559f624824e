"""PostgreSQL's SQL, where it differs (``dialects.Dialect``)."""

from __future__ import annotations

from collections.abc import Sequence

IN_ORDER = "JOIN"  # the planner knows how many rows there are
LARGER = "GREATEST"


def rows(parameter: str, columns: Sequence[str]) -> str:
    """Return a SELECT of the rows in a parameter: JSON, a list of lists of integers."""
    found = ", ".join(f"CAST(value ->> {index} AS bigint) AS {name}" for index, name in enumerate(columns))
    return f"SELECT {found} FROM jsonb_array_elements(CAST(:{parameter} AS jsonb))"
