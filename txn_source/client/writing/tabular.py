"""What a producer takes as a batch: Arrow's own, and DataFrames."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from txn_source.model.errors import SchemaMismatchError


class ArrowStream(Protocol):
    """What gives its rows as Arrow's C stream: DataFrames of pandas and Polars, relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


Tabular: TypeAlias = pa.RecordBatch | pa.Table | ArrowStream
"""Rows in columns."""

_PLAIN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def batches_of(given: Tabular) -> list[pa.RecordBatch]:
    """Return the batches of a table, a DataFrame without its index, or a stream; text and binary are no views."""
    if not isinstance(given, pa.Table):
        given = _table(given)
    plain = pa.schema([field.with_type(_PLAIN.get(field.type, field.type)) for field in given.schema])
    batches: list[pa.RecordBatch] = (given if plain.equals(given.schema) else given.cast(plain)).to_batches()
    return batches


def _table(given: Any) -> pa.Table:
    kind = type(given)
    if kind.__module__.startswith("pyspark."):
        raise SchemaMismatchError(
            "The batch is a DataFrame of Spark's.", 'Write it with df.write.format("txnlog"), or send df.toArrow().'
        )
    if not hasattr(given, "__arrow_c_stream__"):
        raise SchemaMismatchError(
            f"The batch is a {kind.__name__}.",
            "Send a pyarrow.RecordBatch or Table, or a DataFrame of pandas or Polars.",
        )
    try:
        if kind.__module__.startswith("pandas."):
            return pa.Table.from_pandas(given, preserve_index=False)
        return pa.table(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaMismatchError(
            f"The {kind.__name__} can't be sent: {error}.".replace("..", "."), "Make its columns the topic's."
        ) from None
