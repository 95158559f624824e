"""CREATE TABLE AS SELECT, writeTo().create(), saveAsTable and toTable: a topic that a query fills, or none at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.spark.sql.conftest import Statements, in_long_runs
from txn_source.spark.catalog.calls import CatalogCalls

DEADLINE_S = 240


def test_topic_is_made_and_filled_in_one_transaction(orders: Statements) -> None:
    orders.sql(
        "CREATE TABLE {ns}.copy COMMENT 'c' TBLPROPERTIES ('partitions' = '2', 'retention_age' = '7d') AS"
        " SELECT id, who, amount * 2 AS twice FROM {ns}.orders"
    ).collect()  # a statement runs once, however often its empty result is looked at
    assert orders.rows("SELECT * FROM {ns}.copy") == [(1, "a", 3.0), (2, "b", 5.0), (3, None, None)]
    assert orders.rows("SELECT count(DISTINCT __txn_id), count(*) FROM {ns}.copy WHERE id > 0") == [(1, 3)]
    shown = orders.properties("copy")
    assert (shown["partitions"], shown["retention_age"]) == ("2", "604800s")
    assert all(field.nullable for field in orders.spark.table(f"{orders.ns}.copy").schema)


def test_query_without_rows_makes_an_empty_topic(orders: Statements) -> None:
    orders.sql("CREATE TABLE {ns}.none AS SELECT * FROM {ns}.orders WHERE id < 0")
    assert orders.rows("SELECT id, amount FROM {ns}.none") == []


def test_query_that_fails_leaves_no_topic(orders: Statements) -> None:
    failing = "SELECT id, IF(id = 3, int(raise_error('stop')), 1) AS a FROM {ns}.orders"
    assert "stop" in orders.refused(f"CREATE TABLE {{ns}}.copy AS {failing}")
    assert orders.tables() == ["orders"]
    orders.sql("CREATE TABLE {ns}.copy AS SELECT 1 AS a")
    assert orders.rows("SELECT a FROM {ns}.copy") == [(1,)]


def test_topic_that_others_have_written_to_stays(bank: Statements) -> None:
    """Take back a topic twice, as a failed statement does: one with somebody's message stays, an empty one goes."""
    calls = CatalogCalls(bank.log)
    for name in ("empty", "used"):
        bank.log.create_topic(bank.topic(name), schema=pa.schema([("a", pa.int32())]))
    with bank.log.producer(bank.topic("used")) as producer:
        producer.send_batch(pa.table({"a": pa.array([1], pa.int32())}))
    assert [calls.drop_empty([bank.tenant], name) for name in ("empty", "used", "nothing")] == [True, False, False]
    assert bank.tables() == ["used"]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("CREATE TABLE {ns}.orders AS SELECT 1 AS a", "[TABLE_OR_VIEW_ALREADY_EXISTS]"),
        ("CREATE TABLE {ns}.new TBLPROPERTIES ('nope' = '1') AS SELECT 1 AS a", "'nope' is not a policy"),
        ("CREATE OR REPLACE TABLE {ns}.orders AS SELECT 1 AS a", "A topic is never replaced"),
        *in_long_runs(
            ("CREATE TABLE {ns}.new AS SELECT NULL AS a", "Column 'a' is VOID"),
            ("REPLACE TABLE {ns}.orders AS SELECT 1 AS a", "A topic is never replaced"),
            ("CREATE OR REPLACE TABLE {ns}.new (a INT)", "A topic is never replaced"),
        ),
    ],
)
def test_what_cannot_be_made_is_refused(orders: Statements, statement: str, why: str) -> None:
    assert why in orders.refused(statement)
    assert orders.tables() == ["orders"]


def test_table_that_is_there_is_left_alone(orders: Statements) -> None:
    orders.sql("CREATE TABLE IF NOT EXISTS {ns}.orders AS SELECT 1 AS a")
    assert orders.rows("SELECT id FROM {ns}.orders") == [(1,), (2,), (3,)]


@pytest.mark.long
def test_frames_make_tables(orders: Statements) -> None:
    frame = orders.spark.table(f"{orders.ns}.orders")
    frame.writeTo(f"{orders.ns}.created").tableProperty("partitions", "2").create()
    frame.write.format("txnlog").saveAsTable(f"{orders.ns}.order")  # names that are near don't keep it from being made
    for name in ("created", "order"):
        assert orders.rows(f"SELECT id FROM {{ns}}.{name}") == [(1,), (2,), (3,)]
    assert orders.properties("created")["partitions"] == "2"
    with pytest.raises(PySparkException, match="USING orc"):
        frame.write.format("orc").saveAsTable(f"{orders.ns}.orc")
    with pytest.raises(PySparkException, match="never replaced"):
        frame.write.mode("overwrite").saveAsTable(f"{orders.ns}.order")


@pytest.mark.long
def test_streams_make_tables(orders: Statements, tmp_path: Path) -> None:
    """Copy a table to one that isn't there, and go on after more was written: each row comes once."""

    def run() -> None:
        source = orders.spark.readStream.option("startingOffsets", "earliest").table(f"{orders.ns}.orders")
        writer = source.select("id", "who").writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).toTable(f"{orders.ns}.copy")
        try:
            assert query.awaitTermination(DEADLINE_S)
        finally:
            query.stop()

    run()
    with orders.log.producer(orders.topic("orders")) as producer:
        producer.send_batch(pa.table({"id": [4], "amount": [4.5], "who": ["d"]}))
    run()
    run()
    assert orders.rows("SELECT * FROM {ns}.copy") == [(1, "a"), (2, "b"), (3, None), (4, "d")]
