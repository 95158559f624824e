"""``txn_source.spark.read``: the format as one call."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import txn_source
from tests.log.tiers import write_ledgers


def test_call_gives_what_the_format_gives(spark: SparkSession, log: txn_source.Log, root: Path, spark_read) -> None:
    log.create_topic("orders", partitions=2)
    write_ledgers(log)
    log.offload("orders")
    columns = ["__topic", "value", "__entry_id"]
    expected = spark_read(topic="orders", metadataColumns="all", isolationLevel="read_uncommitted").select(columns)
    found = txn_source.spark.read(spark, "orders", root, isolation_level="read_uncommitted", columns=columns)
    assert found.columns == columns
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, expected.collect()))
    every = txn_source.spark.read(spark, ["orders"], path=root, consistentCut=False)
    assert every.columns == spark_read(topics="orders").columns
    with pytest.raises(txn_source.SchemaMismatchError):
        txn_source.spark.read(spark, "orders", path=root, columns=[])
    for options in ({"isolation_level": "serializable"}, {"isolationLevl": "x"}, {"columns": ["nothing"]}):
        with pytest.raises(PySparkException):
            txn_source.spark.read(spark, "orders", path=root, **options).collect()
