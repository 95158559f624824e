"""The format with the catalog's jar: the same rows in columns, and only the columns that a query needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import txn_source


@pytest.fixture
def orders(log: txn_source.Log) -> txn_source.Log:
    """A log whose topic ``orders`` has 200 messages in large entries and a small one, on two partitions."""
    log.create_topic("orders", partitions=2)
    with log.producer("orders") as producer:
        for partition in range(2):
            for number in range(100):
                producer.send(str(number), partition=partition, key=b"k")
            producer.flush()
        producer.send("last", partition=1, key=b"k")
    return log


def plan(frame) -> str:
    return str(frame._jdf.queryExecution().executedPlan())


def test_rows_are_the_same_in_both_lanes(orders, spark_read, ordered) -> None:
    options = {"topic": "orders", "metadataColumns": "all"}
    auto, python = (spark_read(**options, lane=lane) for lane in ("auto", "python"))
    assert ordered(auto) == ordered(python)
    assert "ColumnarToRow" in plan(auto)
    assert "ColumnarToRow" not in plan(python)
    assert "read from files: 3 entries" in plan(auto)


def test_only_wanted_columns_are_read(orders, spark_read) -> None:
    frame = spark_read(topic="orders", metadataColumns="all").select("__entry_id", "value").where("__partition = 1")
    assert frame.count() == 101
    scan = next(line for line in plan(frame.select("value")).splitlines() if "BatchScan" in line)
    assert "value" in scan
    assert "__txn_id" not in scan
    assert spark_read(topic="orders").count() == 201


def test_table_keeps_its_options_where_its_first_column_is_not_read(spark: SparkSession, orders, root: Path) -> None:
    spark.sql(f"CREATE TABLE kept_orders USING txnlog OPTIONS (path '{root}', topic 'orders', lane 'auto')")
    try:
        assert spark.sql("SELECT count(DISTINCT value) FROM kept_orders").collect() == [(101,)]
        assert spark.sql("SELECT count(*) FROM kept_orders WHERE value = 'last'").collect() == [(1,)]
        with pytest.raises(PySparkException, match=r"\[TXNLOG_INVALID_ARGUMENT\] Option 'lane'"):
            spark.sql("SELECT * FROM kept_orders WITH (path = 'x', topic = 'orders', lane = 'fast')").collect()
    finally:
        spark.sql("DROP TABLE kept_orders")
