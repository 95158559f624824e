"""Making tables in all the ways that Spark has: each works, or is refused with nothing written and a way out.

``CREATE TABLE ... USING txnlog OPTIONS (...)`` is the way that works (see ``test_tables.py``). Of the others Spark asks
the source nothing, or keeps nothing that it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrameWriter, SparkSession

import txn_source

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def orders(spark: SparkSession, log: txn_source.Log) -> Iterator[txn_source.Log]:
    """A log with an empty topic ``orders``, and a database for tables, which is the current one."""
    log.create_topic("orders", schema=SCHEMA)
    spark.sql("CREATE DATABASE txn_making")
    spark.sql("USE txn_making")
    yield log
    spark.sql("USE default")
    spark.sql("DROP DATABASE txn_making CASCADE")


@pytest.mark.long
def test_writes_that_make_a_table_are_refused(spark: SparkSession, orders, root: Path) -> None:
    """Make tables of a frame and of a query, with all options given: nothing is written, no table is left behind, and
    the message says what to do instead. The same write, not making a table, works."""
    frame = spark.sql("SELECT 1L AS id, 'one' AS name")
    options = f"OPTIONS (path '{root}', topic 'orders')"

    def writer(mode: str = "append") -> DataFrameWriter:
        return frame.write.format("txnlog").option("path", str(root)).option("topic", "orders").mode(mode)

    def v2() -> Any:
        return frame.writeTo("made").using("txnlog").option("path", str(root)).option("topic", "orders")

    new_table, no_options, overwrite = "a new table of this write", "forgets the options", "never overwritten"
    ways: dict[str, tuple[Callable[[], Any], str]] = {
        "saveAsTable": (lambda: writer().saveAsTable("made"), new_table),
        "saveAsTable, overwrite": (lambda: writer("overwrite").saveAsTable("made"), overwrite),
        "createOrReplace": (lambda: v2().createOrReplace(), overwrite),
        "CTAS": (
            lambda: spark.sql(f"CREATE TABLE made USING txnlog {options} AS SELECT 1L AS id, 'x' AS name"),
            no_options,
        ),
    }
    for name, (way, said) in ways.items():
        with pytest.raises(PySparkException) as caught:
            way()
        told = str(caught.value)
        assert "[TXNLOG_INVALID_ARGUMENT]" in told, name
        assert said in told, name
        assert overwrite == said or "CREATE TABLE t USING txnlog OPTIONS (path" in " ".join(told.split()), name
        assert not spark.catalog.tableExists("made"), name
        assert orders.stats("orders").messages == 0, name
    writer().save()
    assert orders.stats("orders").messages == 1


def test_tables_without_options_say_so(spark: SparkSession, orders, root: Path, refusal) -> None:
    """Make tables with declared columns: Spark takes them without asking, and forgets the options.
    Using one says how to make it right, and WITH gives what is missing."""
    options = f"OPTIONS (path '{root}', topic 'orders')"
    spark.sql(f"CREATE TABLE declared (id bigint, name string) USING txnlog {options}")
    told = refusal("INVALID_ARGUMENT", spark.table("declared").collect)
    assert [text for text in ("declared columns", "CREATE TABLE t USING txnlog", "WITH (") if text not in told] == []
    told = refusal("INVALID_ARGUMENT", partial(spark.sql, "INSERT INTO declared VALUES (1, 'one')"))
    assert "forgets the options" in told
    assert orders.stats("orders").messages == 0
    given = f"WITH (path = '{root}', topic = 'orders')"
    spark.sql(f"INSERT INTO declared {given} VALUES (1, 'one')")
    assert [tuple(row) for row in spark.sql(f"SELECT * FROM declared {given}").collect()] == [(1, "one")]


@pytest.mark.long
def test_streams_of_tables_without_options_say_so(spark: SparkSession, orders, root: Path, tmp_path: Path) -> None:
    """Read a table with declared columns as a stream, and write a stream to one that lacks the options."""
    options = f"OPTIONS (path '{root}', topic 'orders')"
    spark.sql(f"CREATE TABLE declared (id bigint, name string) USING txnlog {options}")
    stream = spark.readStream.table("declared").writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "stream")).start()
    with pytest.raises(StreamingQueryException, match=r"hands on neither a path .* to this stream"):
        query.awaitTermination(240)
    spark.sql(f"CREATE TABLE whole USING txnlog {options}")
    stream = spark.readStream.format("rate").load().selectExpr("value AS id", "'x' AS name").writeStream
    query = stream.format("txnlog").option("checkpointLocation", str(tmp_path / "checkpoint")).toTable("whole")
    with pytest.raises(StreamingQueryException, match=r"forgets the options.*writeStream.option"):
        query.awaitTermination(240)


def test_partitioning_is_refused_by_spark(spark: SparkSession, orders, root: Path) -> None:
    """Partition, bucket and cluster a table whose columns the source gives, and a write: nothing is made or written."""
    options = f"USING txnlog OPTIONS (path '{root}', topic 'orders')"
    for clause in ("PARTITIONED BY (id)", "CLUSTERED BY (id) INTO 4 BUCKETS", "CLUSTER BY (id)"):
        with pytest.raises(PySparkException, match="partitioning"):
            spark.sql(f"CREATE TABLE parted {options} {clause}")
        assert not spark.catalog.tableExists("parted")
    writer = spark.sql("SELECT 1L AS id, 'one' AS name").write.format("txnlog").mode("append")
    for parted in (writer.partitionBy("id"), writer.bucketBy(2, "id")):
        with pytest.raises(Exception, match=r"partitioning|bucketBy"):
            parted.option("path", str(root)).option("topic", "orders").save()
    assert orders.stats("orders").messages == 0
