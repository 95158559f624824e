"""What a task of a query reads, and reading it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from txn_source.client.reading.request import ReadRequest
from txn_source.client.target import Target
from txn_source.model.isolation import IsolationLevel
from txn_source.model.packing import Slice
from txn_source.spark.connection import open_log, shown
from txn_source.spark.schema import Projection

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskPartition(InputPartition):
    """What one task reads, pinned: a retry reads the same rows."""

    slices: tuple[Slice, ...]
    projection: Projection
    read_schema: pa.Schema
    decisions: int
    isolation_level: IsolationLevel | None = None
    """A subscription's, which the query's options don't tell; None: as they say."""


def read_task(target: Target, request: ReadRequest, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield one task's rows; which copies it read is in the task's log, as a warning if one failed."""
    if not isinstance(partition, TaskPartition):
        return  # Spark's stand-in for "no partitions"
    from txn_source.client.reading.slice_reader import SliceReader  # the process that plans needs none

    try:
        log = open_log(target)
        if partition.isolation_level is not None:
            request = replace(request, isolation_level=partition.isolation_level)
        reader = SliceReader.of(log, partition.read_schema, request, partition.decisions)
        for batch in reader.read(partition.slices):
            yield partition.projection.apply(batch)
        level = logging.WARNING if reader.copies_read.failures else logging.INFO
        _log.log(level, "task read %s", reader.copies_read)
    except Exception as error:
        failure = shown(error)
    else:
        return
    raise failure from None
