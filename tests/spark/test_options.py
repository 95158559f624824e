"""Every option of a batch query but offsets and columns: what it does, and how a wrong value is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import txn_source
from tests.selection import for_each
from tests.spark.plain import schema_of, source_of
from txn_source.metadata.service.server import Server
from txn_source.spark.options import BatchReadOptions, ColumnOptions, StreamReadOptions, WriteOptions
from txn_source.spark.source import TxnLogDataSource

MEGABYTE = 1 << 20


@pytest.fixture
def orders(log: txn_source.Log) -> txn_source.Log:
    """A log with two topics: ``orders`` has a committed, an aborted, a plain, an open and a last plain message."""
    log.create_topic("orders")
    log.create_topic("refunds")
    with log.producer("refunds") as producer:
        producer.send("refunded")
    with log.producer("orders") as producer:
        with log.begin_transaction() as committed:
            producer.send("committed", txn=committed)
        aborted = log.begin_transaction()
        producer.send("aborted", txn=aborted)
        producer.flush()
        aborted.abort()
        producer.send("plain")
        producer.flush()
        producer.send("open", txn=log.begin_transaction())
        producer.flush()
        producer.send("waiting")
    return log


WRONG = {
    "neither path nor endpoint": ({"path": None}, ("'path'", "'endpoint'", "neither")),
    "an empty path": ({"path": ""}, ("path", "empty")),
    "a remote path": ({"path": "s3://bucket/log"}, ("s3://bucket/log", "endpoint")),
    "several paths": ({"path": None, "paths": '["/a", "/b"]'}, ("several paths", "union")),
    "endpoint without port": ({"path": None, "endpoint": "localhost"}, ("localhost", "host:port")),
    "no topic": ({"topic": None}, ("'topic'", "'topics'", "'topicsPattern'", "none")),
    "topic and topics": ({"topics": "orders"}, ("'topic' and 'topics'",)),
    "topic and pattern": ({"topicsPattern": "o.*"}, ("'topic' and 'topicsPattern'",)),
    "an empty topic": ({"topic": ""}, ("'topic'", "empty")),
    "an empty list of topics": ({"topic": None, "topics": " , "}, ("'topics'", "empty")),
    "a malformed topic": ({"topic": "a/b"}, ("'a/b'", "topic name")),
    "a topic twice": ({"topic": None, "topics": "orders,refunds,orders"}, ("'orders'", "twice")),
    "a bad pattern": ({"topic": None, "topicsPattern": "orders("}, ("'orders('", "regular expression")),
    "isolationLevel": ({"isolationLevel": "serializable"}, ("'serializable'", "read_committed or read_uncommitted")),
    "dataReadPriority": ({"dataReadPriority": "fast"}, ("'fast'", "tiered-first", "bookkeeper-first")),
    "consistentCut": ({"consistentCut": "maybe"}, ("'maybe'", "true", "false")),
    "failOnDataLoss": ({"failOnDataLoss": "0"}, ("'0'", "true", "false")),
    "minPartitions of 0": ({"minPartitions": "0"}, ("'0'", "above 0")),
    "minPartitions below 0": ({"minPartitions": "-2"}, ("'-2'",)),
    "minPartitions in words": ({"minPartitions": "many"}, ("'many'",)),
    "maxPartitionBytes of 0": ({"maxPartitionBytes": "0"}, ("'0'", "128m")),
    "maxPartitionBytes in words": ({"maxPartitionBytes": "big"}, ("'big'", "128m")),
    "metadataColumns": ({"metadataColumns": "__txn_id,__offset"}, ("'__offset'", "__txn_status")),
    "metadataColumns twice": ({"metadataColumns": "__txn_id,__txn_id"}, ("twice",)),
    "maxMessagesPerTrigger": ({"maxMessagesPerTrigger": "1"}, ("streaming queries only", "readStream")),
    "maxBytesPerTrigger": ({"maxBytesPerTrigger": "1"}, ("streaming queries only",)),
    "minMessagesPerTrigger": ({"minMessagesPerTrigger": "1"}, ("streaming queries only",)),
    "maxTriggerDelay": ({"maxTriggerDelay": "1s", "minMessagesPerTrigger": "1"}, ("streaming queries only",)),
    "subscription": ({"subscription": "s"}, ("streaming queries only",)),
    "startingOffset": ({"startingOffset": "earliest"}, ("'startingOffset'", "'startingOffsets'")),
    "isolation_level": ({"isolation_level": "read_committed"}, ("'isolation_level'", "'isolationLevel'")),
    "topicPattern": ({"topicPattern": ".*"}, ("'topicPattern'", "'topicsPattern'")),
    "kafka.bootstrap.servers": ({"kafka.bootstrap.servers": "h:1"}, ("'kafka.bootstrap.servers'", "load(", "endpoint")),
    "subscribe": ({"subscribe": "orders"}, ("'subscribe'", "'topic'", "'topics'")),
    "subscribePattern": ({"subscribePattern": "o.*"}, ("'subscribePattern'", "'topicsPattern'")),
    "assign": ({"assign": '{"orders":[0]}'}, ("'assign'", "orders-partition-3")),
    "includeHeaders": ({"includeHeaders": "true"}, ("'includeHeaders'", "__properties", "'metadataColumns'")),
    "startingOffsetsByTimestamp": ({"startingOffsetsByTimestamp": "{}"}, ("'startingTimestamp'",)),
    "maxOffsetsPerTrigger": ({"maxOffsetsPerTrigger": "9"}, ("'maxOffsetsPerTrigger'", "'maxMessagesPerTrigger'")),
    "minOffsetsPerTrigger": ({"minOffsetsPerTrigger": "9"}, ("'minMessagesPerTrigger'",)),
    "kafka.security.protocol": ({"kafka.security.protocol": "SSL"}, ("'kafka.security.protocol'", "Leave it out")),
    "service.url": ({"service.url": "pulsar://h:1"}, ("'service.url'", "endpoint")),
    "predefinedSubscription": ({"predefinedSubscription": "s"}, ("'predefinedSubscription'", "'subscription'")),
    "pulsar.client.authParams": ({"pulsar.client.authParams": "t"}, ("Leave it out",)),
    "insertable": ({"insertable": "true"}, ("'insertable'", "CREATE TABLE only")),
    "maxPartitonBytes": ({"maxPartitonBytes": "1m"}, ("'maxPartitonBytes'", "'maxPartitionBytes'")),
}
"""What differs from ``topic=orders`` over the path (None: left out), and what the refusal must say."""

STREAM_ONLY = (
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
    "subscription",
)


def wrong_options(case: str, root: Path) -> dict[str, str]:
    """Return the options of a case of ``WRONG``."""
    options = {"path": str(root), "topic": "orders"} | WRONG[case][0]
    return {name: value for name, value in options.items() if value is not None}


def missing(case: str, told: str) -> list[str]:
    """Return what a refusal should say and doesn't; names of options come to us in lower case."""
    return [text for text in WRONG[case][1] if text.lower() not in told.lower()]


