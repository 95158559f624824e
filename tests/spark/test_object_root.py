"""Spark over a log on an object store, by its service's endpoint alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import txn_source
from tests.log.objects import new_prefix
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


@pytest.mark.long
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
