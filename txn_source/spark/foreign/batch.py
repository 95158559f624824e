"""Batch reads of logs that others wrote: planned on the driver, read by tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from txn_source.foreign.reading.options import BATCH, SCHEMA, ForeignOptions, names_of
from txn_source.foreign.reading.plan import Piece, plan
from txn_source.foreign.reading.request import ForeignRequest
from txn_source.foreign.reading.source import topics_read
from txn_source.foreign.scan import schema_of
from txn_source.foreign.target import ForeignTarget
from txn_source.spark.connection import readable, shown
from txn_source.spark.schema import Projection, to_spark


@dataclass(frozen=True)
class ForeignTaskPartition(InputPartition):
    """What one task reads, pinned: a retry reads the same rows."""

    pieces: tuple[Piece, ...]
    target: ForeignTarget
    request: ForeignRequest
    projection: Projection
    columns: pa.Schema


class ForeignBatchReader(DataSourceReader):
    """Plans a batch query, and reads its partitions; it is pickled to the executors as it is."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._given = dict(options)
        self._schema = schema

    @readable
    def partitions(self) -> list[InputPartition]:
        """Return the tasks, with bounds as they are now."""
        options = ForeignOptions.parse(self._given, BATCH)
        target, log = options.target, options.target.open()
        planned = plan(log, target.rules, options.selection, options.request)
        every = target.rules.columns(log, topics_read(log, target.rules, options.selection), options.given)
        projection, columns = projected(self._schema, every, options.target)
        return [
            ForeignTaskPartition(task, target, planned.request.pinned(), projection, columns) for task in planned.tasks
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows."""
        return read_foreign_task(partition)


def projected(wanted: StructType, every: pa.Schema, target: ForeignTarget) -> tuple[Projection, pa.Schema]:
    """Return the columns that Spark wants of all that there are, and as what they are read."""
    projection = Projection.among(wanted, every, target.rules.never_null, f"There are {', '.join(every.names)}.")
    return projection, pa.schema([every.field(name) for name in projection.names])


def foreign_schema(options: Mapping[str, str], properties: Collection[str] = ()) -> StructType:
    """Return the columns of a read, batch or stream; ``properties`` may be those of a table."""
    given = ForeignOptions.parse(options, SCHEMA, properties)
    return to_spark(schema_of(given.target, given.target.open(), given.selection, None, given))


def names_of_reads(options: Mapping[str, str]) -> set[str]:
    """Return the lower-case names of all options of reads of the log that options name."""
    [path] = (value for name, value in options.items() if name.lower() == "path")
    return names_of(ForeignTarget.parse(path).rules)


def read_foreign_task(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield one task's rows."""
    if not isinstance(partition, ForeignTaskPartition):
        return  # Spark's stand-in for "no partitions"
    from txn_source.foreign.reading.reader import PieceReader  # the process that plans needs none

    try:
        reader = PieceReader(partition.target, partition.columns, partition.request)
        for batch in reader.read(partition.pieces):
            yield partition.projection.apply(batch)
    except Exception as error:
        failure = shown(error)
    else:
        return
    raise failure from None
