"""The same reads and writes through Spark Connect, where everything but Python's own process is on a server's side.

Nothing is registered: the server finds the source by itself, as a classic session does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import txn_source

DEADLINE_S = 120
LEVELS = {"read_committed": ["a", "b"], "read_uncommitted": ["a", "aborted", "b", "open", "plain"]}
"""What a reader of topic ``orders`` sees."""


@pytest.fixture
def orders(log: txn_source.Log) -> txn_source.Log:
    """A log with a topic ``orders``: committed ``a`` and ``b``, ``aborted``, and ``plain`` behind ``open``."""
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for values, end in ((["a", "b"], "commit"), (["aborted"], "abort"), (["open"], None)):
            transaction = log.begin_transaction(timeout=900)
            for value in values:
                producer.send(value, key="k", txn=transaction)
            producer.flush()
            if end is not None:
                getattr(transaction, end)()
        producer.send("plain")
    return log


@pytest.fixture
def copies(log: txn_source.Log) -> Callable[[], list[str]]:
    """A topic ``copy``, and a function that returns what is in it."""
    log.create_topic("copy", partitions=2)
    return lambda: sorted(
        value.decode() for value in log.scan("copy", columns=["value"]).read_all()["value"].to_pylist()
    )


def values(frame: DataFrame) -> list[str]:
    return sorted(row.value.decode() for row in frame.select("value").collect())


def run(frame: DataFrame, checkpoint: Path, **options: str) -> None:
    """Copy all that is there now to another topic, or to nowhere."""
    writer = frame.writeStream.format("txnlog" if options else "noop").options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()


def refusal(code: str, query: Callable[[], Any]) -> str:
    """Make a query that must be refused, and return the one line that says so."""
    with pytest.raises(PySparkException) as caught:
        query()
    told = {line[line.index("[TXNLOG_") :] for line in str(caught.value).splitlines() if "[TXNLOG_" in line}
    [line] = told
    assert line.startswith(f"[TXNLOG_{code}] ")
    return line


def test_session_is_a_remote_one(spark: SparkSession) -> None:
    """Look at what the fixture gives: else this folder proves nothing."""
    assert type(spark).__module__ == "pyspark.sql.connect.session"


@pytest.mark.parametrize("level", LEVELS)
def test_batch_read_sees_what_its_level_allows(spark, orders, root: Path, level: str) -> None:
    """Read at both levels, by the reader's option and by ``scan``; compare every column."""
    reader = spark.read.format("txnlog").option("topic", "orders").option("isolationLevel", level)
    frame = reader.option("metadataColumns", "all").load(str(root))
    assert values(frame) == LEVELS[level]
    scanned = orders.scan("orders", level, columns=frame.columns).read_all()
    position = ["__partition", "__ledger_id", "__entry_id", "__batch_index"]
    got, expected = (
        sorted(table.to_pylist(), key=lambda row: [row[name] for name in position])
        for table in (frame.toArrow(), scanned)
    )
    assert got == expected


def test_options_of_a_read_arrive(spark, orders, root: Path) -> None:
    """Give offsets, and a schema of two columns."""
    reader = spark.read.format("txnlog").option("topic", "orders").option("startingOffsets", '{"orders": {"0": "1:1"}}')
    assert values(reader.load(str(root))) == []
    reader = spark.read.format("txnlog").option("topic", "orders").schema("__entry_id bigint, value binary")
    assert [tuple(row) for row in reader.load(str(root)).orderBy("value").collect()] == [(0, b"a"), (0, b"b")]


