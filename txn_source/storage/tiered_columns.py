"""How the columns of tiered objects are written: dictionaries, encodings, statistics."""

from __future__ import annotations

import pyarrow as pa

from txn_source.storage.schema import RAW_SCHEMA

_REPEATING = (
    "__partition",
    "__ledger_id",
    "__entry_id",
    "__publish_time",
    "__producer_name",
    "__txn_id",
    "__txn_status",
)
_COUNTING = ("__index", "__sequence_id")


def with_dictionary(schema: pa.Schema) -> list[str]:
    """Return the columns that are worth a dictionary: raw bytes hardly ever repeat, the text of typed topics does."""
    typed = () if schema.names[:2] == RAW_SCHEMA.names else (f.name for f in schema if pa.types.is_string(f.type))
    return [name for name in dict.fromkeys((*typed, *_REPEATING)) if name in schema.names]


def encodings(schema: pa.Schema) -> dict[str, str]:
    """Return the encodings of columns that count."""
    return {name: "DELTA_BINARY_PACKED" for name in _COUNTING if name in schema.names}


def with_statistics(schema: pa.Schema) -> list[str]:
    """Return the paths of all columns, and parts of columns, but floating-point ones.

    Statistics of these know no NaN, and readers that take NaN for the largest number (DuckDB, Spark) would miss it.
    """
    return [path for field in schema for path in _paths(field.name, field.type)]


def _paths(path: str, t: pa.DataType) -> list[str]:
    if pa.types.is_struct(t):
        return [of for part in t for of in _paths(f"{path}.{part.name}", part.type)]
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return _paths(f"{path}.list.element", t.value_type)
    if pa.types.is_map(t):
        return _paths(f"{path}.key_value.key", t.key_type) + _paths(f"{path}.key_value.value", t.item_type)
    return [] if pa.types.is_floating(t) else [path]
