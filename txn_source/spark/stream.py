"""Streaming reads: thin over ``reading/stream.py``. One long-lived process asks for offsets, others read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
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

from txn_source.model.topic_name import TopicName
from txn_source.reading.log_source import OffsetText
from txn_source.reading.stream import Stream
from txn_source.reading.stream_offset import StreamOffset
from txn_source.spark.connection import is_others, open_log, readable, source_of
from txn_source.spark.reads import options_given, stream_options
from txn_source.spark.tasks import read_task, tasks_of


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says how far batches go, and plans and reads them; it is pickled to the executors without what it remembers."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Take the options as they came: an error here would reach the user buried under one of Spark's own."""
        self._given = dict(options)
        self._schema = schema
        self._opened: _Opened | None = None
        self._initial: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @readable
    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; Spark asks twice, and must be told the same."""
        if self._initial is None:
            self._initial = self._open.offsets.to_json(self._open.stream.initial())
        return self._initial

    @readable
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends."""
        begins = self._open.offsets.from_json(start)
        limited = not isinstance(limit, ReadAllAvailable)
        ends, self._open.look = self._open.stream.step(begins, limited=limited)
        return start if ends is begins else self._open.offsets.to_json(ends)

    @readable
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit of the kind that the options have; what it is exactly, the options say."""
        limits = stream_options(options_given(self._given, self._schema, stream=True)).limits
        most, fewest = limits.max_messages or limits.max_offsets, limits.min_messages or limits.min_offsets
        if most is not None:
            return ReadMaxRows(most)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if fewest is None else ReadMinRows(fewest)

    @readable
    def reportLatestOffset(self) -> dict[str, Any]:
        """Return how far the log could be read when the batch's end was asked for, for the query's progress."""
        look, self._open.look = self._open.look, None
        return self._open.offsets.to_json(self._open.stream.newest(look))

    @readable
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the target."""
        self._open.stream.freeze()

    @readable
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch."""
        planned = self._open.stream.plan(*map(self._open.offsets.from_json, (start, end)))
        return tasks_of(planned, self._open.target, self._schema) if planned.tasks else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's rows."""
        return read_task(partition)

    @readable
    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge, if there is a subscription: the checkpoint knows how far the query has come."""
        self._open.stream.commit(self._open.offsets.from_json(end))

    @readable
    def behind(self, at: dict[str, Any]) -> dict[str, Any]:
        """Return the figures of a query's progress at an offset (``figures``); empty for logs of other systems."""
        return self._open.behind(self._open.offsets.from_json(at))

    def stop(self) -> None:
        """Let go of the subscription. Spark may end the process instead, which does it as well."""
        if self._opened is not None and self._opened.held is not None:
            self._opened.held.close()

    @property
    def _open(self) -> _Opened:
        if self._opened is None:
            self._opened = _Opened(options_given(self._given, self._schema, stream=True), self._schema)
        return self._opened


class _Opened:
    """The stream that the options name, and its subscription."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        options = stream_options(given)
        selection = replace(options.selection, columns=schema.names)
        self.target = options.target
        self.held = None
        self.behind: Callable[[StreamOffset], dict[str, Any]] = lambda at: {}
        self.stream: Stream[Any]
        self.look: Any = None  # the look that has the newest end, until the progress has asked for it
        source = source_of(options.target)
        self.offsets: OffsetText = source.describe().offsets
        if is_others(options.target):
            self.stream = Stream(source, selection, options.request, options.limits)
            return
        from txn_source.client.streaming.behind import figures
        from txn_source.client.streaming.own_guard import own_stream
        from txn_source.client.streaming.stream_subscription import StreamSubscription
        from txn_source.spark.options import StreamReadOptions

        assert isinstance(options, StreamReadOptions)
        log = open_log(options.target)
        if options.subscription is not None:
            topic = TopicName.parse((selection.topics or ())[0])
            self.held = StreamSubscription(log.metadata, topic, options.subscription, options.subscription_level)
        self.stream = own_stream(log, selection, options.request, options.limits, subscription=self.held)
        level = options.request.isolation_level
        self.behind = lambda at: figures(log, at, at.level or level, selection)