@for_each("case", WRONG)
def test_wrong_option_is_refused(orders, root: Path, case) -> None:
    """Ask for the schema, as Spark does first, with one option wrong; the error names it, the value or the remedy.

    Only what is right for a stream can't be told to be wrong before Spark asks for the reader.
    """
    source = TxnLogDataSource(CaseInsensitiveDict(wrong_options(case, root)))
    with pytest.raises(txn_source.InvalidArgumentError) as caught:
        source.reader(source.schema()) if case in STREAM_ONLY else source.schema()
    assert missing(case, str(caught.value)) == [], str(caught.value)


@pytest.mark.parametrize("case", ["startingOffset", "maxTriggerDelay"])
def test_refused_option_is_shown_by_spark(spark, orders, root: Path, refusal, case) -> None:
    """Load with one option wrong; the same error arrives before any job, and is short."""
    reader = spark.read.format("txnlog").options(**wrong_options(case, root))
    told = refusal("INVALID_ARGUMENT", lambda: reader.load().collect() if case in STREAM_ONLY else reader.load())
    assert missing(case, told) == [], told


def test_path_and_endpoint_together_are_refused(orders, server: Server, root: Path, read, refusal) -> None:
    """Load with a good path and a good endpoint, which could be different logs."""
    told = refusal("INVALID_ARGUMENT", lambda: read(topic="orders", path=str(root), endpoint=server.address))
    assert "both" in told
    assert "'path'" in told
    assert "'endpoint'" in told


