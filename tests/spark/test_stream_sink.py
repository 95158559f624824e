"""``df.writeStream``: every micro-batch is one transaction, once, however often Spark repeats it."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

import txn_source
from txn_source import BatchRepeatedError, ProducerFencedError
from txn_source.metadata.service.server import Server
from txn_source.spark.sink import StreamWriter, TaskWrote
from txn_source.spark.source import TxnLogDataSource

ROWS = 5


class Pipeline:
    """A streaming query from a folder of JSON files, one to a micro-batch, to a log."""

    def __init__(self, spark: SparkSession, root: Path, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self._spark = spark
        self._root = root
        self._source = folder / "source"
        self._source.mkdir()
        self._files = 0
        self._began_s = folder.stat().st_mtime - 3600

    def put(self, rows: int = ROWS) -> None:
        """Add a file, whose rows have its number and their own."""
        text = "".join(json.dumps({"value": f"{self._files}/{n}", "file": self._files}) + "\n" for n in range(rows))
        hidden = self._source / f".{self._files}"
        hidden.write_text(text)
        os.utime(hidden, (self._began_s + self._files,) * 2)  # Spark takes files by age
        hidden.rename(self._source / f"{self._files:04}.json")
        self._files += 1

    def run(self, *columns: str, mode: str = "append", **options: str) -> None:
        """Run the query over all that is there and was not yet taken."""
        if "endpoint" not in options:
            options["path"] = str(self._root)
        source = self._spark.readStream.schema("value string, file int").option("maxFilesPerTrigger", "1")
        frame = source.json(str(self._source)).selectExpr(*(columns or ("value",)))
        writer = frame.writeStream.format("txnlog").options(checkpointLocation=str(self.checkpoint), **options)
        query = writer.outputMode(mode).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget_last_commit(self) -> None:
        """Make the checkpoint look as if the driver had died before it noted its last batch as done."""
        commits = self.checkpoint / "commits"
        newest = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        newest.unlink()
        (commits / f".{newest.name}.crc").unlink(missing_ok=True)

    def expected(self, *files: int) -> list[str]:
        return sorted(f"{file}/{n}" for file in files or range(self._files) for n in range(ROWS))


@pytest.fixture
def pipeline(spark: SparkSession, root: Path, tmp_path: Path) -> Pipeline:
    """A pipeline to the test's log."""
    return Pipeline(spark, root, tmp_path)


def values(log: txn_source.Log, topic: str = "orders", level: str = "read_uncommitted") -> list[str]:
    return sorted(row["value"].decode() for row in log.scan(topic, level, ["value"]).read_all().to_pylist())


def by_transaction(log: txn_source.Log, *topics: str) -> list[list[str]]:
    """Return the messages of each transaction, in the order in which they began."""
    found: dict[str, list[str]] = {}
    for row in log.scan(list(topics), columns=["value", "__txn_id"]).read_all().to_pylist():
        found.setdefault(row["__txn_id"], []).append(row["value"].decode())
    order = {str(t.id): t.id.least_sig_bits for t in log.transactions(state=None)}
    return [sorted(found[txn]) for txn in sorted(found, key=order.__getitem__)]


def test_each_micro_batch_is_one_transaction(pipeline, log, server: Server) -> None:
    """Run over three files, then over one: a transaction for each, by one producer that goes on."""
    log.create_topic("orders", partitions=2)
    options = {"topic": "orders", "endpoint": server.address}
    for _ in range(3):
        pipeline.put()
    pipeline.run("value", "int(file % 2) AS __partition", **options)
    pipeline.put()
    pipeline.run("value", "int(file % 2) AS __partition", **options)
    assert by_transaction(log, "orders") == [pipeline.expected(file) for file in range(4)]
    assert {t.state.value for t in log.transactions(state=None)} == {"committed"}
    table = log.scan("orders", columns=["__producer_name", "__sequence_id"]).read_all()
    assert sorted(table["__sequence_id"].to_pylist()) == list(range(4 * ROWS))
    query_id = json.loads((pipeline.checkpoint / "metadata").read_text())["id"]
    assert table["__producer_name"].unique().to_pylist() == [f"spark-{query_id[:12]}"]


