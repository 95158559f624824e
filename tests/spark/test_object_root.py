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
    """Write by Spark and by a producer; read at both levels, filter, and count, from hot and from offloaded copies."""
    log.create_topic("orders", partitions=3, schema=pa.schema([("id", pa.int64())]))
    rows = spark.range(1000, numPartitions=3)
    rows.write.format("txnlog").options(endpoint=endpoint, topic="orders").mode("append").save()
    aborted = log.begin_transaction()
    with log.producer("orders") as producer:
        producer.send_batch(pa.record_batch({"id": pa.array([-1, -2])}), txn=aborted)
        producer.flush()
    aborted.abort()
    for _ in range(2):
        frame = read(spark, endpoint)
        assert frame.count() == 1000
        assert sorted(row.id for row in frame.select("id").collect()) == list(range(1000))
        assert read(spark, endpoint, isolationLevel="read_uncommitted").where("id < 0").count() == 2
        log.roll_ledger("orders")
        log.offload("orders")
        log.set_policies(topic="orders", offload_deletion_lag=0)
        log.maintain()


def test_stream_from_topic_to_topic(spark: SparkSession, endpoint: str, log: txn_source.Log, tmp_path: Path) -> None:
    """Copy a topic by a streaming query in two runs with a subscription: each message is copied once."""
    for topic in ("orders", "copies"):
        log.create_topic(topic, partitions=2)
    log.create_subscription("orders", "copying", initial_position="earliest")
    for wanted in ([b"1", b"2"], [b"3", b"4"]):
        send_each(log.producer("orders"), wanted)
        source = spark.readStream.format("txnlog").options(endpoint=endpoint, topic="orders", subscription="copying")
        query = (
            source.load()
            .select("key", "value")
            .writeStream.format("txnlog")
            .options(endpoint=endpoint, topic="copies", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
    assert sorted(values(log, "copies")) == [b"1", b"2", b"3", b"4"]


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
