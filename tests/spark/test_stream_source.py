"""``readStream``: what the tests of ``TopicStream`` hold arrives through the source, batch by batch.

Most queries run in this process (``plain.py``), a few in Spark; a checkpoint outlives its query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import txn_source
from tests.spark.plain import Frame, Query
from txn_source.metadata.service.server import Server
from txn_source.spark.table_options import keep_options

DEADLINE_S = 120
Stream = Callable[..., DataFrame]


@dataclass
class SparkQuery:
    """A query in Spark that keeps the rows of each of its micro-batches; it can be run again from its checkpoint."""

    checkpoint: Path
    batches: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    running: StreamingQuery | None = None

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        def keep(batch: DataFrame, number: int) -> None:
            self.batches[number] = batch.toArrow().to_pylist()

        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        self.running = (writer.trigger(**trigger) if trigger else writer).start()
        return self.running

    def run(self, frame: DataFrame) -> StreamingQuery:
        """Read all that is there now."""
        query = self.start(frame, availableNow=True)
        assert query.awaitTermination(DEADLINE_S)
        return query

    def values(self) -> list[list[str]]:
        """Return the values of each batch that has some, sorted."""
        return [sorted(row["value"].decode() for row in rows) for _, rows in sorted(self.batches.items()) if rows]


@pytest.fixture
def spark_query(tmp_path: Path) -> Iterator[SparkQuery]:
    """A query with a checkpoint of its own; it is stopped in the end."""
    query = SparkQuery(tmp_path / "checkpoint")
    yield query
    if query.running is not None:
        query.running.stop()


@pytest.fixture
def stream(spark: SparkSession, root: Path) -> Stream:
    """A function that opens a stream over the log's path unless an endpoint is given, from its start."""

    def stream(**options: str) -> DataFrame:
        if "endpoint" not in options:
            options["path"] = str(root)
        return spark.readStream.format("txnlog").options(**{"startingOffsets": "earliest", **options}).load()

    return stream


def transfer(log: txn_source.Log, topic: str, *names: str, partitions: int = 2, abort: bool = False) -> None:
    """End transactions with a message on each partition, one after the other."""
    with log.producer(topic) as producer:
        for name in names:
            transaction = log.begin_transaction()
            for partition in range(partitions):
                producer.send(name, key=name, partition=partition, txn=transaction)
            producer.flush()
            transaction.abort() if abort else transaction.commit()


@pytest.fixture
def orders(log: txn_source.Log) -> txn_source.Log:
    """A log with a topic ``orders`` of two partitions: five transfers, of which the third was aborted."""
    log.create_topic("orders", partitions=2, ledger_max_entries=4)
    transfer(log, "orders", "a", "b")
    transfer(log, "orders", "aborted", abort=True)
    transfer(log, "orders", "c", "d")
    return log


def offsets(query: StreamingQuery, which: str) -> list[Any]:
    """Return one kind of offset of each batch, as the progress tells."""
    found = [json.loads(progress.json)["sources"][0][which] for progress in query.recentProgress]
    return [json.loads(offset) if isinstance(offset, str) else offset for offset in found]


def test_query_goes_on_from_its_checkpoint(orders, spark_query: SparkQuery, stream: Stream) -> None:
    """Read with a limit, write more, and start the query again without one: each transfer once, whole in one batch, and
    each batch begins where the one before has ended."""
    first = spark_query.run(stream(topic="orders", maxMessagesPerTrigger="3"))
    assert spark_query.values() == [["a", "a"], ["b", "b"], ["c", "c"], ["d", "d"]]
    starts, ends, newest = (offsets(first, which) for which in ("startOffset", "endOffset", "latestOffset"))
    assert starts[1:] == ends[:-1]
    assert all(
        [key for key in end if key not in ("turn", "begins")] == ["epoch", "decisions", "level", "positions"]
        for end in ends
    )
    assert [offset["positions"] for offset in newest] == [ends[-1]["positions"]] * len(newest)
    transfer(orders, "orders", "e", "f")
    hanging = orders.begin_transaction()
    with orders.producer("orders") as producer:
        producer.send("hanging", txn=hanging)
    spark_query.batches.clear()
    second = spark_query.run(stream(topic="orders", startingOffsets="latest"))
    assert spark_query.values() == [["e", "e", "f", "f"]], "startingOffsets counts for the first start only"
    assert offsets(second, "startOffset")[0] == ends[-1]


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "orders"},
        {"topic": "orders", "metadataColumns": "all"},
        {"topics": "orders,refunds"},
        {"topicsPattern": ".*", "metadataColumns": "none"},
    ],
    ids=str,
)
def test_stream_has_the_columns_of_a_batch_read(orders, query: Query, read, options) -> None:
    """Compare schemas, of one topic and of several, with all metadata columns and without."""
    orders.create_topic("refunds")
    query.start(**options)
    assert query.schema == read(**options).schema


