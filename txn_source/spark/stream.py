"""Streaming reads: thin over ``client/streaming/stream.py``. One long-lived process asks for offsets, others read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
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

from txn_source.client.stream_offset import StreamOffset
from txn_source.client.streaming.stream import StreamedTopics, TopicStream
from txn_source.client.streaming.stream_subscription import StreamSubscription
from txn_source.model.errors import TxnLogError
from txn_source.model.topic_name import TopicName
from txn_source.spark.connection import open_log, readable
from txn_source.spark.options import STREAM_READ, StreamReadOptions
from txn_source.spark.schema import Projection
from txn_source.spark.table_options import kept_options, names_a_log, no_options, options_of
from txn_source.spark.tasks import TaskPartition, read_task


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says how far batches go, and plans and reads them; it is pickled to the executors without what it remembers.

    With it go the options as the driver understands them: its folder and its environment aren't those of executors.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Take the options as they came: an error here would reach the user buried under one of Spark's own."""
        self._given = options_of(options, kept_options(schema), STREAM_READ)
        self._schema = schema
        self._understood: StreamReadOptions | None = None
        self._opened: TopicStream | None = None
        self._held: StreamSubscription | None = None
        self._initial: dict[str, Any] | None = None

    @property
    def _options(self) -> StreamReadOptions:
        if self._understood is not None:
            return self._understood
        if not names_a_log(self._given):
            raise no_options("stream")
        return StreamReadOptions.parse(self._given)

    def __getstate__(self) -> dict[str, Any]:
        understood = None
        with suppress(TxnLogError):  # which ``partitions`` raises, before there are tasks
            understood = self._options
        return {**self.__dict__, "_opened": None, "_held": None, "_understood": understood}

    @readable
    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; Spark asks twice, and must be told the same."""
        if self._initial is None:
            self._initial = self._stream().initial().to_json()
        return self._initial

    @readable
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        begins = StreamOffset.from_json(start)
        ends = self._stream().latest(begins, limited=not isinstance(limit, ReadAllAvailable))
        return start if ends is begins else ends.to_json()

    @readable
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit of the kind that the options have; what it is exactly, the options say."""
        limits = self._options.limits
        if limits.max_messages is not None:
            return ReadMaxRows(limits.max_messages)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_messages is not None:
            return ReadMinRows(limits.min_messages)
        return ReadAllAvailable()

    @readable
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return how far the log could be read now, for the query's progress."""
        return self._stream().newest().to_json()

    @readable
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the target."""
        self._stream().freeze()

    @readable
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch."""
        planned = self._stream().plan(StreamOffset.from_json(start), StreamOffset.from_json(end))
        if not planned.tasks:
            return []
        projection = Projection.of(self._schema, planned.payload)
        schema = projection.read_schema(planned.payload)
        level = planned.request.isolation_level
        return [TaskPartition(task, projection, schema, planned.decisions, level) for task in planned.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows."""
        options = self._options
        return read_task(options.target, options.request, partition)

    @readable
    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge, if there is a subscription: the checkpoint knows how far the query has come."""
        self._stream().commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Let go of the subscription. Spark may end the process instead, which does it as well."""
        if self._held is not None:
            self._held.close()

    def _stream(self) -> TopicStream:
        if self._opened is None:
            options = self._options
            log = open_log(options.target)
            of = StreamedTopics(options.topics, options.pattern, self._schema.names)
            if options.subscription is not None:
                name, topic = options.subscription, TopicName.parse((options.topics or ())[0])
                self._held = StreamSubscription(log.metadata, topic, name, options.subscription_level)
            self._opened = TopicStream(log, of, options.request, options.limits, subscription=self._held)
        return self._opened
