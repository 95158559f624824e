"""Columns between Arrow and Spark: the schema a read has, and the one a user asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from txn_source.client.reading.columns import columns_beside, select_columns
from txn_source.model.errors import SchemaMismatchError
from txn_source.spark.table_options import kept_options

_NEVER_NULL = ("__partition", "__ledger_id", "__entry_id", "__batch_index", "__publish_time", "__topic")
"""Metadata columns that every message has."""


def to_spark(schema: pa.Schema) -> StructType:
    """Return Spark's schema for the columns of a read."""
    return from_arrow_schema(schema)


def with_comments(schema: StructType, columns: pa.Schema) -> StructType:
    """Return the schema with the comments of the columns that it was made of."""
    fields = []
    for field, column in zip(schema.fields, columns, strict=True):
        comment = (column.metadata or {}).get(b"comment")
        metadata = {} if comment is None else {"comment": comment.decode(errors="replace")}
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields)


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns that Spark wants, in its order, names and exact Arrow types."""

    names: tuple[str, ...]
    """The columns as the log names them."""
    target: pa.Schema
    """What each batch must look like for Spark."""

    @classmethod
    def of(cls, wanted: StructType, payload: pa.Schema) -> Projection:
        """Return the projection for a schema that Spark hands over: the source's own, or ``.schema(...)``.

        Names are matched as Spark matches them, ignoring case. A column without nulls may be asked for as one with
        nulls, but not the other way round: Spark believes it, and leaves out filters for nulls.

        Raises:
            SchemaMismatchError: a column that isn't there, is there twice, has another type, or may have nulls where
                none are asked for.
        """
        beside = columns_beside(payload)
        there = f"The payload columns are {', '.join(payload.names)}; metadata columns are {', '.join(beside)}."
        return cls.among(wanted, pa.schema([*payload, *beside.values()]), _NEVER_NULL, there)

    @classmethod
    def among(cls, wanted: StructType, available: pa.Schema, never_null: Sequence[str], there: str) -> Projection:
        """Return the projection of columns that can be asked for; ``there`` names them for an error."""
        again = " If a column was added to the table, make the table again." if kept_options(wanted) else ""
        known = {field.name.lower(): field for field in to_spark(available).fields}
        names: list[str] = []
        for field in wanted.fields:
            found = known.get(field.name.lower())
            if found is None:
                raise SchemaMismatchError(
                    f"The schema asks for a column {field.name!r}, which isn't there.",
                    f"{there}{again}",
                )
            if found.name in names:
                raise SchemaMismatchError(f"The schema asks for column {field.name!r} twice.", "Name each once.")
            if not _same(found, field):
                raise SchemaMismatchError(
                    f"Column {found.name!r} doesn't fit: the schema asks for {field.dataType.simpleString()},"
                    f" the topic has {found.dataType.simpleString()}.",
                    f"Ask for {found.dataType.simpleString()}, and cast in the query.",
                )
            if not _may_have_nulls(found, field, never_null):
                raise SchemaMismatchError(
                    f"The schema asks for column {found.name!r} without nulls, and it may have some.",
                    "Leave out 'not null': Spark would leave out filters for nulls, and give wrong rows.",
                )
            names.append(found.name)
        return cls(tuple(names), to_arrow_schema(wanted, timezone="UTC"))

    def read_schema(self, payload: pa.Schema) -> pa.Schema:
        """Return the schema in which the client reads these columns."""
        return select_columns(payload, self.names)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch that the client read, in Spark's types."""
        columns = [_fitted(column, field) for column, field in zip(batch.columns, self.target, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.target)


def _fitted(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:  # a time finer than microseconds, or too far away to be counted in them
        raise SchemaMismatchError(
            f"A value of column {field.name!r}, which is {column.type}, doesn't fit Spark's {field.type} ({error}).",
            "Leave the column out with .schema(...), or read the topic with scan.",
        ) from None


def _may_have_nulls(mine: StructField, wanted: StructField, never_null: Sequence[str] = _NEVER_NULL) -> bool:
    """Return False if a column, or a part of it, may have nulls where the wanted one says that it has none."""
    nullable = mine.nullable and mine.name not in never_null
    return (wanted.nullable or not nullable) and _parts_may_have_nulls(mine.dataType, wanted.dataType)


def _parts_may_have_nulls(mine: DataType, wanted: DataType) -> bool:
    match mine, wanted:
        case StructType(), StructType():
            return all(_may_have_nulls(m, w) for m, w in zip(mine.fields, wanted.fields, strict=True))
        case ArrayType(), ArrayType():
            enough = wanted.containsNull or not mine.containsNull
            return enough and _parts_may_have_nulls(mine.elementType, wanted.elementType)
        case MapType(), MapType():
            enough = wanted.valueContainsNull or not mine.valueContainsNull
            parts = ((mine.keyType, wanted.keyType), (mine.valueType, wanted.valueType))
            return enough and all(_parts_may_have_nulls(m, w) for m, w in parts)
    return True


def _same(mine: StructField, wanted: StructField) -> bool:
    return mine.dataType.simpleString() == wanted.dataType.simpleString()
