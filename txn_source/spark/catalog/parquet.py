"""How Spark's Parquet reader reads the columns of objects as this source does.

Rows must not depend on the reader. So the options override all settings of a session that change rows, and Python reads
columns that Spark's Parquet reader would read in another way.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

PARQUET_OPTIONS = {
    "ignoreCorruptFiles": "false",  # a session that sets these would lose rows silently
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "recursiveFileLookup": "true",  # a folder name with = is no partition column
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "false",  # Java checks each byte before
}
"""Options of Spark's Parquet reader; they override the session's settings."""
_AS_THEY_ARE = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(),
)  # fmt: skip


def unreadable(schema: pa.Schema) -> str | None:
    """Return the reason why Spark's Parquet reader reads some columns otherwise than this source, or None."""
    for field in schema:
        if not _reads_alike(field.type):
            return f"{field.type}, which the Parquet reader takes otherwise"
        if _has_ambiguous(field.type):
            return "parts that differ in case only"
    return None


def _reads_alike(t: pa.DataType) -> bool:
    if pa.types.is_timestamp(t):
        return str(t.unit) != "ns"
    if pa.types.is_decimal128(t):
        return bool(t.scale >= 0)
    if pa.types.is_struct(t):
        return t.num_fields > 0 and all(_reads_alike(part.type) for part in t)
    if pa.types.is_list(t):
        return _reads_alike(t.value_type)
    if pa.types.is_map(t):
        return _reads_alike(t.key_type) and _reads_alike(t.item_type)
    return any(t == each for each in _AS_THEY_ARE)


def _ambiguous(names: Sequence[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


def _has_ambiguous(t: pa.DataType) -> bool:
    parts = [t.field(i) for i in range(t.num_fields)]
    names = [part.name for part in parts] if pa.types.is_struct(t) else []
    return _ambiguous(names) or any(_has_ambiguous(part.type) for part in parts)