def test_batch_that_spark_repeats_is_registered_once(pipeline, log, root: Path) -> None:
    """Take the note of the last batch out of the checkpoint, twice, and go on: no row is there twice, none is missing,
    and what the repetitions wrote is garbage. Spark tells the runs apart."""
    log.create_topic("orders")
    pipeline.put()
    pipeline.run(topic="orders")
    before = log.stats("orders")
    pipeline.forget_last_commit()
    pipeline.run(topic="orders")
    assert log.stats("orders") == before
    pipeline.put()
    pipeline.forget_last_commit()
    pipeline.run(topic="orders")
    assert values(log) == pipeline.expected()
    assert by_transaction(log, "orders") == [pipeline.expected(file) for file in range(2)]
    assert len(log.collect_garbage(older_than=0).paths) == 2
    assert values(log) == pipeline.expected()
    with sqlite3.connect(root / "metadata.db") as database:
        [(runs,)] = database.execute("SELECT runs FROM sinks").fetchall()
    assert len(set(runs.split())) == 3


# Without Spark


def stream_writer(root: Path, *, overwrite: bool = False, **options: str) -> StreamWriter:
    source = TxnLogDataSource(CaseInsensitiveDict({"path": str(root), **options}))
    return source.streamWriter(StructType([StructField("value", StringType())]), overwrite=overwrite)


def write_batch(root: Path, batch_id: int, value: str, query: str = "query", **options: str) -> None:
    """Write and commit a batch of one row with writers of its own, as Spark makes them for each."""
    wrote = stream_writer(root, topic="orders", **options).write(iter([pa.record_batch({"value": [value]})]))
    stream_writer(root, topic="orders", **options).commit([TaskWrote(wrote.batches, query), None], batch_id)


def test_batch_that_comes_again_with_other_values_is_refused(log, root: Path) -> None:
    """Repeat a batch as it was, and with another value of the same length: that is refused, and changes nothing."""
    log.create_topic("orders")
    for _ in range(2):
        write_batch(root, 0, "a")
    with pytest.raises(BatchRepeatedError, match="other values"):
        write_batch(root, 0, "b")
    write_batch(root, 1, "c")
    assert values(log) == ["a", "c"]


def test_query_that_is_fenced_stops_until_it_gets_another_id(log, root: Path) -> None:
    """Take a query's transactional id over: its next batch fails, also when it is tried again, and nothing of it is
    there; with another id the query goes on where it was."""
    log.create_topic("orders")
    producer = log.producer("orders", transactional_id="copy")
    write_batch(root, 0, "0", transactionalId="copy")
    producer.send("late")
    with pytest.raises(ProducerFencedError):
        producer.flush()
    producer = log.producer("orders", transactional_id="copy")
    for _ in range(2):
        with pytest.raises(ProducerFencedError, match="'copy'"):
            write_batch(root, 1, "1", transactionalId="copy")
        assert values(log) == ["0"]
    for batch_id in (1, 2):
        write_batch(root, batch_id, str(batch_id), transactionalId="copy again")
    assert values(log) == ["0", "1", "2"]
    producer.send("not fenced")
    producer.flush()


def test_output_that_is_rewritten_is_refused(log, root: Path) -> None:
    """Plan a stream in the output mode complete, which Spark tells as overwriting."""
    log.create_topic("orders")
    with pytest.raises(txn_source.InvalidArgumentError, match=r"never overwritten.*outputMode\(\"append\"\)"):
        stream_writer(root, overwrite=True, topic="orders")


def test_batch_without_tasks_is_committed_without_a_call(log, root: Path) -> None:
    """Commit and abort a batch that had no tasks, and one whose tasks all failed."""
    log.create_topic("orders")
    writer = stream_writer(root, topic="orders")
    messages: list[Any]
    for messages in ([], [None]):
        writer.commit(messages, 0)
        writer.abort(messages, 0)
    assert log.transactions(state=None) == []


def test_tasks_that_do_not_know_their_query_are_refused(log, root: Path) -> None:
    """Commit what tasks outside of a query wrote: nobody could tell its repetition, so it is not dropped silently."""
    log.create_topic("orders")
    with pytest.raises(txn_source.TxnLogError, match=r"TXNLOG_INTERNAL.*id of the query"):
        stream_writer(root, topic="orders").commit([TaskWrote((), None)], 0)
