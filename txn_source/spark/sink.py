"""Writing from Spark, exactly once: tasks write files that nothing refers to, and the driver registers all of them.

The registering call is one transaction of the log: readers see the whole batch or nothing. It is known by the query and
the batch, or by the version that a batch job gives, so a commit that is repeated, whoever repeats it, changes nothing;
one that can't be a repetition, or has other rows, is refused or told (``metadata/store/spark_commits.py``). What tasks
have written that failed, or ran twice, is never registered. After a commit was tried no file is removed, whatever its
answer was: it may have counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from txn_source.client.access import Access
from txn_source.client.writing.bulk_writer import BulkWriter, give_up, join_batches
from txn_source.model.entry import OpenedProducer
from txn_source.model.errors import InternalError, InvalidArgumentError, SchemaMismatchError
from txn_source.model.spark_commit import Sink, TopicBatch, joined_content
from txn_source.model.topic_name import TopicName
from txn_source.spark.connection import handed_over, open_log, readable
from txn_source.spark.content import content_of
from txn_source.spark.options import TOPIC, WriteOptions
from txn_source.spark.sink_columns import SinkColumns
from txn_source.storage.arrays import array_of, numbers_in
from txn_source.storage.schema import deserialize_schema

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_EXECUTION, _ROOT_EXECUTION = "spark.sql.execution.id", "spark.sql.execution.root.id"


@dataclass(frozen=True)
class TaskWrote(WriterCommitMessage):
    """What one task wrote; ``query_id`` and ``run_id`` are the stream's."""

    batches: tuple[TopicBatch, ...]
    query_id: str | None
    run_id: str | None = None


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
        return self._write(iterator)

    def _write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        context = TaskContext.get()
        turn = context.partitionId() if context else 0
        log = open_log(self._options.target)
        writers: dict[TopicName, BulkWriter] = {}
        contents: dict[TopicName, list[int]] = {}
        try:
            for batch in handed_over(iterator):
                for topic, rows in self._by_topic(batch):
                    writer = writers.get(topic)
                    if writer is None:
                        writer, contents[topic] = BulkWriter(log, topic, turn), []
                        writers[topic] = writer
                    fitted = self._columns.fit(rows, writer.payload, topic.short)
                    if self._may_be_repeated:
                        contents[topic].append(~content_of(fitted))
                    writer.write(fitted)
            return TaskWrote(
                tuple(
                    replace(writers[topic].finish(self._owner()), content=joined_content(contents[topic]))
                    for topic in sorted(writers)
                ),
                context.getLocalProperty(_QUERY_ID) if context else None,
                context.getLocalProperty(_RUN_ID) if context else None,
            )
        except BaseException:
            for writer in writers.values():
                writer.discard()
            raise

    @property
    def _may_be_repeated(self) -> bool:
        """True if the same rows may come again, and have to be known then."""
        return True

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
        coded = topics.dictionary_encode()
        numbers = numbers_in(coded.indices)
        for number, topic in enumerate(coded.dictionary.to_pylist()):
            yield TopicName.parse(topic), rest.filter(array_of(numbers == number))

    def _commit(self, messages: Sequence[WriterCommitMessage | None], sink: Sink, key: str) -> None:
        log = open_log(self._options.target)
        batches = join_batches(batch for message in _wrote(messages) for batch in message.batches)
        if sink.app is not None and self._options.topic is not None and not batches:
            topic = log.metadata.get_view([self._options.topic]).topics[0].topic
            batches = [TopicBatch(topic.name, topic.topic_id, ())]  # no rows are this version's rows, too
        log.metadata.commit_batch(sink, batches, key)

    def abort(self, messages: list[WriterCommitMessage | None], *batch: int) -> None:
        """Leave the files to ``txnlog gc``: Spark also aborts after a commit whose answer got lost, when they count."""
        log = open_log(self._options.target)
        give_up(log, (batch for message in _wrote(messages) for batch in message.batches))


class BatchWriter(_Writer, DataSourceArrowWriter):
    """``df.write``: one transaction for the job."""

    def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
        super().__init__(options, columns)
        self._key = uuid.uuid4().hex
        self._producer: OpenedProducer | None = None
        # An INSERT isn't sure of its table before its rows were seen, and fences nobody: it opens when it commits.
        if options.transactional_id is not None and options.topic is not None and columns.mark is None:
            stub = open_log(options.target).metadata
            self._producer, _ = stub.open_producer(options.topic, options.transactional_id, None)

    @property
    def _may_be_repeated(self) -> bool:
        return self._options.app is not None

    def _owner(self) -> OpenedProducer | None:
        return self._producer

    @readable
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        """Write a task's rows to files, unless Spark is about to make a table of them that nobody can read."""
        context = TaskContext.get()
        forgotten = self._columns.mark is None and not self._options.through_catalog
        if forgotten and context is not None and _makes_a_table(context):
            raise InvalidArgumentError(
                "Spark makes a new table of this write (saveAsTable, writeTo with create or replace), and forgets where"
                " the log of such a table is.",
                'Nothing was written. Write with .mode("append").save(), and make the table apart: CREATE TABLE t USING'
                " txnlog OPTIONS (path '...', topic '...').",
            )
        return self._write(iterator)

    @readable
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Register what the tasks wrote, in one transaction."""
        options = self._options
        name = options.transactional_id or f"spark-{self._key[:12]}"
        self._commit(messages, Sink(None, 0, name, options.transactional_id, app=options.app), self._key)


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
        run_id = next((message.run_id for message in _wrote(messages)), None)
        name = self._options.transactional_id or f"spark-{query_id[:12]}"
        sink = Sink(query_id, batchId, name, self._options.transactional_id, run_id)
        self._commit(messages, sink, f"{query_id}-{batchId}-{uuid.uuid4().hex}")


def _wrote(messages: Sequence[WriterCommitMessage | None]) -> Iterator[TaskWrote]:
    for message in messages:
        if isinstance(message, TaskWrote):
            yield message


def _makes_a_table(context: TaskContext) -> bool:
    """True if a batch job is part of another execution: so Spark carries out what makes a table and fills it.

    A stream's batches, and writes in ``foreachBatch``, are part of the stream's.
    """
    execution, root, query = (context.getLocalProperty(name) for name in (_EXECUTION, _ROOT_EXECUTION, _QUERY_ID))
    return query is None and None not in (execution, root) and execution != root


def _payload(log: Access, topic: TopicName) -> pa.Schema:
    [view] = log.metadata.get_view([topic]).topics
    return deserialize_schema(view.topic.schema)