@for_each(
    ("options", "named"),
    [
        ({"topic": "order"}, "'order'"),
        ({"topics": "orders,order"}, "'order'"),
        ({"topicsPattern": "ord"}, "'ord'"),
        ({"topic": "orders-partition-1"}, "partition 1"),
    ],
)
def test_topic_that_is_not_there_is_refused(orders, plan, options, named) -> None:
    """Plan topics that the log doesn't have; the error names the first of them."""
    with pytest.raises(txn_source.TopicNotFoundError, match=named):
        plan(**options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "orders"}, ["committed", "plain"]),
        ({"topics": "orders, refunds"}, ["committed", "plain", "refunded"]),
        ({"topicsPattern": "r.+"}, ["refunded"]),
    ],
    ids=["topic", "topics", "topicsPattern"],
)
def test_topics_are_picked_by_name_list_or_pattern(orders, read, values, options, expected) -> None:
    """Read with each of the three options."""
    assert values(read(**options)) == expected


def test_topics_have_several_names(orders, plan) -> None:
    """Plan with full names, the name of a partition, a list of one and patterns; compare with the plain names."""

    def slices(**options: str) -> list[Any]:
        return [task.parts for task in plan(**options)]

    one, both = slices(topic="orders"), slices(topics="orders,refunds")
    assert slices(topic="persistent://public/default/orders") == one
    assert slices(topic="orders-partition-0") == one
    assert slices(topics=" orders ") == one
    assert slices(topicsPattern="ord.*") == one
    assert slices(topicsPattern="persistent://public/.*/orders") == one
    assert slices(topicsPattern="(orders|refunds|nothing)") == both
    assert one != both


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (None, ["committed", "plain"]),
        ("Read-Committed", ["committed", "plain"]),
        ("READ_UNCOMMITTED", ["aborted", "committed", "open", "plain", "waiting"]),
        ("read-uncommitted", ["aborted", "committed", "open", "plain", "waiting"]),
    ],
)
def test_isolation_level_decides_what_is_seen(orders, read, values, level, expected) -> None:
    """Read a topic with every kind of message at each level, written in several ways."""
    options = {} if level is None else {"isolationLevel": level}
    assert values(read(topic="orders", **options)) == expected


@for_each(
    ("option", "told"),
    {
        "timestampAsOf": "Use 'asOfTimestamp'",
        "versionAsOf": "VERSION AS OF",
        "startingVersion": "Use 'startingOffsets'",
        "snapshot-id": "Use 'startingOffsets'",
        "as-of-timestamp": "Use 'asOfTimestamp'",
        "readChangeFeed": "is a change",
        "maxFilesPerTrigger": "Use 'maxMessagesPerTrigger'",
        "mergeSchema": "don't change by a write",
        "hoodie.datasource.query.type": "another format",
        "limit": "There is no option 'limit'",
        "pushedFilters": "There is no option 'pushedfilters'",
        "__limit": "There is no option '__limit'",
        "__cutStart": "There is no option '__cutstart'",
        "header": "There is no option 'header'",
    }.items(),
)
def test_option_that_would_do_nothing_is_refused(option: str, told: str) -> None:
    """Give options of other formats, of nobody, and those that are handed over inside, to reads, streams and writes."""
    given = {"path": "/log", "topic": "orders", option.lower(): "1"}

    def written(options: dict[str, str]) -> object:
        return WriteOptions.parse(options, [])

    for parse in (ColumnOptions.parse, BatchReadOptions.parse, StreamReadOptions.parse, written):
        with pytest.raises(txn_source.InvalidArgumentError) as refused:
            parse(given)
        assert told in str(refused.value)


