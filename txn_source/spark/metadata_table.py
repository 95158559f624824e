"""Reads of tables about the log: the driver asks for the rows, once, and one task hands them on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from txn_source.client.metadata_tables import metadata_table
from txn_source.spark.connection import open_log, readable
from txn_source.spark.options import MetadataTableOptions
from txn_source.spark.schema import Projection
from txn_source.spark.tasks import ReadTask, read_task
from txn_source.storage.log_tables import LOG_TABLES

_ROWS = 65_536


@dataclass(frozen=True)
class _Rows(ReadTask):
    """The rows, in Spark's types."""

    table: pa.Table

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield them."""
        yield from self.table.to_batches()


class MetadataTableReader(DataSourceReader):
    """Reads a table about the log, as it is when the query is planned."""

    def __init__(self, options: MetadataTableOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @readable
    def partitions(self) -> list[InputPartition]:
        """Return one task with all rows."""
        options = self._options
        projection = Projection.of(self._schema, LOG_TABLES[options.table])
        table = metadata_table(open_log(options.target).metadata, options.table, options.topic)
        batches = table.select(projection.names).combine_chunks().to_batches(_ROWS)
        return [_Rows(pa.Table.from_batches([projection.apply(each) for each in batches], projection.target))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        return read_task(partition)
