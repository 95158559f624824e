"""The columns of a write: the topic's payload by name, and a few that say where a row goes and what it carries."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from txn_source.client.bulk_writer import PARTITION
from txn_source.client.columns import METADATA_COLUMNS
from txn_source.model.errors import SchemaMismatchError
from txn_source.spark.options import TOPIC
from txn_source.spark.schema import to_spark
from txn_source.storage.schema import EVENT_TIME, KEY, PROPERTIES, RAW_SCHEMA

_OPTIONAL = {field.name: field for field in (EVENT_TIME, PROPERTIES, PARTITION, KEY, TOPIC)}
_READ_ONLY = tuple(name for name in METADATA_COLUMNS if name not in _OPTIONAL)
_TEXT_OR_BYTES = ("string", "binary")


class SinkColumns:
    """The columns of a frame that is written; names are matched as Spark matches them, ignoring case."""

    def __init__(self, schema: StructType) -> None:
        self._types = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
        read_only = [field.name for field in schema.fields if field.name.lower() in _READ_ONLY]
        if read_only:
            raise SchemaMismatchError(
                f"Column {read_only[0]!r} is the log's to give, and can't be written.",
                'Drop it; when reading, .option("metadataColumns", "none") leaves it out.',
            )

    def check(self, payload: pa.Schema, topic: str) -> None:
        """Raise SCHEMA_MISMATCH, with the column, what was expected and what came, unless a topic can take them."""
        raw = payload.equals(RAW_SCHEMA)
        expected = {field.name: field.dataType.simpleString() for field in to_spark(payload).fields}
        known = {name.lower() for name in expected} | {name for name in _OPTIONAL if not (raw and name == KEY.name)}
        for name in self._types:
            if name not in known:
                raise SchemaMismatchError(
                    f"The frame has a column {name!r}, which topic {topic!r} doesn't have.",
                    f"The topic's columns are {', '.join(f'{n} {t}' for n, t in expected.items())}; drop or rename it.",
                )
        for name, wanted in expected.items():
            came = self._types.get(name.lower())
            if came is None and not (raw and name == "key"):
                raise SchemaMismatchError(
                    f"The frame has no column {name!r}, which topic {topic!r} has as {wanted}.",
                    "Add it (of nulls, if it may have them).",
                )
            if came not in (None, "void", wanted) and not (wanted == "binary" and came in _TEXT_OR_BYTES):
                raise SchemaMismatchError(
                    f"Column {name!r} doesn't fit topic {topic!r}: expected {wanted}, came {came}.",
                    f"Cast it to {wanted}.",
                )
        for name, field in _OPTIONAL.items():
            wanted = to_spark(pa.schema([field])).fields[0].dataType.simpleString()
            came = self._types.get(name)
            if came not in (None, "void", wanted) and not (name == KEY.name and came in _TEXT_OR_BYTES):
                raise SchemaMismatchError(
                    f"Column {name!r} doesn't fit: expected {wanted}, came {came}.", f"Cast it to {wanted}."
                )

    def fit(self, batch: pa.RecordBatch, payload: pa.Schema, topic: str) -> pa.RecordBatch:
        """Return Spark's batch with a topic's names and types."""
        self.check(payload, topic)
        wanted = {field.name.lower(): field for field in (*_OPTIONAL.values(), *payload)}
        columns, fields = [], []
        for column, name in zip(batch.columns, batch.schema.names, strict=True):
            field = wanted[name.lower()]
            try:
                columns.append(column if column.type == field.type else column.cast(field.type))
            except pa.ArrowInvalid as error:
                raise SchemaMismatchError(
                    f"A value of column {name!r} doesn't fit topic {topic!r}, which has {field.type} ({error}).",
                    "Round it in the query, to what the topic can hold.",
                ) from None
            fields.append(field)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
