"""Schemas of topics, and fitting a producer's batches to them.

A raw topic has ``key binary, value binary``. A typed topic has an Arrow schema of payload columns of its own, with
types that Spark can read. More columns may be stored beside the payload, only where a producer gives them:
``__event_time``, ``__properties`` and, of a typed topic, ``__key``. Names that begin with ``__`` are txnlog's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.types as types

from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError
from txn_source.storage.soundness import (
    check_event_times,
    check_memory,
    check_properties,
    check_values,
    unknown_zone,
)

RESERVED_PREFIX = "__"
RAW_SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])

EVENT_TIME = pa.field("__event_time", pa.timestamp("us", tz="UTC"))
PROPERTIES = pa.field("__properties", pa.map_(pa.string(), pa.string()))
KEY = pa.field("__key", pa.binary())
"""The key of a message to a typed topic; it picks the partition, as a raw topic's column ``key`` does."""
STORED_BESIDE = (EVENT_TIME, PROPERTIES, KEY)
"""The columns that may be stored beside the payload."""

_COMMENT = b"comment"
COMMENT_MAX_BYTES = 4000
"""Of a topic or a column: the schema travels with each view of the topic."""

MESSAGE_MAX_BYTES = 256 << 20
"""Of one message, all its columns together. Arrow, Parquet and Spark's rows end at 2 GiB, and count copies."""

_SIMPLE = (
    types.is_boolean,
    types.is_signed_integer,
    types.is_float32,
    types.is_float64,
    types.is_string,
    types.is_large_string,
    types.is_binary,
    types.is_large_binary,
    types.is_date32,
    types.is_timestamp,
    types.is_duration,
)


def check_topic_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema, with no metadata but comments, or raise INVALID_ARGUMENT if a topic can't have it."""
    if not isinstance(schema, pa.Schema):
        raise InvalidArgumentError(
            f"The schema is a {type(schema).__name__}.",
            'Give a pyarrow.Schema, text such as "id bigint, name string", or None for a raw topic.',
        )
    if not len(schema):
        raise InvalidArgumentError("The schema has no columns.", "Give one at least, or None for a raw topic.")
    seen: dict[str, str] = {}
    for field in schema:
        if not field.name or field.name.startswith(RESERVED_PREFIX):
            raise InvalidArgumentError(
                f"Column {field.name!r} has a reserved name.", f"Use one that does not begin with {RESERVED_PREFIX!r}."
            )
        other = seen.get(field.name.lower())
        if other is not None:
            raise InvalidArgumentError(
                f"Columns {other!r} and {field.name!r} have one name (Spark ignores case).", "Rename one of them."
            )
        seen[field.name.lower()] = field.name
        if not _readable_by_spark(field.type):
            raise InvalidArgumentError(
                f"Column {field.name!r} has type {field.type}, which Spark has no type for.",
                "Use booleans, signed integers, floats, decimal128, strings, binary, date32, timestamps, durations,"
                " or lists, structs and maps of them.",
            )
        twins = _twins(field.type)
        if twins is not None:
            raise InvalidArgumentError(
                f"Column {field.name!r} has parts {twins[0]!r} and {twins[1]!r} of one name (Spark ignores case).",
                "Rename one of them.",
            )
        zone = unknown_zone(field.type)
        if zone is not None:
            raise InvalidArgumentError(
                f"Column {field.name!r} has the time zone {zone!r}, which nobody knows.",
                "Use a name of the tz database, such as Europe/Berlin, or an offset such as +07:30.",
            )
    comments = [_comment(field.metadata, f"Column {field.name!r}") for field in schema]
    fields = [_bare(field).with_metadata(kept) for field, kept in zip(schema, comments, strict=True)]
    return pa.schema(fields, metadata=_comment(schema.metadata, "The schema"))


def checked_schema(data: bytes) -> bytes:
    """Return a serialized schema as it is kept, or raise INVALID_ARGUMENT if a topic can't have it."""
    try:
        kept = serialize_schema(check_topic_schema(pa.ipc.read_schema(pa.py_buffer(data))))
    except InvalidArgumentError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:  # Arrow raises any of them
        reason = " ".join(str(error).split())[:200]
        raise InvalidArgumentError(
            f"The schema of {len(data)} bytes is not a serialized Arrow schema: {reason}.",
            "Give what pyarrow.Schema.serialize() returns.",
        ) from None
    assert kept is not None
    return kept