def test_sql_table_keeps_its_options_and_with_overrides_them(spark, log, root: Path) -> None:
    """Make a table, insert into it, leave a transaction open, select with and without an option, and stream it."""
    log.create_topic("bills", schema=pa.schema([("id", pa.int64())]))
    options = f"path '{root}', topic 'bills', startingOffsets 'earliest', insertable 'true'"
    spark.sql(f"CREATE TABLE bills USING txnlog OPTIONS ({options})")
    try:
        spark.sql("INSERT INTO bills (id) VALUES (1), (2)")
        producer = log.producer("bills")
        producer.send({"id": 3}, txn=log.begin_transaction(timeout=900))
        producer.flush()
        assert sorted(row.id for row in spark.sql("SELECT id FROM bills").collect()) == [1, 2]
        everything = spark.sql("SELECT id FROM bills WITH (isolationLevel = 'read_uncommitted')")
        assert sorted(row.id for row in everything.collect()) == [1, 2, 3]
        streamed = spark.readStream.table("bills").writeStream.format("memory").queryName("streamed")
        query = streamed.trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)
        assert sorted(row.id for row in spark.table("streamed").collect()) == [1, 2]
    finally:
        spark.sql("DROP TABLE bills")


def test_batch_write_is_one_transaction(spark, orders, root: Path, copies) -> None:
    """Write what was read to another topic."""
    frame = spark.read.format("txnlog").option("topic", "orders").option("metadataColumns", "none").load(str(root))
    frame.repartition(2).write.format("txnlog").option("topic", "copy").mode("append").save(str(root))
    assert copies() == ["a", "b"]
    assert len(set(orders.scan("copy", columns=["__txn_id"]).read_all()["__txn_id"].to_pylist())) == 1


def test_stream_is_copied_once_over_two_runs(spark, orders, root: Path, tmp_path: Path, copies) -> None:
    """Copy with a limit, abort what holds the rest back, and go on from the checkpoint."""
    reader = spark.readStream.format("txnlog").options(topic="orders", startingOffsets="earliest")
    source = reader.options(metadataColumns="none", maxMessagesPerTrigger="1").load(str(root))
    for expected in (["a", "b"], ["a", "b", "plain"]):
        run(source, tmp_path / "checkpoint", topic="copy", path=str(root))
        assert copies() == expected
        for transaction in orders.transactions():
            orders.abort_transaction(transaction.id)


def test_progress_has_readable_offsets(spark, orders, root: Path, tmp_path: Path) -> None:
    """Read a stream to nowhere: where it has come to stands in its checkpoint as JSON."""
    reader = spark.readStream.format("txnlog").options(topic="orders", startingOffsets="earliest")
    run(reader.load(str(root)), tmp_path / "checkpoint")
    [*_, offset] = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()
    assert json.loads(offset)["positions"] == {"orders": {"0": "1:4"}}


def test_history_is_read(spark, orders, root: Path) -> None:
    """Offload what is closed, and read it with what isn't, as a frame and by the format."""
    for transaction in orders.transactions():
        orders.abort_transaction(transaction.id)
    orders.roll_ledger("orders")
    orders.offload("orders")
    with orders.producer("orders") as producer:
        producer.send("later")
    frame = txn_source.spark.read(spark, "orders", path=root, metadataColumns="all")
    expected = spark.read.format("txnlog").options(topic="orders", metadataColumns="all").load(str(root))
    by = ["__ledger_id", "__entry_id", "__batch_index"]
    assert frame.orderBy(by).toArrow().to_pylist() == expected.orderBy(by).toArrow().to_pylist()


def test_mistakes_are_told_in_one_line(spark, orders, root: Path, tmp_path: Path, copies) -> None:
    """Misspell a topic and an option, overwrite a log, and start a stream with a wrong limit."""

    def read(**options: str) -> Any:
        return spark.read.format("txnlog").options(**options).load(str(root)).count()

    assert "'ordres'" in refusal("TOPIC_NOT_FOUND", lambda: read(topic="ordres"))
    assert "'isolationLevel'" in refusal("INVALID_ARGUMENT", lambda: read(topic="orders", isolationLevels="x"))
    frame = spark.createDataFrame([("x",)], "value string")
    writer = frame.write.format("txnlog").option("topic", "copy")
    assert "never overwritten" in refusal("INVALID_ARGUMENT", lambda: writer.mode("overwrite").save(str(root)))
    reader = spark.readStream.format("txnlog").options(topic="orders", maxMessagesPerTrigger="0")
    said = refusal("INVALID_ARGUMENT", lambda: run(reader.load(str(root)), tmp_path / "checkpoint"))
    assert "'maxMessagesPerTrigger': '0'" in said
    assert copies() == []
