"""A source that does nothing: what Spark itself takes for a query of a Python source, and for a stream of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, StructType


class NothingSource(DataSource):
    """``format("nothing")``: one row from each of two tasks, known beforehand."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> StructType:
        return StructType().add("value", BinaryType())

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([b"x"], pa.binary())], names=["value"])


class _StreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def latestOffset(self, *_: Any) -> dict[str, Any]:
        return {"at": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([b"x"], pa.binary())], names=["value"])
