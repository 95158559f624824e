"""Writing from Spark, exactly once: tasks write files that nothing refers to, and the driver registers all of them.

The registering call is one transaction of the log: readers see the whole batch or nothing. It is known by the query and
the batch, so a commit that is repeated, whoever repeats it, changes nothing. What tasks that failed, or ran twice, have
written is never registered. After a commit was tried no file is removed, whatever its answer was: it may have counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from txn_source.client.bulk_writer import BulkWriter, join_batches
from txn_source.client.log import Log
from txn_source.metadata.producers import OpenedProducer
from txn_source.metadata.sinks import Sink, TopicBatch
from txn_source.model.errors import InternalError, SchemaMismatchError
from txn_source.model.topic_name import TopicName
from txn_source.spark.connection import open_log, readable
from txn_source.spark.options import TOPIC, WriteOptions
from txn_source.spark.sink_columns import SinkColumns
from txn_source.storage.schema import deserialize_schema

_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class TaskWrote(WriterCommitMessage):
    """What one task wrote; ``query_id`` is the stream's."""

    batches: tuple[TopicBatch, ...]
    query_id: str | None


class _Writer:
    """What batch and streaming writes share. It is pickled to the tasks as it is."""

    def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        if options.topic is not None:
            self._columns.check(_payload(open_log(options.target), options.topic), options.topic.short)

    @readable
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        """Write a task's rows to files."""
        context = TaskContext.get()
        turn = context.partitionId() if context else 0
        log = open_log(self._options.target)
        writers: dict[TopicName, BulkWriter] = {}
        try:
            for batch in iterator:
                for topic, rows in self._by_topic(batch):
                    writer = writers.get(topic)
                    if writer is None:
                        writer = writers[topic] = BulkWriter(log.metadata, log.root, topic, turn)
                    writer.write(self._columns.fit(rows, writer.payload, topic.short))
            return TaskWrote(
                tuple(writers[topic].finish(self._owner()) for topic in sorted(writers)),
                context.getLocalProperty(_QUERY_ID) if context else None,
            )
        except BaseException:
            for writer in writers.values():
                writer.discard()
            raise

    def _owner(self) -> OpenedProducer | None:
        return None

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicName, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        index = next(i for i, name in enumerate(batch.schema.names) if name.lower() == TOPIC.name)
        topics, rest = batch.column(index), batch.drop_columns([batch.schema.names[index]])
        if topics.null_count:
            raise SchemaMismatchError(
                f"Column {TOPIC.name} is null in {topics.null_count} rows.", "Name a topic in each row."
            )
        for topic in pc.unique(topics).to_pylist():
            yield TopicName.parse(topic), rest.filter(pc.equal(topics, topic))

    def _commit(
        self, messages: Sequence[WriterCommitMessage | None], query_id: str | None, batch_id: int, key: str, name: str
    ) -> None:
        log = open_log(self._options.target)
        batches = join_batches(batch for message in _wrote(messages) for batch in message.batches)
        sink = Sink(query_id, batch_id, name, self._options.transactional_id)
        log.metadata.commit_batch(sink, batches, key)

    def abort(self, messages: list[WriterCommitMessage | None], *batch: int) -> None:
        """Leave the files to ``txnlog gc``: Spark also aborts after a commit whose answer got lost, when they count."""


class BatchWriter(_Writer, DataSourceArrowWriter):
    """``df.write``: one transaction for the job."""

    def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
        super().__init__(options, columns)
        self._key = uuid.uuid4().hex
        self._producer: OpenedProducer | None = None
        if options.transactional_id is not None and options.topic is not None:
            stub = open_log(options.target).metadata
            self._producer, _ = stub.open_producer(options.topic, options.transactional_id, None)

    def _owner(self) -> OpenedProducer | None:
        return self._producer

    @readable
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Register what the tasks wrote, in one transaction."""
        name = self._options.transactional_id or f"spark-{self._key[:12]}"
        self._commit(messages, None, 0, self._key, name)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """``df.writeStream``: one transaction for each micro-batch."""

    @readable
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Register what the tasks of a micro-batch wrote, unless that was done before."""
        query_ids = {message.query_id for message in _wrote(messages)}
        if not query_ids:
            return  # without tasks there are no rows
        [query_id] = query_ids
        if query_id is None:
            raise InternalError("Spark has not told its tasks the id of the query.", "Please report it.")
        name = self._options.transactional_id or f"spark-{query_id[:12]}"
        self._commit(messages, query_id, batchId, f"{query_id}-{batchId}-{uuid.uuid4().hex}", name)


def _wrote(messages: Sequence[WriterCommitMessage | None]) -> Iterator[TaskWrote]:
    for message in messages:
        if isinstance(message, TaskWrote):
            yield message


def _payload(log: Log, topic: TopicName) -> pa.Schema:
    [view] = log.metadata.get_view([topic]).topics
    return deserialize_schema(view.topic.schema)
