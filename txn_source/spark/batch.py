"""Batch reads: planned on the driver, read by tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from txn_source.reading.log_source import LogSource
from txn_source.reading.plan import plan
from txn_source.spark.connection import readable, source_of
from txn_source.spark.reads import AnyOptions
from txn_source.spark.tasks import read_task, tasks_of


def batch_tasks(source: LogSource[Any], options: AnyOptions, schema: StructType) -> list[InputPartition]:
    """Return the tasks of a batch read, with bounds as they are now."""
    look = source.look(replace(options.selection, columns=schema.names))
    return tasks_of(plan(source, look, options.request), options.target, schema)


class BatchReader(DataSourceReader):
    """Plans a batch query, and reads its partitions; it is pickled to the executors as it is."""

    def __init__(self, options: AnyOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @readable
    def partitions(self) -> list[InputPartition]:
        """Return the tasks, with bounds as they are now."""
        return batch_tasks(source_of(self._options.target), self._options, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows."""
        return read_task(partition)
