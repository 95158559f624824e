"""The columns of a read: the topic's payload, then metadata columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError
from txn_source.storage.schema import EVENT_TIME, KEY, PROPERTIES, RAW_SCHEMA

_TIME = pa.timestamp("us", tz="UTC")
METADATA_COLUMNS: dict[str, pa.Field] = {
    field.name: field
    for field in (
        pa.field("__partition", pa.int32()),
        pa.field("__ledger_id", pa.int64()),
        pa.field("__entry_id", pa.int64()),
        pa.field("__batch_index", pa.int32()),
        pa.field("__publish_time", _TIME),
        EVENT_TIME,
        pa.field("__topic", pa.string()),
        pa.field("__producer_name", pa.string()),
        pa.field("__sequence_id", pa.int64()),
        pa.field("__txn_id", pa.string()),
        pa.field("__txn_status", pa.string()),
        PROPERTIES,
        KEY,
    )
}
"""All metadata columns, in the order of ``metadataColumns=all``; ``columns_beside`` has those of a topic."""

STORED_AS = {"__batch_index": "__index"}
"""Names that differ in objects: pyarrow's datasets have a column ``__batch_index`` and refuse files with one."""
_METADATA_NAMES = {name.lower(): name for name in METADATA_COLUMNS}
DEFAULT_COLUMNS = ("__partition", "__ledger_id", "__entry_id", "__batch_index", "__publish_time", "__event_time")


def columns_beside(payload: pa.Schema) -> dict[str, pa.Field]:
    """Return a topic's metadata columns: the key of a raw topic is its column ``key``."""
    return {name: f for name, f in METADATA_COLUMNS.items() if not (f is KEY and payload is RAW_SCHEMA)}


def metadata_columns(choice: str | Sequence[str], *, several_topics: bool) -> list[str]:
    """Return the metadata columns that a choice means: ``none``, ``default``, ``all``, or a list (with commas)."""
    names = [part.strip() for part in choice.split(",")] if isinstance(choice, str) else list(choice)
    if len(names) == 1:
        match names[0].lower():
            case "none":
                return []
            case "all":
                return list(METADATA_COLUMNS)
            case "default":
                return [*DEFAULT_COLUMNS, "__topic"] if several_topics else list(DEFAULT_COLUMNS)
    names = [_METADATA_NAMES.get(name.lower(), name) for name in names]  # as Spark does, ignore case
    for name in names:
        if name not in METADATA_COLUMNS:
            raise InvalidArgumentError(
                f"{name!r} is not a metadata column.",
                f"Use none, default, all, or some of {', '.join(METADATA_COLUMNS)}.",
            )
    if len(set(names)) < len(names):
        raise InvalidArgumentError("A metadata column is named twice.", "Name each once.")
    return names


def read_schema(payload: pa.Schema, metadata: str | Sequence[str], *, several_topics: bool) -> pa.Schema:
    """Return the schema of a read that takes all payload columns."""
    names = metadata_columns(metadata, several_topics=several_topics)
    if names == list(METADATA_COLUMNS):
        names = list(columns_beside(payload))
    return select_columns(payload, [*payload.names, *names])


def select_columns(payload: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema of a read of some columns, payload or metadata, in that order."""
    if not names:
        raise SchemaMismatchError("No column is asked for.", "Name one at least, such as __entry_id.")
    fields, beside = [], columns_beside(payload)
    for name in names:
        index = payload.get_field_index(name) if isinstance(name, str) else -1
        if index >= 0:
            fields.append(payload.field(index))
        elif name in beside:
            fields.append(beside[name])
        else:
            raise SchemaMismatchError(
                f"There is no column {name!r}.",
                f"The payload columns are {', '.join(payload.names)}; metadata columns are {', '.join(beside)}.",
            )
    if len(set(names)) < len(names):
        raise SchemaMismatchError("A column is asked for twice.", "Name each once.")
    return pa.schema(fields)
