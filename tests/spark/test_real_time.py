"""Real time: each row once, wherever Spark ends a batch, and whatever trigger the query has next."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import txn_source
from tests.log.reading import eventually
from tests.selection import mostly_long
from tests.spark.plain import Query, source_of
from txn_source.model.errors import DataLossError, InvalidArgumentError
from txn_source.spark.catalog.real_time import follow, real_time, real_time_end

DIRTY = {"topic": "orders", "isolationLevel": "read_uncommitted"}
PER_PARTITION = {"topic": "orders", "consistentCut": "false"}


class RealTime:
    """A query's batches in real time, without Spark: each ends behind so many rows of each task."""

    def __init__(self, query: Query, root: Path, **options: str) -> None:
        self._query = query
        self._options = {"path": str(root), "startingOffsets": "earliest", **options}

    def batch(self, most: int, tasks: int = 1, *, done: bool = True) -> list[str]:
        """Return the values of a batch; ``done``: Spark keeps that it is."""
        number = self._query.last("commits") + 1
        reader = source_of(self._options).streamReader(source_of(self._options).schema())
        start = self._query.noted("offsets", number - 1) if number else reader.initialOffset()
        columns = source_of(self._options).schema().json()
        planned = real_time(self._options, columns, json.dumps(start), tasks)
        read = [self._task(planned, begin, most) for begin in planned["tasks"]]
        end = real_time_end(planned["kept"], [place for place, _ in read])
        self._query.note("offsets", number, json.loads(end))
        if done:
            self._query.note("commits", number, {})
        return [value for _, values in read for value in values]

    def _task(self, planned: dict[str, Any], begin: str, most: int) -> tuple[dict[str, Any], list[str]]:
        place: dict[str, Any] = {"begin": begin, "at": begin, "rows": "", "done": 0}
        values: list[str] = []
        while len(values) < most:
            came = follow(planned["options"], planned["schema"], place["at"], 0)
            if came is None:
                break
            rows = _rows(came["rows"])[: most - len(values)]
            values += rows
            if len(values) == most:
                return {**place, "rows": came["rows"], "done": len(rows)}, values
            place["at"] = came["at"]
        return place, values


def _rows(answer: str) -> list[str]:
    if not answer:
        return []
    return [value.decode() for value in pa.ipc.open_stream(b64decode(answer)).read_all()["value"].to_pylist()]


@pytest.fixture
def orders(log: txn_source.Log) -> list[str]:
    """The values in ``orders``, on two partitions, in entries of one to four messages; the last ones are aborted."""
    log.create_topic("orders", partitions=2)
    numbers = iter(range(100))
    values = []
    with log.producer("orders") as producer:
        for size in (1, 3, 2, 4):
            for partition in range(2):
                for _ in range(size):
                    values.append(str(next(numbers)))
                    producer.send(values[-1], partition=partition)
            producer.flush()
        with log.begin_transaction() as txn:
            for partition in (0, 0, 1):
                producer.send("aborted", partition=partition, txn=txn)
            txn.abort()
    return values


@pytest.mark.parametrize("tasks", mostly_long([1, 2], 2))
@pytest.mark.parametrize("next_trigger", ["real time", "micro-batches"])
def test_batch_may_end_behind_any_row(
    orders: list[str], query: Query, root: Path, tmp_path: Path, tasks: int, next_trigger: str
) -> None:
    for most in range(len(orders) + 1):
        query.checkpoint = tmp_path / str(most)
        query.batches = {}
        monitor = RealTime(query, root, **DIRTY)
        seen = monitor.batch(most, tasks)
        if next_trigger == "real time":
            seen += monitor.batch(1, tasks) + monitor.batch(100)
        else:
            query.run(**DIRTY)
            seen += [value for batch in query.values() for value in batch]
        assert sorted(seen) == sorted(orders), most
        assert monitor.batch(100) == []


def test_batch_that_ended_inside_an_entry_is_finished_in_real_time(
    orders: list[str], query: Query, root: Path, tmp_path: Path
) -> None:
    monitor = RealTime(query, root, **DIRTY)
    assert monitor.batch(3, done=False) == ["0", "2", "3"]
    with pytest.raises(InvalidArgumentError, match=r"ends inside an entry, at \d+:\d+:2 .*trigger\(realTime="):
        query.run(**DIRTY)
    assert monitor.batch(3) == ["0", "2", "3"]
    query.run(**DIRTY)
    assert len(query.values()[0]) == len(orders) - 3


def test_read_committed_goes_up_to_what_is_decided_on_each_partition(
    log: txn_source.Log, query: Query, root: Path
) -> None:
    log.create_topic("orders", partitions=2)
    monitor = RealTime(query, root, **PER_PARTITION)
    with log.producer("orders") as producer, log.begin_transaction() as txn:
        producer.send("held back", partition=0, txn=txn)
        producer.flush()
        for partition in range(2):
            producer.send(f"behind {partition}", partition=partition)
        producer.flush()
        assert monitor.batch(100) == ["behind 1"]
        txn.commit()
    assert monitor.batch(100) == ["held back", "behind 0"]


def test_added_partition_is_read_from_its_start_by_the_next_batch(
    orders: list[str], log: txn_source.Log, query: Query, root: Path
) -> None:
    monitor = RealTime(query, root, **DIRTY)
    assert len(monitor.batch(100)) == len(orders)
    log.update_topic("orders", 3)
    with log.producer("orders") as producer:
        producer.send("new", partition=2)
    assert monitor.batch(100, tasks=8) == ["new"]