def serialize_schema(schema: pa.Schema | None) -> bytes | None:
    """Return the bytes under which a topic's schema is kept; None for a raw topic."""
    return None if schema is None else bytes(schema.serialize().to_pybytes())


def deserialize_schema(data: bytes | None) -> pa.Schema:
    """Return a topic's payload schema, without comments: they are in no segment."""
    if data is None:
        return RAW_SCHEMA
    schema = commented_schema(data)
    if _COMMENT in data:
        return pa.schema([field.remove_metadata() for field in schema])
    return schema


def commented_schema(data: bytes | None) -> pa.Schema:
    """Return a topic's payload schema with its comments: metadata ``comment`` of the schema and of its columns."""
    return RAW_SCHEMA if data is None else pa.ipc.read_schema(pa.py_buffer(data))


def stored_beside(payload: pa.Schema) -> tuple[pa.Field, ...]:
    """Return the columns that may be stored beside a topic's payload."""
    return tuple(field for field in STORED_BESIDE if not (field is KEY and payload is RAW_SCHEMA))


def conform(batch: pa.RecordBatch, payload: pa.Schema, partition_columns: Sequence[pa.Field] = ()) -> pa.RecordBatch:
    """Return a producer's batch with the topic's columns in the topic's order, without copying where types are equal.

    Optional columns (``stored_beside`` and ``partition_columns``) are kept at the end if they are there. Text is taken
    where binary is wanted and the other widths of text and binary are converted; nothing else is. What couldn't be read
    back is refused: damaged buffers, text that isn't UTF-8, nulls in parts that have none, times out of range, and a
    message of more than ``MESSAGE_MAX_BYTES``.

    Raises:
        SchemaMismatchError: names the field, what was expected and what came.
    """
    optional = {field.name: field for field in (*stored_beside(payload), *partition_columns)}
    wanted = [*payload, *(optional[name] for name in batch.schema.names if name in optional)]
    known = {field.name for field in wanted}
    for name in batch.schema.names:
        if name not in known:
            raise SchemaMismatchError(
                f"The batch has a column {name!r}, which the topic doesn't have.",
                f"The topic's columns are {_listed(payload)}; drop or rename it.",
            )
        if len(batch.schema.get_all_field_indices(name)) > 1:
            raise SchemaMismatchError(f"The batch has column {name!r} more than once.", "Drop one of them.")
    columns = []
    for field in wanted:
        index = batch.schema.get_field_index(field.name)
        if index >= 0:
            columns.append(_fit(batch.column(index), field))
        elif payload is RAW_SCHEMA and field.name == "key":
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            raise SchemaMismatchError(
                f"The batch has no column {field.name!r}; expected {field.type}, came {_listed(batch.schema)}.",
                "Add the column (of nulls, if it may have them).",
            )
        if len(columns[-1]) != batch.num_rows:
            raise SchemaMismatchError(
                f"Column {field.name!r} has {len(columns[-1])} rows, the batch says {batch.num_rows}.",
                "Build the batch anew.",
            )
    fitted = pa.RecordBatch.from_arrays(columns, schema=pa.schema(wanted))
    if fitted.nbytes > MESSAGE_MAX_BYTES:
        _check_sizes(fitted)
    return fitted


def too_large(size: int) -> SchemaMismatchError:
    """Return the error for a message of so many bytes."""
    return SchemaMismatchError(
        f"The message has {size} bytes, and one may have {MESSAGE_MAX_BYTES}.",
        "Keep the data elsewhere and send where it is, or cut it into several messages.",
    )


def _check_sizes(batch: pa.RecordBatch) -> None:
    """Raise if a row is above the limit."""
    if batch.nbytes <= MESSAGE_MAX_BYTES:
        return
    if batch.num_rows == 1:
        raise too_large(batch.nbytes)
    half = batch.num_rows // 2
    _check_sizes(batch.slice(0, half))
    _check_sizes(batch.slice(half))


