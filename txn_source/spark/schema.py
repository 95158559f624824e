"""Columns between Arrow and Spark: the schema a read has, and the one a user asked for."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from txn_source.client.columns import METADATA_COLUMNS, select_columns
from txn_source.model.errors import SchemaMismatchError


def to_spark(schema: pa.Schema) -> StructType:
    """Return Spark's schema for the columns of a read."""
    return from_arrow_schema(schema)


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

        Names are matched as Spark matches them, ignoring case. Nullability isn't compared.

        Raises:
            SchemaMismatchError: a column that isn't there, is there twice, or has another type.
        """
        available = pa.schema([*payload, *METADATA_COLUMNS.values()])
        known = {field.name.lower(): field for field in to_spark(available).fields}
        names: list[str] = []
        for field in wanted.fields:
            found = known.get(field.name.lower())
            if found is None:
                raise SchemaMismatchError(
                    f"The schema asks for a column {field.name!r}, which isn't there.",
                    f"The payload columns are {', '.join(payload.names)}; metadata columns are"
                    f" {', '.join(METADATA_COLUMNS)}.",
                )
            if found.name in names:
                raise SchemaMismatchError(f"The schema asks for column {field.name!r} twice.", "Name each once.")
            if not _same(found, field):
                raise SchemaMismatchError(
                    f"Column {found.name!r} doesn't fit: the schema asks for {field.dataType.simpleString()},"
                    f" the topic has {found.dataType.simpleString()}.",
                    f"Ask for {found.dataType.simpleString()}, and cast in the query.",
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


def _same(mine: StructField, wanted: StructField) -> bool:
    return mine.dataType.simpleString() == wanted.dataType.simpleString()
