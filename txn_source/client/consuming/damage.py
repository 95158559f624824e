"""Values that can't be shown: rows whose buffers are malformed, and rows that Python has no value for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from txn_source.storage.untrusted import check_memory


def shown_values(data: pa.Array | pa.RecordBatch, damaged: dict[int, str]) -> tuple[list[Any], dict[int, str]]:
    """Return the rows as Python has them, None for those that it can't have, and the reasons for these."""
    if not damaged:
        try:
            return data.to_pylist(), {}
        except (ValueError, OverflowError, LookupError, pa.ArrowException):
            pass
    values, hidden = [], dict(damaged)
    for row in range(len(data) if isinstance(data, pa.Array) else data.num_rows):
        value = None
        if row not in damaged:
            try:
                [value] = data.slice(row, 1).to_pylist()
            except (ValueError, OverflowError, LookupError, pa.ArrowException) as error:
                hidden[row] = reason(error)
        values.append(value)
    return values, hidden


def damaged_rows(data: pa.RecordBatch) -> dict[int, str]:
    """Return the rows whose buffers are malformed, with the reason.

    Whether text is UTF-8 is no matter of its buffers: it shows when the text is made.
    """
    found: dict[int, str] = {}
    for name, column in zip(data.schema.names, data.columns, strict=True):
        try:
            check_memory(column)
        except pa.ArrowException as whole:
            before = len(found)
            for row in range(len(column)):
                try:
                    check_memory(column.slice(row, 1))
                except pa.ArrowException as error:
                    found.setdefault(row, f"column {name}: {reason(error)}")
            if len(found) == before:  # the damage is in none of them alone
                found |= {row: f"column {name}: {reason(whole)}" for row in range(len(column))}
    return found


def reason(error: Exception) -> str:
    """Return an error as a part of a sentence."""
    return f"{type(error).__name__}: {error}".rstrip(".")
