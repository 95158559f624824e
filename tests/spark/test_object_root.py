"""Spark over a log on an object store, by its service's endpoint alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import txn_source
from tests.log.objects import new_prefix
from tests.log.reading import send_each, values
from txn_source.client.target import metadata_url, open_service
from txn_source.metadata.service.server import Server
from txn_source.upkeep.rebuild import rebuild


@pytest.fixture
def endpoint(tmp_path: Path, spark: SparkSession) -> Iterator[str]:
    """A service over a new log on an object store."""
    service = open_service(new_prefix(), metadata_url(tmp_path / "log.db"), create=True)
    with Server(service, "127.0.0.1", 0) as server:
        yield server.address


@pytest.fixture
def log(endpoint: str) -> Iterator[txn_source.Log]:
    with txn_source.connect(endpoint=endpoint) as log:
        yield log


def read(spark: SparkSession, endpoint: str, **options: str) -> DataFrame:
    return spark.read.format("txnlog").options(endpoint=endpoint, topic="orders", **options).load()


def test_batch_read_and_write(spark: SparkSession, endpoint: str, log: txn_source.Log) -> None:
    """Write by Spark and by a producer; read from hot and from offloaded copies."""
    log.create_topic("orders", partitions=3, schema=pa.schema([("id", pa.int64())]))
    rows = spark.range(1000, numPartitions=3)
    rows.write.format("txnlog").options(endpoint=endpoint, topic="orders").mode("append").save()
    aborted = log.begin_transaction()
    with log.producer("orders") as producer:
        producer.send_batch(pa.record_batch({"id": pa.array([-1, -2])}), txn=aborted)
        producer.flush()
    aborted.abort()
    for _ in range(2):
        frame = read(spark, endpoint, isolationLevel="read_uncommitted")
        assert sorted(row.id for row in frame.select("id").collect()) == list(range(-2, 1000))
        log.roll_ledger("orders")
        log.offload("orders")
        log.set_policies(topic="orders", offload_deletion_lag=0)
        log.maintain()


@pytest.mark.long
def test_stream_from_topic_to_topic(spark: SparkSession, endpoint: str, log: txn_source.Log, tmp_path: Path) -> None:
    """Copy a topic by a streaming query in two runs with a subscription: each message is copied once."""
    for topic in ("orders", "copies"):
        log.create_topic(topic, partitions=2)
    log.create_subscription("orders", "copying", initial_position="earliest")
    for wanted in ([b"1", b"2"], [b"3", b"4"]):
        send_each(log.producer("orders"), wanted)
        copy(spark, endpoint, tmp_path / "checkpoint", subscription="copying")
    assert sorted(values(log, "copies")) == [b"1", b"2", b"3", b"4"]


def copy(spark: SparkSession, endpoint: str, checkpoint: Path, **options: str) -> None:
    """Copy what there is of a topic to another one by a streaming query."""
    source = spark.readStream.format("txnlog").options(endpoint=endpoint, topic="orders", **options)
    query = (
        source.load()
        .select("key", "value")
        .writeStream.format("txnlog")
        .options(endpoint=endpoint, topic="copies", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)


@pytest.mark.long
def test_stream_goes_on_after_a_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    """Copy a topic by a streaming query, lose the database, make it again, and go on from the checkpoint: each message
    is copied once, and what batches wrote is read."""
    uri, wanted = new_prefix(), []
    for number in range(2):
        database = metadata_url(tmp_path / f"log{number}.db")
        if number:
            report = rebuild(uri, metadata=database)
            assert [(topic.without_receipt, topic.left_out) for topic in report.topics] == [(0, 0), (0, 0)]
        service = open_service(uri, database, create=not number)
        with Server(service, "127.0.0.1", 0) as server, txn_source.connect(endpoint=server.address) as log:
            if not number:
                log.create_topic("orders", partitions=2)
                log.create_topic("copies", partitions=2)
            assert read(spark, server.address).count() == len(wanted)
            with log.producer("orders") as producer:
                send_each(producer, [b"%d" % number])
            spark.createDataFrame([(b"spark%d" % number,)], "value binary").write.format("txnlog").options(
                endpoint=server.address, topic="orders"
            ).mode("append").save()
            wanted += [b"%d" % number, b"spark%d" % number]
            copy(spark, server.address, tmp_path / "checkpoint", startingOffsets="earliest")
            assert sorted(values(log, "copies")) == sorted(values(log, "orders")) == sorted(wanted)
        service.close()


@pytest.mark.long
def test_failed_job_leaves_nothing(spark: SparkSession, endpoint: str, log: txn_source.Log) -> None:
    """Let a task fail after others have put their objects: no row of it is ever seen."""
    log.create_topic("orders")
    frame = spark.range(100, numPartitions=4).selectExpr(
        "cast(if(id = 99, cast(assert_true(false) as string), 'x') as binary) as value"
    )
    with pytest.raises(Exception, match=r"assert_true|is not true"):
        frame.write.format("txnlog").options(endpoint=endpoint, topic="orders").mode("append").save()
    assert values(log, "orders") == []
    assert list(log.metadata.list_segments()) == []
