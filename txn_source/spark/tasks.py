"""The tasks of a query, and reading them, over any log.

Spark's own planner of Python sources hands a task to ``read_task``. The catalog's has it read by ``read_rows``, whose
batches reach Spark in columns.
"""

from __future__ import annotations

import logging
import pickle
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from txn_source.model.position import Position, PositionRange
from txn_source.reading.filters import Filters
from txn_source.reading.plan import ReadPlan
from txn_source.reading.request import ReadRequest
from txn_source.spark.connection import is_others, shown, source_of
from txn_source.spark.schema import Projection

if TYPE_CHECKING:
    from txn_source.spark.connection import AnyTarget

_log = logging.getLogger(__name__)


class ReadTask(InputPartition):
    """What one task reads, pinned: a retry reads the same rows."""

    @abstractmethod
    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in the columns and types that Spark wants."""


@dataclass(frozen=True)
class TaskPartition(ReadTask):
    """Parts of a log's partitions."""

    parts: Sequence[Any]
    target: AnyTarget
    request: ReadRequest
    decisions: int
    projection: Projection
    columns: pa.Schema

    def some(self, first: int, last: int, begin: int, done: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the parts ``[first, last)`` that another reader has not returned yet.

        Args:
            first: the first part, inclusive.
            last: the last part, exclusive.
            begin: the ``Position.key`` of the entry with which the first part begins; negative: the part's own.
            done: the number of rows to skip; filters are ignored then, as the other reader has none.
        """
        task = replace(self, parts=self.parts[first:last])
        if begin >= 0:
            reach = PositionRange(Position.from_key(begin), task.parts[0].range.end)
            task = replace(task, parts=[replace(task.parts[0], range=reach), *task.parts[1:]])
        if done:
            task = replace(task, request=replace(task.request, filters=Filters()))
        for batch in task.rows():
            if done < batch.num_rows:
                yield batch.slice(done)
            done -= min(done, batch.num_rows)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; which copies were read is in the task's log, as a warning if one failed."""
        rows = source_of(self.target).read(self.columns, self.request, self.decisions)
        for batch in rows.read(self.parts):
            yield self.projection.apply(batch)
        if (copies := rows.copies_read) is not None:
            _log.log(logging.WARNING if copies.failures else logging.INFO, "task read %s", copies)


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
    """Yield one task's rows."""
    if isinstance(partition, ReadTask):  # Spark passes a placeholder if there are no partitions
        yield from _shown(partition.rows())


def _shown(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows; convert an error for Spark's users (``shown``)."""
    try:
        yield from rows
    except Exception as error:
        failure = shown(error)
    else:
        return
    raise failure from None


def read_rows(given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a step: Spark hands over one row with a pickled task and the arguments of ``some``.

    A negative ``last`` stands for the whole task.
    """
    for batch in given:
        pickled, first, last, *behind = (column[0].as_py() for column in batch.columns)
        task = pickle.loads(pickled)
        yield from _shown(task.rows() if last < 0 else task.some(first, last, *behind))
