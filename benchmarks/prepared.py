"""The limit of Spark's Python path: a source that yields one prepared batch again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from txn_source.client.log import Log
from txn_source.spark.schema import to_spark

ROWS = 65_536


class PreparedSource(DataSource):
    """``format("prepared")`` with the options ``file`` (an Arrow stream with the batch), ``batches`` and ``tasks``."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["file"], int(self.options["batches"]), int(self.options["tasks"]), schema)


def prepared_frame(
    spark: SparkSession, log: Log, topic: str, folder: Path, batches: int, tasks: int
) -> Callable[[], DataFrame]:
    """Return what makes a frame of the first batch of a topic's default columns, so many times in so many tasks."""
    file = str(folder / "prepared.arrow")
    with log.scan(topic) as reader, pa.OSFile(file, "wb") as sink:
        first = reader.read_next_batch()
        with pa.ipc.new_stream(sink, first.schema) as writer:
            writer.write_batch(first)
    spark.dataSource.register(PreparedSource)
    options = {"file": file, "batches": str(batches), "tasks": str(tasks)}
    return lambda: spark.read.format("prepared").options(**options).schema(to_spark(first.schema)).load()


class _Reader(DataSourceReader):
    def __init__(self, file: str, batches: int, tasks: int, schema: StructType) -> None:
        self._file, self._batches, self._tasks, self._schema = file, batches, tasks, schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = prepared_batch(self._file, self._schema)
        for _ in range(partition.value, self._batches, self._tasks):
            yield batch


def prepared_batch(file: str, schema: StructType) -> pa.RecordBatch:
    """Return the prepared batch, as Spark wants it."""
    with pa.memory_map(file) as source:
        batch = pa.ipc.open_stream(source).read_next_batch()
    return pa.RecordBatch.from_arrays(batch.columns, schema=to_arrow_schema(schema, timezone="UTC"))
