"""Batch reads: planned on the driver, read by tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from txn_source.client.plan import plan, resolve, slice_reader
from txn_source.model.errors import TxnLogError
from txn_source.model.packing import Slice
from txn_source.spark.connection import open_log, readable
from txn_source.spark.options import BatchReadOptions
from txn_source.spark.schema import Projection

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskPartition(InputPartition):
    """What one task reads, pinned: a retry reads the same rows."""

    slices: tuple[Slice, ...]
    projection: Projection
    read_schema: pa.Schema
    decisions: int


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
        planned = plan(log.metadata, log.root, source, options.request)
        schema = projection.read_schema(source.payload)
        return [TaskPartition(task, projection, schema, planned.decisions) for task in planned.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows."""
        if not isinstance(partition, TaskPartition):
            return  # Spark's stand-in for "no partitions"
        try:
            log = open_log(self._options.target)
            reader = slice_reader(
                log.metadata, log.root, partition.read_schema, self._options.request, partition.decisions
            )
            for batch in reader.read(partition.slices):
                yield partition.projection.apply(batch)
            level = logging.WARNING if reader.copies_read.failures else logging.INFO
            _log.log(level, "task read %s", reader.copies_read)
        except TxnLogError as error:
            failure = error.with_traceback(None)
        else:
            return
        raise failure from None
