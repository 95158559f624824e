"""The tasks of a query, and reading them, over any log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from txn_source.reading.plan import ReadPlan
from txn_source.reading.request import ReadRequest
from txn_source.spark.connection import is_others, shown, source_of
from txn_source.spark.schema import Projection

if TYPE_CHECKING:
    from txn_source.spark.connection import AnyTarget

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskPartition(InputPartition):
    """The parts that one task reads, pinned: a retry reads the same rows."""

    parts: Sequence[Any]
    target: AnyTarget
    request: ReadRequest
    decisions: int
    projection: Projection
    columns: pa.Schema


def tasks_of(planned: ReadPlan, target: AnyTarget, schema: StructType) -> list[InputPartition]:
    """Return the tasks of a plan, for the columns that Spark wants."""
    every = planned.payload
    if is_others(target):
        projection = Projection.among(schema, every, target.rules.never_null, f"There are {', '.join(every.names)}.")
        columns = pa.schema([every.field(name) for name in projection.names])
    else:
        projection = Projection.of(schema, every)
        columns = projection.read_schema(every)
    return [
        TaskPartition(task, target, planned.request, planned.decisions, projection, columns) for task in planned.tasks
    ]


def read_task(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield one task's rows; which copies it read is in the task's log, as a warning if one failed."""
    if not isinstance(partition, TaskPartition):
        return  # Spark's stand-in for "no partitions"
    try:
        rows = source_of(partition.target).read(partition.columns, partition.request, partition.decisions)
        for batch in rows.read(partition.parts):
            yield partition.projection.apply(batch)
        if (copies := rows.copies_read) is not None:
            _log.log(logging.WARNING if copies.failures else logging.INFO, "task read %s", copies)
    except Exception as error:
        failure = shown(error)
    else:
        return
    raise failure from None