def test_topic_that_is_left_out_keeps_its_place(
    orders: list[str], log: txn_source.Log, query: Query, root: Path
) -> None:
    """Read two topics, then one, which loses the other's messages unless that is allowed, then both again."""
    log.create_topic("bills")
    both = {"topics": "orders,bills", "isolationLevel": "read_uncommitted", "metadataColumns": "none"}
    assert sorted(RealTime(query, root, **both).batch(3)) == ["0", "2", "3"]
    with log.producer("bills") as producer:
        producer.send("bill")
    one = {**DIRTY, "metadataColumns": "none"}
    with pytest.raises(DataLossError, match=r"bills-partition-0 is at \d+:0 and not read"):
        RealTime(query, root, **one).batch(3)
    seen = RealTime(query, root, **one, failOnDataLoss="false").batch(4)
    seen += RealTime(query, root, **both).batch(100)
    assert sorted(["0", "2", "3", *seen]) == sorted([*orders, "bill"])


def test_answer_ends_where_it_is_large(log: txn_source.Log, root: Path) -> None:
    """Catch up with 20 MiB on four partitions: no answer has more than the 8 MiB that it may, and an entry."""
    log.create_topic("orders", partitions=4)
    with log.producer("orders") as producer:
        for number in range(20):
            producer.send(bytes(1 << 20), partition=number % 4)
            producer.flush()
    options = {"path": str(root), "startingOffsets": "earliest", **DIRTY}
    source = source_of(options)
    start = json.dumps(source.streamReader(source.schema()).initialOffset())
    planned = real_time(options, source.schema().json(), start, 1)
    [at], sizes = planned["tasks"], []
    while (came := follow(planned["options"], planned["schema"], at, 0)) is not None:
        sizes.append(len(b64decode(came["rows"])) >> 20)
        at = came["at"]
    assert sum(sizes) == 20
    assert max(sizes) <= 9


def test_what_was_trimmed_is_told(orders: list[str], log: txn_source.Log, query: Query, root: Path) -> None:
    monitor = RealTime(query, root, **DIRTY)
    monitor.batch(3)
    log.roll_ledger("orders")
    log.trim("orders", keep_bytes=0)
    with pytest.raises(DataLossError, match="has lost"):
        monitor.batch(100)
    assert RealTime(query, root, **DIRTY, failOnDataLoss="false").batch(100) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "orders"}, 'consistentCut", "false"'),
        ({**DIRTY, "subscription": "s"}, "real time has no subscriptions"),
        ({**DIRTY, "maxMessagesPerTrigger": "10"}, "limits its batches"),
        ({**DIRTY, "path": "kafka:/data"}, "log that others wrote"),
    ],
)
def test_what_real_time_has_not_is_refused(log: txn_source.Log, root: Path, options: dict[str, str], text: str) -> None:
    log.create_topic("orders")
    columns = source_of({"path": str(root), "topic": "orders"}).schema().json()
    with pytest.raises(InvalidArgumentError, match=text):
        real_time({"path": str(root), **options}, columns, "{}", 1)


@pytest.mark.parametrize("by", ["format", pytest.param("catalog", marks=pytest.mark.long)])
def test_rows_come_once_in_real_time_and_in_micro_batches_of_one_query(
    spark: SparkSession, log: txn_source.Log, root: Path, tmp_path: Path, by: str
) -> None:
    log.create_topic("orders", partitions=2)
    rows = str(tmp_path / "rows")
    Path(rows).mkdir()

    def keep(row: Any) -> None:
        with open(f"{rows}/{row.value}", "a") as file:
            file.write("once")

    def run(**trigger: Any) -> None:
        reader = spark.readStream.option("startingOffsets", "earliest").option("isolationLevel", "read_uncommitted")
        if by == "format":
            frame = reader.format("txnlog").option("topic", "orders").load(str(root))
        else:
            frame = reader.table("real_time_log.public.orders")
        frame = frame.selectExpr("CAST(value AS STRING) AS value")
        writer = frame.writeStream.foreach(keep).outputMode("update").trigger(**trigger)
        query = writer.option("checkpointLocation", str(tmp_path / "at")).start()
        try:
            if "availableNow" in trigger:
                assert query.awaitTermination(120)
                return
            wait(query, lambda: len(list(Path(rows).iterdir())) == sent)
            last = batches()
            wait(query, lambda: batches() > last)  # what is stopped before its end begins again
        finally:
            query.stop()
            eventually(lambda: not any(of.numRunningTasks() for of in tracker.getExecutorInfos()))

    def wait(query: Any, until: Callable[[], bool]) -> None:
        eventually(lambda: query.exception() is not None or until(), within_s=120)
        assert query.exception() is None

    def batches() -> int:
        return len(list((tmp_path / "at" / "commits").glob("[0-9]*")))

    def send(count: int) -> int:
        with log.producer("orders") as producer:
            for number in range(count):
                producer.send(f"{sent + number:05}", partition=number % 2)
        return sent + count

    spark.conf.set("spark.sql.catalog.real_time_log", "io.txnlog.spark.TxnLogCatalog")
    spark.conf.set("spark.sql.catalog.real_time_log.path", str(root))
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1s")
    spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")  # else Spark takes no other trigger
    tracker = spark.sparkContext._jsc.sc().statusTracker()  # a task may see what is sent until it is killed
    sent = 0
    for trigger in ({"realTime": "2 seconds"}, {"availableNow": True}, {"realTime": "2 seconds"}):
        sent = send(500)
        run(**trigger)
    assert [(Path(rows) / f"{number:05}").read_text() for number in range(sent)] == ["once"] * sent