def test_options_that_spark_obeys_itself_pass(log, root: Path) -> None:
    """Write a stream with a name and progress that is tracked asynchronously."""
    log.create_topic("orders")
    given = {"path": str(root), "topic": "orders", "checkpointLocation": "/c", "queryName": "q"}
    given |= {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "5"}
    source_of(given).streamWriter(schema_of("value binary"), False)


def test_properties_of_a_table_pass(log, root: Path) -> None:
    """Make a table with properties: any are allowed, as Spark hands them over; an unknown option isn't."""
    log.create_topic("orders")
    options = {"path": str(root), "topic": "orders"}
    given = {**options, **{f"option.{name}": value for name, value in options.items()}, "provider": "txnlog"}
    assert "value" in source_of({**given, "team": "z", "created.by": "me", "owner": "me"}).schema().names
    with pytest.raises(txn_source.InvalidArgumentError, match="There is no option 'team'"):
        source_of({**given, "team": "z", "option.team": "z"}).schema()


def test_position_before_the_log_start_is_refused_unless_data_loss_is_accepted(
    orders, read, plan, values, refusal
) -> None:
    """Start below the first position still there, with each value of failOnDataLoss."""
    lost = {"topic": "refunds", "startingOffsets": '{"refunds": {"0": "0:0"}}'}
    told = refusal("OUT_OF_RANGE", lambda: read(**lost).collect())
    assert "0:0" in told
    assert "refunds-partition-0" in told
    with pytest.raises(txn_source.OutOfRangeError):
        plan(failOnDataLoss="true", **lost)
    assert values(read(failOnDataLoss="false", **lost)) == ["refunded"]


@pytest.fixture
def bulky(log: txn_source.Log) -> txn_source.Log:
    """A log with the topic ``bulky``: 12 entries of one megabyte in a single ledger."""
    log.create_topic("bulky")
    with log.producer("bulky") as producer:
        for number in range(12):
            producer.send(bytes([number]) * MEGABYTE)
            producer.flush()
    return log


def test_min_partitions_cuts_a_ledger_into_as_many_tasks(bulky, read) -> None:
    """Ask for six tasks of one ledger; all messages must be there once."""
    frame = read(topic="bulky", minPartitions=6)
    assert len(frame.tasks()) >= 6
    assert sorted(row.value[0] for row in frame.collect()) == list(range(12))


def test_max_partition_bytes_bounds_a_task(bulky, read, plan) -> None:
    """Ask for tasks of two megabytes, in several spellings; no task may read more than half of that above it."""
    frame = read(topic="bulky", maxPartitionBytes="2m")
    sizes = [sum(len(row.value) for row in frame.collect_task(task)) for task in frame.tasks()]
    assert sum(sizes) == 12 * MEGABYTE
    assert max(sizes) <= 3 * MEGABYTE
    assert len(sizes) <= 12
    two = plan(topic="bulky", maxPartitionBytes="2m")
    assert two != plan(topic="bulky")
    for spelling in ("2MB", "2048K", "2 m", str(2 * MEGABYTE)):
        assert plan(topic="bulky", maxPartitionBytes=spelling) == two


def test_little_data_is_one_task(orders, read) -> None:
    """Read several topics and ledgers that hold next to nothing: a task costs more than reading them."""
    orders.roll_ledger("orders")
    assert len(read(topics="orders,refunds").tasks()) == 1
