"""Streaming reads of logs that others write: thin over ``foreign/streaming/stream.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from txn_source.foreign.reading.options import STREAM, ForeignOptions
from txn_source.foreign.reading.source import topics_read
from txn_source.foreign.streaming.limits import ForeignLimits
from txn_source.foreign.streaming.offset import ForeignOffset
from txn_source.foreign.streaming.options import limits_of
from txn_source.foreign.streaming.stream import ForeignStream
from txn_source.spark.connection import readable
from txn_source.spark.foreign.batch import ForeignTaskPartition, projected, read_foreign_task


class ForeignStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says how far batches go, and plans and reads them; it is pickled to the executors without what it remembers."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Take the options as they came: an error here would reach the user buried under one of Spark's own."""
        self._given = dict(options)
        self._schema = schema
        self._opened: tuple[ForeignOptions, ForeignLimits, ForeignStream] | None = None
        self._initial: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @readable
    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; Spark asks twice, and must be told the same."""
        if self._initial is None:
            self._initial = self._json(self._stream().initial())
        return self._initial

    @readable
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        begins = self._offset(start)
        ends = self._stream().latest(begins, limited=not isinstance(limit, ReadAllAvailable))
        return start if ends is begins else self._json(ends)

    @readable
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit of the kind that the options have; what it is exactly, the options say."""
        limits = self._all()[1]
        most = limits.max_messages or limits.max_offsets
        if most is not None:
            return ReadMaxRows(most)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        fewest = limits.min_messages or limits.min_offsets
        return ReadAllAvailable() if fewest is None else ReadMinRows(fewest)

    @readable
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return how far the log could be read now, for the query's progress."""
        return self._json(self._stream().newest())

    @readable
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the target."""
        self._stream().freeze()

    @readable
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch."""
        options, _, stream = self._all()
        planned = stream.plan(self._offset(start), self._offset(end))
        if not planned.tasks:
            return []
        target, log = options.target, options.target.open()
        every = target.rules.columns(log, topics_read(log, target.rules, options.selection), options.given)
        projection, columns = projected(self._schema, every, target)
        request = planned.request.pinned()
        return [ForeignTaskPartition(task, target, request, projection, columns) for task in planned.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows."""
        return read_foreign_task(partition)

    @readable
    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept at the log: the checkpoint knows how far the query has come."""

    def stop(self) -> None:
        """Nothing is held."""

    def _all(self) -> tuple[ForeignOptions, ForeignLimits, ForeignStream]:
        if self._opened is None:
            options = ForeignOptions.parse(self._given, STREAM)
            limits = limits_of(options.given)
            stream = ForeignStream(options.target, options.selection, options.request, limits)
            self._opened = options, limits, stream
        return self._opened

    def _stream(self) -> ForeignStream:
        return self._all()[2]

    def _json(self, offset: ForeignOffset) -> dict[str, Any]:
        return offset.to_json(self._all()[0].target.rules)

    def _offset(self, value: dict[str, Any]) -> ForeignOffset:
        return ForeignOffset.from_json(value, self._all()[0].target.rules)
