"""What the tests of Kafka's and Pulsar's Spark connectors check, as behaviours of this one.

Most queries run in this process (``plain.py``), those that are about Spark in Spark.

The scenarios are those of the public suites KafkaMicroBatchSourceSuite, KafkaRelationSuite, KafkaSinkSuite,
KafkaDontFailOnDataLossSuite, KafkaOffsetReaderSuite and KafkaSourceOffsetSuite of apache/spark, and of
PulsarSourceSuiteBase, PulsarMicroBatchSourceSuite, PulsarAdmissionControlSuite and PulsarSinkSuite of
streamnative/pulsar-spark. Many have a test elsewhere:

=====================================================  ================================================================
their scenario                                         our test
=====================================================  ================================================================
earliest, latest, specific offsets, timestamps         test_offsets, log/test_stream; here: query_begins_at
no offset for a timestamp                              test_offsets, log/test_stream
bad options, batch and stream; minPartitions of words  test_options, test_stream_options
case-insensitive options                               test_options
initial offsets (de)serialized                         log/test_stream; here: query_from_the_latest
offsets (de)serialized, another version's              log/test_stream: what_is_no_offset_of_ours
topics by name, list, pattern                          test_options; stream: test_stream_source: running_query_follows
new topic while the query runs                         log/test_stream, test_stream_source: running_query_follows
topics deleted while the query runs                    log/test_stream_replay; here: deleted_topic_of_a_pattern
topic made again between batches                       log/test_stream_replay, test_stream_source: lost_data
topic lost during AvailableNow, or during a job        here: topic_made_again_during_a_run
data loss accepted: nothing twice                      log/test_stream_replay, test_options; here: topic_made_again
maxOffsetsPerTrigger, over several partitions          log/test_stream_limits; test_stream_source: goes_on
maxBytesPerTrigger: first, middle entry, larger ones   log/test_stream_limits; here: limit_of_bytes
minOffsetsPerTrigger, maxTriggerDelay, both limits     log/test_stream_limits; here: batch_waits_for_enough
largest limit doesn't overflow; Trigger.Once           here: trigger_once, transactions_of_a_running_query
AvailableNow: number of batches, target is fixed       log/test_stream, test_stream_source; here: messages_that_come
failed batch again in AvailableNow (SPARK-53560)       here: failed_batch_is_repeated
read_committed, read_uncommitted, with limits          log/test_stream_limits; here: transactions_of_a_running_query
messages prefetched for the next batch (SPARK-25495)   here: messages_that_come_during_a_batch
input row metrics, sink progress                       here: transactions_of_a_running_query, sink_tells
minPartitions of a stream                              here: min_partitions_of_a_stream
one DataFrame used twice; late binding of its end      test_push_filters; test_snapshots: it is pinned
null keys and values                                   test_rows: message_of_nulls
column types                                           test_types, test_sink_columns
sink: topic column, topic option, both, none, null     test_sink
sink: wrong columns, wrong types, unknown topic        test_sink, test_sink_columns, test_stream_sink
sink: partition column against key                     test_sink
sink: save modes, output modes                         test_sink (overwrite); here: save_modes
=====================================================  ================================================================

Left out: what is Spark's alone (windows, joins, unions, output modes), what belongs to consumers, brokers and their
settings, partitions added to a topic (ours have a fixed number), continuous processing, custom metrics (Python sources
have none), keywords for a whole topic in JSON, and strategies for timestamps without a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import txn_source
from tests.spark.plain import Frame, Query
from tests.spark.test_stream_source import DEADLINE_S, spark_query, transfer
from txn_source.spark.table_options import keep_options

LARGEST = str(2**63 - 1)
FIXTURES = (spark_query,)


@pytest.fixture
def stream(spark: SparkSession, root: Path) -> Callable[..., DataFrame]:
    """A function that opens a stream over the log, from its start."""

    def stream(**options: str) -> DataFrame:
        given = {"path": str(root), "startingOffsets": "earliest", **options}
        if "startingTimestamp" in options:
            del given["startingOffsets"]
        return spark.readStream.format("txnlog").options(**given).load()

    return stream


def send(log: txn_source.Log, topic: str, *values: str, partition: int = 0, txn: Any = None) -> None:
    """Write messages, each as an entry of its own."""
    with log.producer(topic) as producer:
        for value in values:
            producer.send(value, partition=partition, txn=txn)
            producer.flush()


# Where a query begins


def test_query_from_the_latest_that_saw_nothing_misses_nothing_after_a_restart(log, query: Query) -> None:
    """Start at the end of a log, stop before anything came, write, and start again."""
    log.create_topic("orders", partitions=2)
    send(log, "orders", "old")
    query.run(topic="orders", startingOffsets="latest")
    send(log, "orders", "new", partition=1)
    query.run(topic="orders", startingOffsets="latest")
    assert query.values() == [["new"]]


def test_query_begins_at_the_position_of_each_partition(log, query: Query) -> None:
    """Begin four partitions at the earliest, the latest, a position, and none; write more, and go on."""
    log.create_topic("orders", partitions=4)
    for partition in range(4):
        send(log, "orders", *(f"{partition}/{n}" for n in range(3)), partition=partition)
    ledgers = [p.ledgers[0].ledger_id for p in log.stats("orders").partitions]
    starts = json.dumps({"orders": {"0": "earliest", "1": "latest", "2": f"{ledgers[2]}:2"}})
    query.run(topic="orders", startingOffsets=starts)
    for partition in range(4):
        send(log, "orders", f"{partition}/new", partition=partition)
    query.run(topic="orders", startingOffsets=starts)
    assert query.values() == [["0/0", "0/1", "0/2", "2/2"], ["0/new", "1/new", "2/new", "3/new"]]


def test_query_begins_at_a_publish_time(log, query: Query) -> None:
    """Begin at a message's time; a partition that has none since then is read from its end."""
    log.create_topic("orders", partitions=2)
    send(log, "orders", "a", partition=1)
    send(log, "orders", "b", "c", "d")
    times = {row["value"]: row["__publish_time"] for row in log.scan("orders").read_all().to_pylist()}
    query.run(topicsPattern="ord.*", startingOffsets=None, startingTimestamp=times[b"c"].isoformat())
    send(log, "orders", "e", partition=1)
    query.run(topicsPattern="ord.*", startingOffsets=None, startingTimestamp=times[b"c"].isoformat())
    assert query.values() == [["c", "d"], ["e"]]


