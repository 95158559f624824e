"""Queries that follow a subscription, what the tests of ``TopicStream`` hold arrives through Spark.

The operator's seeks are made with the command, some of them from inside a running micro-batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from typer.testing import CliRunner

import txn_source
from tests.log.reading import BY_HAND, eventually
from tests.spark.plain import Query
from txn_source.cli.app import app
from txn_source.metadata.service.server import Server
from txn_source.model.message_ranges import position_of
from txn_source.model.position import MessageId, Position

DEADLINE_S = 240


@dataclass
class Queries:
    """Queries over subscription ``booking`` of topic ``orders``, one checkpoint for each name; stopped in the end."""

    spark: SparkSession
    root: Path
    folder: Path
    batches: list[list[str]] = field(default_factory=list)
    running: list[StreamingQuery] = field(default_factory=list)

    def start(self, name: str = "query", *, now: bool = False, **options: str) -> StreamingQuery:
        """Start a query that keeps the values of each micro-batch, sorted; ``now``: up to what is there now."""

        def keep(batch: DataFrame, number: int) -> None:
            self.batches.append(sorted(row.value.decode() for row in batch.select("value").collect()))

        where = {} if "endpoint" in options else {"path": str(self.root)}
        given = {"topic": "orders", "subscription": "booking", **where, **options}
        writer = self.spark.readStream.format("txnlog").options(**given).load().writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self.folder / name))
        query = (writer.trigger(availableNow=True) if now else writer).start()
        self.running.append(query)
        return query

    def refused(self, code: str, name: str, **options: str) -> str:
        """Start a query that must fail, and return what the log says."""
        with pytest.raises(StreamingQueryException) as failed:
            self.start(name, now=True, **options).awaitTermination(DEADLINE_S)
        told = [line for line in str(failed.value).splitlines() if f"[TXNLOG_{code}]" in line]
        assert told, failed.value
        return told[0]


@pytest.fixture
def queries(spark: SparkSession, root: Path, tmp_path: Path) -> Iterator[Queries]:
    """Starts queries, and stops them."""
    queries = Queries(spark, root, tmp_path / "checkpoints")
    yield queries
    for query in queries.running:
        query.stop()


@pytest.fixture
def seek(root: Path) -> Callable[[str], None]:
    """A function that seeks as an operator does."""

    def seek(to: str) -> None:
        arguments = ["--root", str(root), "subscriptions", "seek", "orders", "booking", "--to", to]
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output

    return seek


def send(log: txn_source.Log, *values: str, txn: txn_source.Transaction | None = None) -> list[MessageId]:
    """Send values in one entry."""
    with log.producer("orders", batching=BY_HAND) as producer:
        for value in values:
            producer.send(value, txn=txn)
        return list(producer.flush())


def offset(text: Any) -> Any:
    """Return an offset as a progress has it."""
    return json.loads(text) if isinstance(text, str) else text


def mark(log: txn_source.Log) -> Position:
    """Return where the subscription stands."""
    return position_of(log.subscription("orders", "booking").partitions[0].mark)


def test_query_takes_the_subscription_as_it_is(log, server: Server, queries: Queries) -> None:
    """Follow a read_uncommitted subscription that stands behind the first message: its level and place are the
    query's, the progress tells them, each batch is acknowledged; nobody else gets in until the query stops."""
    log.create_topic("orders")
    first = send(log, "before")[0]
    level = "read_uncommitted"
    log.create_subscription("orders", "booking", isolation_level=level, initial_position="latest")
    info = log.subscription("orders", "booking")
    aborted = log.begin_transaction()
    send(log, "aborted", txn=aborted)
    aborted.abort()
    query = queries.start()
    with log.begin_transaction() as transaction:
        send(log, "open", txn=transaction)
        query.processAllAvailable()
        assert sorted(value for batch in queries.batches for value in batch) == ["aborted", "open"]
        assert "consumer 'stream-" in queries.refused("SUBSCRIPTION_BUSY", "second")
    after = first.position.plus(5)  # two messages, and the ends of their transactions
    told = [offset(query.lastProgress["sources"][0][which]) for which in ("endOffset", "latestOffset")]
    assert [o["epoch"] for o in told] == [0, 0]
    assert {o["subscription"] for o in told} == {info.subscription_id}
    assert {o["level"] for o in told} == {level}
    query.processAllAvailable()
    assert mark(log) == after
    query.stop()
    send(log, "more")
    queries.start("third", endpoint=server.address, now=True).awaitTermination(DEADLINE_S)
    assert queries.batches[-1] == ["more"]
    assert log.subscription("orders", "booking").partitions[0].backlog == 0
    eventually(lambda: not log.subscription("orders", "booking").consumers)  # Spark ended its process


def test_running_query_follows_an_operators_seeks(log, query: Query, seek: Callable[[str], None]) -> None:
    """Seek while a micro-batch runs, to a message inside an entry and by time: the next one begins there and tells the
    epoch, and the commit of the overtaken one moves nothing. Seek while the query is stopped: likewise."""
    log.create_topic("orders")
    options = {"topic": "orders", "subscription": "booking"}
    query.start(**options).process()
    ids = send(log, "a", "b", "c")
    send(log, "d")
    query.process()
    assert query.values() == [["a", "b", "c", "d"]]
    for epoch, (to, expected) in enumerate([(str(ids[1]), list("bcdx")), ("2020-01-01T00:00:00Z", list("abcdxx"))], 1):
        stood: list[Position] = []

        def seek_once(number: int, rows: object, to: str = to, stood: list[Position] = stood) -> None:
            query.each = lambda number, rows: stood.append(mark(log))
            seek(to)

        query.batches.clear()
        query.each = seek_once
        send(log, "x")
        query.process()
        assert query.values() == [["x"], expected]
        assert stood == [ids[0].position]  # while the sought batch runs, the overtaken one is committed
        assert log.subscription("orders", "booking").ignored_acknowledgements == epoch
        last = query.last("offsets")
        assert [query.noted("offsets", number)["epoch"] for number in (last - 1, last)] == [epoch - 1, epoch]
    query.reader.stop()
    query.each = lambda number, rows: None
    query.batches.clear()
    seek(str(ids[2]))
    query.run(**options, startingOffsets=None)
    assert query.values() == [list("cdxx")]
