"""SQL tables: their options last, writes go to the table that is named, and tables follow the topics of a log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import txn_source
from txn_source.model.errors import InvalidArgumentError
from txn_source.spark import create_tables

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    """A database for the test's tables, which is the current one."""
    spark.sql("CREATE DATABASE txn_tables")
    spark.sql("USE txn_tables")
    yield "txn_tables"
    spark.sql("USE default")
    spark.sql("DROP DATABASE txn_tables CASCADE")


@pytest.fixture
def tables(spark: SparkSession, log: txn_source.Log, database: str) -> Callable[[], dict[str, list[int]]]:
    """Topics and tables ``a`` and ``b``, the ids 1 and 2 in *a*, and a function that returns the ids of each topic.

    The tables are insertable; ``plain_a`` and ``plain_b`` aren't.
    """
    for topic in "ab":
        log.create_topic(topic, schema=SCHEMA)
        options = f"path '{log.root}', topic '{topic}'"
        spark.sql(f"CREATE TABLE plain_{topic} USING txnlog OPTIONS ({options})")
        spark.sql(f"CREATE TABLE {topic} USING txnlog OPTIONS ({options}, insertable 'true')")
    with log.producer("a") as producer:
        producer.send({"id": 1, "name": "one"})
        producer.send({"id": 2, "name": None})

    def ids() -> dict[str, list[int]]:
        return {topic: log.scan(topic, columns=["id"]).read_all()["id"].to_pylist() for topic in "ab"}

    return ids


def test_options_last_and_with_overrides_them(spark, log, tables) -> None:
    """Leave a transaction open: the table reads committed, WITH (...) reads it all, and a stream reads the table."""
    transaction = log.begin_transaction()
    producer = log.producer("a")
    producer.send({"id": 3, "name": "open"}, txn=transaction)
    producer.flush()
    assert spark.table("a").count() == 2
    assert spark.sql("SELECT * FROM a WITH (isolationLevel = 'read_uncommitted')").count() == 3
    transaction.abort()


def test_column_added_behind_our_back_is_told(spark, tables, refusal) -> None:
    """Add a column with ALTER TABLE, which Spark accepts: the next read says that it isn't there, and what to do; to
    an insertable table Spark adds none."""
    spark.sql("ALTER TABLE plain_a ADD COLUMNS (extra string)")
    told = refusal("SCHEMA_MISMATCH", spark.table("plain_a").collect)
    assert "'extra'" in told
    assert "make the table again" in told
    with pytest.raises(PySparkException, match="DEFAULT_UNSUPPORTED"):
        spark.sql("ALTER TABLE a ADD COLUMNS (extra string)")


def test_wrong_options_are_refused_when_the_table_is_made(spark, log, database, refusal) -> None:
    """Make a table of a topic that isn't there."""
    options = f"path '{log.root}', topic 'nothing'"
    refusal("TOPIC_NOT_FOUND", lambda: spark.sql(f"CREATE TABLE wrong USING txnlog OPTIONS ({options})"))


def test_dropping_a_table_leaves_the_log_alone(spark, log, tables) -> None:
    """Drop both tables: topics and messages stay."""
    for table in ("a", "b", "plain_a", "plain_b"):
        spark.sql(f"DROP TABLE {table}")
    assert tables() == {"a": [1, 2], "b": []}


def test_tables_follow_the_topics(spark, log, database) -> None:
    """Make tables of all topics, change the topics, and make them again: one is gone, one new, another's own kept."""
    for topic in ("orders", "order-items", "persistent://bank/eu/transfers"):
        log.create_topic(topic, schema=SCHEMA)
    spark.sql("CREATE TABLE own (x int) USING parquet")
    expected = {
        "orders": "orders",
        "order_items": "order-items",
        "bank_eu_transfers": "persistent://bank/eu/transfers",
    }
    assert create_tables(spark, log, database=database) == expected
    assert create_tables(spark, log, database=database) == expected, "again"
    log.delete_topic("order-items")
    log.create_topic("new")
    create_tables(spark, log, database=database)
    names = {table.name for table in spark.catalog.listTables(database) if not table.isTemporary}
    assert names == {"own", "orders", "bank_eu_transfers", "new"}
    assert spark.table("orders").count() == 0
    assert create_tables(spark, log, namespace="bank/eu", database=database) == {
        "bank_eu_transfers": "persistent://bank/eu/transfers"
    }
    assert "new" in {table.name for table in spark.catalog.listTables(database)}, "another namespace's stay"


def test_tables_that_clash_are_refused_before_anything_is_made(spark, log, database) -> None:
    """Have two topics of one table name, and a foreign table of a topic's name."""
    log.create_topic("a-b")
    log.create_topic("a.b")
    with pytest.raises(InvalidArgumentError, match="would both be"):
        create_tables(spark, log, database=database)
    log.delete_topic("a.b")
    spark.sql("CREATE TABLE a_b (x int) USING parquet")
    with pytest.raises(InvalidArgumentError, match="wasn't made for"):
        create_tables(spark, log, database=database)
    assert [table.name for table in spark.catalog.listTables(database) if not table.isTemporary] == ["a_b"]


_SESSION = """
import json, sys
from pyspark.sql import SparkSession
warehouse, statements = sys.argv[1], json.loads(sys.argv[2])
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.warehouse.dir", warehouse + "/warehouse")
    .config("spark.hadoop.javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=metastore;create=true")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={warehouse}")
    .enableHiveSupport().getOrCreate())
spark.sparkContext.setLogLevel("OFF")
rows = []
for statement in statements:
    rows = [row.asDict() for row in spark.sql(statement).collect()]
print(json.dumps(rows))
spark.stop()
"""


@pytest.mark.long
def test_tables_outlive_the_session_in_a_hive_metastore(log: txn_source.Log, tmp_path: Path) -> None:
    """Make a table in one session with a metastore on disk; another session selects from it and inserts into it."""
    log.create_topic("a", schema=SCHEMA)

    def session(*statements: str) -> Any:
        command = [sys.executable, "-c", _SESSION, str(tmp_path), json.dumps(statements)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    session(f"CREATE TABLE a USING txnlog OPTIONS (path '{log.root}', topic 'a', insertable 'true')")
    assert session("INSERT INTO a (id, name) VALUES (1, 'one')", "SELECT id, name FROM a") == [{"id": 1, "name": "one"}]