# How much a batch takes


def test_limit_of_bytes_is_kept_over_ledgers_and_new_topics(log, query: Query) -> None:
    """Allow one byte: each batch has one entry, in a ledger's beginning and middle, and in a topic that came later."""
    log.create_topic("a-1", ledger_max_entries=2)
    send(log, "a-1", "1", "2", "3")
    query.run(topicsPattern="a-.*", maxBytesPerTrigger="1")
    assert query.values() == [["1"], ["2"], ["3"]]
    log.create_topic("a-2")
    send(log, "a-2", "4", "5")
    query.run(topicsPattern="a-.*", maxBytesPerTrigger="1")
    assert query.values()[3:] == [["4"], ["5"]]


def test_batch_waits_for_enough_messages(log, query: Query) -> None:
    """Ask a running query for four messages: three are waited with, unless the run is to take what is there."""
    log.create_topic("orders")
    options = {"topic": "orders", "minMessagesPerTrigger": "4", "maxTriggerDelay": "1h"}
    query.start(**options)
    send(log, "orders", "1", "2", "3")
    query.process()
    assert query.values() == []
    send(log, "orders", "4")
    query.process()
    assert query.values() == [["1", "2", "3", "4"]]
    query.reader.stop()
    send(log, "orders", "5")
    query.run(**options)
    assert query.values()[1:] == [["5"]]


def test_trigger_once_puts_limits_aside(log, query: Query) -> None:
    """Limit batches to one message, and run one batch."""
    log.create_topic("orders")
    send(log, "orders", "1", "2", "3")
    query.start(topic="orders", maxMessagesPerTrigger="1", minMessagesPerTrigger="1", limited=False).process()
    assert query.values() == [["1", "2", "3"]]


def test_limits_of_a_table_hold_for_streams_of_it(log, root: Path, query: Query, read) -> None:
    """Make a table with a limit: a stream of it has it, or that of the reader; a batch read takes no notice."""
    log.create_topic("orders", schema=pa.schema([("id", pa.int64())]))
    with log.producer("orders") as producer:
        for number in range(4):
            producer.send({"id": number})
            producer.flush()
    options = {"path": str(root), "topic": "orders", "startingOffsets": "earliest", "maxMessagesPerTrigger": "2"}
    table = keep_options(read(topic="orders").schema, options, insertable=False)
    assert Frame({}, table).count() == 4
    own = {"path": None, "startingOffsets": None}
    query.run(table, **own)
    assert [len(rows) for _, rows in sorted(query.batches.items())] == [2, 2]
    query.checkpoint, query.batches = query.checkpoint.with_name("another"), {}
    query.run(table, **own, maxMessagesPerTrigger="3")
    assert [len(rows) for _, rows in sorted(query.batches.items())] == [3, 1]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions_of_a_running_query(log, query: Query, level) -> None:
    """Open, commit and abort transactions while a query follows, with limits that no sum may overflow: each step's
    messages come when the level shows them, once and in order."""
    log.create_topic("orders")
    options = {"maxMessagesPerTrigger": LARGEST, "maxBytesPerTrigger": LARGEST, "isolationLevel": level}
    query.start(topic="orders", **options)

    def come(committed: str, uncommitted: str) -> None:
        query.process()
        come = "".join(value for values in query.values() for value in values)
        assert come == (committed if level == "read_committed" else uncommitted)

    first = log.begin_transaction()
    send(log, "orders", "0", "1", txn=first)
    come("", "01")
    first.commit()
    come("01", "01")
    second = log.begin_transaction()
    send(log, "orders", "2", "3", txn=second)
    second.abort()
    come("01", "0123")
    for value in ("4", "5"):
        with log.begin_transaction() as transaction:
            send(log, "orders", value, txn=transaction)
    come("0145", "012345")


