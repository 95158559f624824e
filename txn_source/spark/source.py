"""The Spark data source ``txnlog``."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from txn_source.client.columns import read_schema
from txn_source.client.plan import resolve
from txn_source.model.errors import InvalidArgumentError
from txn_source.spark.batch import BatchReader
from txn_source.spark.connection import open_log, readable
from txn_source.spark.options import BatchReadOptions, ColumnOptions, WriteOptions
from txn_source.spark.schema import to_spark
from txn_source.spark.sink import BatchWriter, StreamWriter
from txn_source.spark.stream import StreamReader


class TxnLogDataSource(DataSource):
    """``spark.read.format("txnlog")``. Spark finds it by itself; ``spark.dataSource.register`` works as well.

    It has no ``pushFilters``: on Spark 4.3 a pushed filter leaks into other scans of the same DataFrame and gives
    wrong rows.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "txnlog"

    @readable
    def schema(self) -> StructType:
        """Return the payload columns of the topics and the metadata columns that were asked for."""
        options = ColumnOptions.parse(self.options)
        source = resolve(open_log(options.target).metadata, options.topics, options.pattern)
        return to_spark(read_schema(source.payload, options.metadata_columns, several_topics=source.several_topics))

    @readable
    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of a streaming query."""
        return StreamReader(self.options, schema)

    @readable
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of a streaming query."""
        _refuse_overwrite(overwrite)
        return StreamWriter(WriteOptions.parse(self.options, _names(schema)), schema)

    @readable
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch job."""
        _refuse_overwrite(overwrite)
        return BatchWriter(WriteOptions.parse(self.options, _names(schema)), schema)

    @readable
    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query."""
        return BatchReader(BatchReadOptions.parse(self.options), schema)


def _names(schema: StructType) -> list[str]:
    return [name.lower() for name in schema.names]


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgumentError(
            "A log is never overwritten: readers hold positions in it.",
            'Use .mode("append") (for a stream, .outputMode("append")); to begin anew, delete the topic and create it.',
        )
