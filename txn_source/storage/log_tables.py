"""The tables about a log that one can query: their columns, and rows as Arrow.

A position is a struct of two numbers, which compares as positions do. Times are UTC, durations seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import entry_of, ledger_of
from txn_source.storage.arrays import array_of, texts_of

_POSITION = pa.struct([("ledger_id", pa.int64()), ("entry_id", pa.int64())])
_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(pa.string())

LOG_TABLES: Mapping[str, pa.Schema] = {
    "partitions": pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("log_start", _POSITION),
            ("last_stable", _POSITION),
            ("high_watermark", _POSITION),
            ("log_end", _POSITION),
            ("ledgers", pa.int64()),
            ("messages", pa.int64()),
            ("bytes", pa.int64()),
            ("held_back_messages", pa.int64()),
            ("last_publish_time", _TIME),
        ]
    ),
    "ledgers": pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("ledger_id", pa.int64()),
            ("entries", pa.int64()),
            ("messages", pa.int64()),
            ("bytes", pa.int64()),
            ("open", pa.bool_()),
            ("created_at", _TIME),
            ("closed_at", _TIME),
            ("hot", pa.bool_()),
            ("hot_deleted_at", _TIME),
            ("tiered", pa.bool_()),
            ("offloaded_at", _TIME),
            ("object_uri", pa.string()),
            ("object_bytes", pa.int64()),
        ]
    ),
    "subscriptions": pa.schema(
        [
            ("topic", pa.string()),
            ("subscription", pa.string()),
            ("type", pa.string()),
            ("isolation_level", pa.string()),
            ("durable", pa.bool_()),
            ("epoch", pa.int64()),
            ("consumers", pa.int32()),
            ("partition", pa.int32()),
            ("next_position", _POSITION),
            ("next_index", pa.int32()),
            ("backlog", pa.int64()),
            ("held_back_by", _TEXTS),
        ]
    ),
    "transactions": pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("txn_id", pa.string()),
            ("state", pa.string()),
            ("began_at", _TIME),
            ("age_seconds", pa.float64()),
            ("timeout_seconds", pa.float64()),
            ("deadline", _TIME),
            ("ended_at", _TIME),
            ("end_reason", pa.string()),
            ("producers", _TEXTS),
            ("first_position", _POSITION),
            ("marker_position", _POSITION),
            ("messages", pa.int64()),
            ("bytes", pa.int64()),
            ("held_back_messages", pa.int64()),
            ("held_back_bytes", pa.int64()),
        ]
    ),
}
"""The columns of each; docs/metadata-tables.md has their meaning."""


def check_table(name: str) -> str:
    """Return the name of a table, or raise INVALID_ARGUMENT if there is none of that name."""
    if not isinstance(name, str) or name.strip().lower() not in LOG_TABLES:
        raise InvalidArgumentError(
            f"{name!r:.100} is no table about a log.", f"The tables are {', '.join(sorted(LOG_TABLES))}."
        )
    return name.strip().lower()


def table_of(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as Arrow: positions are given as ``Position.key``, times in microseconds; None is null."""
    schema = LOG_TABLES[name]
    return pa.table([_array([row[f.name] for row in rows], f.type) for f in schema], schema=schema)


def _array(values: Sequence[Any], of: pa.DataType) -> pa.Array:
    """Return an array, without the pandas that Arrow would load for it (``storage/arrays.py``)."""
    if of == pa.string():
        return texts_of(values)
    if of == _TEXTS:
        offsets = np.fromiter(accumulate((len(value) for value in values), initial=0), np.int32, len(values) + 1)
        return pa.ListArray.from_arrays(array_of(offsets), texts_of([text for value in values for text in value]))
    valid = np.array([value is not None for value in values], np.bool_)
    if of == _POSITION:
        parts: list[Callable[[int], int]] = [ledger_of, entry_of]
        numbers = [_numbers([0 if v is None else part(v) for v in values], valid, pa.int64()) for part in parts]
        return pa.StructArray.from_arrays(numbers, fields=list(of), mask=array_of(~valid))
    return _numbers([value or 0 for value in values], valid, of)


def _numbers(values: Sequence[Any], valid: Any, of: pa.DataType) -> pa.Array:
    plain = array_of(np.array(values, np.float64 if of == pa.float64() else np.int64))
    shown = None if valid.all() else array_of(valid).buffers()[1]
    array = pa.Array.from_buffers(plain.type, len(plain), [shown, plain.buffers()[1]])
    return array.view(of) if of == _TIME else array.cast(of)