def test_min_partitions_of_a_stream(log, query: Query) -> None:
    """Ask for six tasks of a ledger of twelve megabytes: the batch has them, and each message once."""
    log.create_topic("orders")
    send(log, "orders", *(f"{n:02}" * (1 << 19) for n in range(12)))
    query.run(topic="orders", minPartitions="6")
    assert query.tasks[0] >= 6
    assert [value[:2] for value in query.values()[0]] == [f"{n:02}" for n in range(12)]


# What happens meanwhile


def run(frame: DataFrame, checkpoint: Path, each: Callable[[DataFrame, int], None]) -> None:
    """Hand each batch of all that is there now to a function."""
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()


def values(batch: DataFrame) -> list[str]:
    return sorted(value.decode() for value in batch.toArrow()["value"].to_pylist())


def test_messages_that_come_during_a_batch_are_in_the_next_run(log, query: Query) -> None:
    """Commit a transaction while the first batch is not yet read: neither that batch nor this run has it."""
    log.create_topic("orders", partitions=2)
    transfer(log, "orders", "a")

    def write_once() -> None:
        query.planned = lambda: None
        transfer(log, "orders", "b")

    query.planned = write_once
    for expected in ([["a", "a"]], [["a", "a"], ["b", "b"]]):
        query.run(topic="orders")
        assert query.values() == expected


@pytest.mark.long
def test_failed_batch_is_repeated_before_what_came_later(log, stream, tmp_path: Path) -> None:
    """Let the user's code fail in a batch, write, and make a topic that matches: the batch comes again as it was."""
    log.create_topic("a-1")
    send(log, "a-1", "1", "2")
    seen: list[list[str]] = []

    def fail_at_first(batch: DataFrame, number: int) -> None:
        seen.append(values(batch))
        if len(seen) == 1:
            raise RuntimeError("on purpose")

    with pytest.raises(StreamingQueryException, match="on purpose"):
        run(stream(topicsPattern="a-.*"), tmp_path / "checkpoint", fail_at_first)
    log.create_topic("a-2")
    send(log, "a-2", "4")
    send(log, "a-1", "3")
    run(stream(topicsPattern="a-.*"), tmp_path / "checkpoint", fail_at_first)
    assert seen == [["1", "2"], ["1", "2"], ["3", "4"]]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_topic_made_again_during_a_run(log, query: Query, fail) -> None:
    """Delete a topic, and make it again, when the first of several batches has been read: the run says what it lost,
    or goes on without, and shows nothing twice."""
    log.create_topic("orders")
    send(log, "orders", "1", "2", "3")

    def delete_once(number: int, rows: object) -> None:
        query.each = lambda number, rows: None
        log.delete_topic("orders")
        log.create_topic("orders")
        send(log, "orders", "4", "5", "6")

    query.each = delete_once
    options = {"topic": "orders", "maxMessagesPerTrigger": "1", "failOnDataLoss": fail}
    if fail == "true":
        with pytest.raises(txn_source.DataLossError, match="Partition 0 of topic 'orders'"):
            query.run(**options)
        assert query.values() == [["1"]]
    else:
        for _ in range(2):
            query.run(**options)
        assert query.values() == [["1"], ["4"], ["5"], ["6"]]


def test_deleted_topic_of_a_pattern_lets_the_others_go_on(log, query: Query) -> None:
    """Delete the only topic that matches while a query runs that accepts it, and make another one."""
    log.create_topic("a-1")
    query.start(topicsPattern="a-.*", failOnDataLoss="false")
    send(log, "a-1", "1")
    query.process()
    log.delete_topic("a-1")
    query.process()
    log.create_topic("a-2", partitions=2)
    send(log, "a-2", "2", partition=1)
    query.process()
    assert query.values() == [["1"], ["2"]]
    assert list(query.noted("offsets", query.last("offsets"))["positions"]) == ["a-2"]


# What queries do with it


# The sink


def test_sink_tells_how_much_it_wrote(log, root: Path, stream, tmp_path: Path) -> None:
    """Copy a topic: the progress has the rows that were read, and names the sink."""
    for topic in ("orders", "copy"):
        log.create_topic(topic)
    send(log, "orders", "1", "2", "3")
    writer = stream(topic="orders", metadataColumns="none").writeStream.format("txnlog").option("topic", "copy")
    writer = writer.option("path", str(root)).option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 3
    assert [progress["sink"]["numOutputRows"] for progress in query.recentProgress] == [3]


@pytest.mark.parametrize("mode", ["error", pytest.param("ignore", marks=pytest.mark.long)])
def test_save_modes_other_than_append_write_nothing(spark, log, root: Path, mode) -> None:
    """Save in the modes that Spark refuses for every source like this one."""
    log.create_topic("orders")
    frame = spark.createDataFrame([("1",)], "value string")
    with pytest.raises(AnalysisException):
        frame.write.format("txnlog").option("topic", "orders").mode(mode).save(str(root))
    assert log.transactions(state=None) == []
