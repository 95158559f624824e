"""Batch reads: planned on the driver, read by tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from txn_source.client.reading.plan import plan
from txn_source.client.reading.source import resolve
from txn_source.spark.connection import open_log, readable
from txn_source.spark.options import BatchReadOptions
from txn_source.spark.schema import Projection
from txn_source.spark.tasks import TaskPartition, read_task


class BatchReader(DataSourceReader):
    """Plans a batch query, and reads its partitions; it is pickled to the executors as it is."""

    def __init__(self, options: BatchReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @readable
    def partitions(self) -> list[InputPartition]:
        """Return the tasks, with bounds as they are now."""
        options = self._options
        log = open_log(options.target)
        source = resolve(log.metadata, options.topics, options.pattern, self._schema.names)
        projection = Projection.of(self._schema, source.payload)
        planned = plan(log, source, options.request)
        schema = projection.read_schema(source.payload)
        return [TaskPartition(task, projection, schema, planned.decisions) for task in planned.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows."""
        return read_task(self._options.target, self._options.request, partition)