def _fit(column: pa.Array, field: pa.Field) -> pa.Array:
    came = column.type
    if came == field.type:
        check_memory(column, field.name)
    else:
        if not _converts(came, field.type):
            raise SchemaMismatchError(
                f"Column {field.name!r} doesn't fit: expected {field.type}, came {came}.",
                "Cast it to the topic's type before you send it.",
            )
        column = _converted(column, field)
    check_values(column, field)
    if field.name == EVENT_TIME.name:
        check_event_times(column)
    elif field.name == PROPERTIES.name:
        check_properties(column)
    return column


def _converted(column: pa.Array, field: pa.Field) -> pa.Array:
    if types.is_string(column.type) and types.is_binary(field.type):
        column = column.view(pa.binary())  # any bytes will do: what they say as text needs no look
    check_memory(column, field.name)
    try:
        return column.cast(field.type)
    except MemoryError:  # Arrow's is one, too
        raise
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"Column {field.name!r} doesn't fit: {len(column)} rows of {column.type} can't be {field.type} ({error}).",
            "Send them in smaller batches.",
        ) from None


def _converts(came: pa.DataType, wanted: pa.DataType) -> bool:
    def bytes_like(t: pa.DataType) -> bool:
        return bool(types.is_binary(t) or types.is_large_binary(t) or text_like(t) or types.is_binary_view(t))

    def text_like(t: pa.DataType) -> bool:
        return bool(types.is_string(t) or types.is_large_string(t) or types.is_string_view(t))

    if types.is_null(came):
        return True
    if text_like(wanted):
        return text_like(came)
    if bytes_like(wanted):
        return bytes_like(came)
    if types.is_timestamp(wanted) and types.is_timestamp(came):
        return (wanted.tz is None) == (came.tz is None) and wanted.unit == came.unit
    return bool(types.is_map(wanted) and types.is_map(came) and wanted.equals(came))


def _readable_by_spark(t: pa.DataType) -> bool:
    if types.is_list(t) or types.is_large_list(t):
        return _readable_by_spark(t.value_type)
    if types.is_map(t):
        return _readable_by_spark(t.key_type) and _readable_by_spark(t.item_type)
    if types.is_struct(t):
        return t.num_fields > 0 and all(_readable_by_spark(t.field(i).type) for i in range(t.num_fields))
    if types.is_decimal128(t):
        return bool(0 <= t.scale <= t.precision)
    return any(is_type(t) for is_type in _SIMPLE)


def _comment(metadata: Mapping[bytes, bytes] | None, of: str) -> dict[bytes, bytes] | None:
    """Return of some metadata the comment, None if there is none."""
    comment = (metadata or {}).get(_COMMENT)
    if comment is not None and len(comment) > COMMENT_MAX_BYTES:
        raise InvalidArgumentError(
            f"{of} has a comment of {len(comment)} bytes.", f"Use {COMMENT_MAX_BYTES} bytes at most."
        )
    return {_COMMENT: comment} if comment else None


def _bare(field: pa.Field) -> pa.Field:
    """Return a field without metadata, at any depth: in a file it could turn a type into an extension's."""
    t = field.type
    if types.is_struct(t):
        t = pa.struct([_bare(t.field(at)) for at in range(t.num_fields)])
    elif types.is_map(t):
        t = pa.map_(_bare(t.key_field), _bare(t.item_field), keys_sorted=t.keys_sorted)
    elif types.is_large_list(t):
        t = pa.large_list(_bare(t.value_field))
    elif types.is_list(t):
        t = pa.list_(_bare(t.value_field))
    return pa.field(field.name, t, field.nullable)


def _twins(t: pa.DataType) -> tuple[str, str] | None:
    """Return two fields of one struct, at any depth, whose names differ in case at most; None if there are none."""
    if not types.is_nested(t):
        return None
    fields = [t.field(at) for at in range(t.num_fields)]
    seen: dict[str, str] = {}
    for field in fields if types.is_struct(t) else ():
        if (lower := field.name.lower()) in seen:
            return seen[lower], field.name
        seen[lower] = field.name
    return next((found for field in fields if (found := _twins(field.type)) is not None), None)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "none"