def test_stream_has_the_rows_of_a_batch_read(orders, query: Query, read, ordered) -> None:
    """Read every column uncommitted, an open transaction among the rest, over tasks of several sizes."""
    with orders.producer("orders") as producer:
        producer.send("open", txn=orders.begin_transaction())
    options = {"topic": "orders", "isolationLevel": "read_uncommitted", "metadataColumns": "all", "minPartitions": "3"}
    query.run(**options)
    [rows] = [rows for rows in query.batches.values() if rows]
    key = ("__partition", "__ledger_id", "__entry_id", "__batch_index")
    assert sorted(rows, key=lambda row: [row[name] for name in key]) == ordered(read(**options))
    assert len(rows) == 11


def test_user_given_schema_is_read(orders, query: Query) -> None:
    """Ask for two columns in an order of their own."""
    query.run("__partition int, value binary", topic="orders")
    assert query.values() == [["a", "a", "b", "b", "c", "c", "d", "d"]]
    assert {tuple(row) for rows in query.batches.values() for row in rows} == {("__partition", "value")}


def test_running_query_follows_the_log(log, server: Server, query: Query) -> None:
    """Follow a pattern over a server while a transaction commits, a topic is made, ledgers are offloaded and their hot
    copies deleted: each step's messages come once."""
    log.create_topic("a-1", partitions=2)
    options = {"endpoint": server.address, "startingOffsets": "latest", "metadataColumns": "__topic"}
    query.start(topicsPattern="a-.*", **options)

    def come(expected: list[str]) -> None:
        query.process()
        assert sorted(value for values in query.values() for value in values) == expected

    come([])
    transfer(log, "a-1", "one")
    come(["one"] * 2)
    log.create_topic("a-2", partitions=1)
    transfer(log, "a-2", "two", partitions=1)
    transfer(log, "a-2", "gone", partitions=1, abort=True)
    come(["one", "one", "two"])
    for topic in ("a-1", "a-2"):
        log.roll_ledger(topic)
        log.offload(topic)
        log.delete_hot(topic)
    transfer(log, "a-1", "three")
    come(["one", "one", "three", "three", "two"])
    assert {row["__topic"] for rows in query.batches.values() for row in rows} == {"a-1", "a-2"}


def test_query_from_the_latest_that_saw_nothing_misses_nothing_after_a_restart(log, query: Query) -> None:
    """Start at the end of a log, stop before anything came, write, and start again."""
    log.create_topic("orders", partitions=2)
    transfer(log, "orders", "old")
    query.run(topic="orders", startingOffsets="latest")
    transfer(log, "orders", "new")
    query.run(topic="orders", startingOffsets="latest")
    assert query.values() == [["new", "new"]]


def test_limits_of_a_table_hold_for_streams_of_it(orders, root: Path, query: Query, read) -> None:
    """Make a table with a limit: a stream of it has it, or that of the reader; a batch read takes no notice."""
    options = {"path": str(root), "topic": "orders", "startingOffsets": "earliest", "maxMessagesPerTrigger": "2"}
    table = keep_options(read(topic="orders").schema, options, insertable=False)
    assert Frame({}, table).count() == 8
    own = {"path": None, "startingOffsets": None}
    query.run(table, **own)
    assert [len(rows) for _, rows in sorted(query.batches.items())] == [2, 2, 2, 2]
    query.checkpoint, query.batches = query.checkpoint.with_name("another"), {}
    query.run(table, **own, maxMessagesPerTrigger="4")
    assert [len(rows) for _, rows in sorted(query.batches.items())] == [4, 4]


def test_min_partitions_of_a_stream(log, query: Query) -> None:
    """Ask for six tasks of a ledger of twelve megabytes: the batch has them, and each message once."""
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for number in range(12):
            producer.send(f"{number:02}" * (1 << 19))
            producer.flush()
    query.run(topic="orders", minPartitions="6")
    assert query.tasks[0] >= 6
    assert [value[:2] for value in query.values()[0]] == [f"{n:02}" for n in range(12)]
