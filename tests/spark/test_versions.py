"""Batch writes with ``txnAppId`` and ``txnVersion``: a write that is repeated, as in ``foreachBatch``, counts once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

import txn_source
from txn_source.spark.sink import BatchWriter
from txn_source.spark.source import TxnLogDataSource

ROWS = 4
VALUE = StructType([StructField("value", StringType())])


class Query:
    """A streaming query from a folder of JSON files, one to a micro-batch, whose batches are written by a function."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._checkpoint = folder / "checkpoint"
        self._source = folder / "source"
        self._source.mkdir()

    def put(self, file: int) -> None:
        """Add a file."""
        hidden = self._source / f".{file}"
        hidden.write_text("".join(json.dumps({"value": f"{file}/{n}"}) + "\n" for n in range(ROWS)))
        hidden.rename(self._source / f"{file}.json")

    def run(self, write: Callable[[DataFrame, int], None]) -> None:
        """Run to the end of what is there."""
        frame = self._spark.readStream.schema("value string").option("maxFilesPerTrigger", "1").json(str(self._source))
        writer = frame.writeStream.option("checkpointLocation", str(self._checkpoint)).foreachBatch(write)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def forget_last_commit(self) -> None:
        """Make the checkpoint look as if the driver had died before it noted its last batch as done."""
        commits = self._checkpoint / "commits"
        newest = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        newest.unlink()
        (commits / f".{newest.name}.crc").unlink(missing_ok=True)


def values(log: txn_source.Log, topic: str) -> list[str]:
    return sorted(
        row["value"].decode() for row in log.scan(topic, "read_uncommitted", ["value"]).read_all().to_pylist()
    )


def test_writes_in_foreach_batch_count_once(spark: SparkSession, log, root: Path, tmp_path: Path) -> None:
    """Write each batch to two topics; die between the two writes, and before Spark has noted a batch: when the query
    goes on, each row is there once in either topic. Without a version the rows of a repeated batch are there twice."""
    for topic in ("orders", "bills", "plain"):
        log.create_topic(topic)
    query = Query(spark, tmp_path)
    die = {1}

    def append(frame: DataFrame, topic: str, **options: str) -> None:
        frame.write.format("txnlog").options(topic=topic, **options).mode("append").save(str(root))

    def write(frame: DataFrame, batch_id: int) -> None:
        version = {"txnAppId": "copy", "txnVersion": str(batch_id)}
        append(frame, "orders", **version)
        append(frame, "plain")
        if batch_id in die:
            die.remove(batch_id)
            raise RuntimeError("on purpose")
        append(frame, "bills", **version)

    for file in range(2):
        query.put(file)
    with pytest.raises(Exception, match="on purpose"):
        query.run(write)
    query.run(write)
    query.forget_last_commit()
    query.run(write)
    expected = sorted(f"{file}/{n}" for file in range(2) for n in range(ROWS))
    assert values(log, "orders") == values(log, "bills") == expected
    assert len(values(log, "plain")) == 4 * ROWS


# Without Spark


def writer(root: Path, schema: StructType = VALUE, **options: str) -> BatchWriter:
    """Plan a batch write as Spark has it done."""
    return TxnLogDataSource(CaseInsensitiveDict({"path": str(root), **options})).writer(schema, overwrite=False)


def write(root: Path, version: int, *texts: str) -> None:
    """Carry out a write with one task, that has no rows if there are no texts."""
    job = writer(root, topic="orders", txnAppId="job", txnVersion=str(version))
    job.commit([job.write(iter([pa.record_batch({"value": list(texts)})] if texts else []))])


def test_version_is_skipped_when_it_comes_again(log, root: Path) -> None:
    """Write versions 0, 0, 2 and 3; other rows of as many, of the same lengths, are no repetition, and are refused, as
    a query would write whose checkpoint was deleted; so is a version below the last one."""
    log.create_topic("orders")
    for version in (0, 0, 2):
        write(root, version, f"a{version}", f"b{version}")
    for version, texts in ((2, ("a9", "b9")), (0, ("a9", "b9")), (1, ("a1", "b1"))):
        with pytest.raises(txn_source.BatchRepeatedError, match="txnAppId"):
            write(root, version, *texts)
    write(root, 2, "b2", "a2")  # the same in another order
    write(root, 3, "a3")
    assert values(log, "orders") == ["a0", "a2", "a3", "b0", "b2"]


def test_version_without_rows_is_one(log, root: Path) -> None:
    """Write a version without rows, and repeat it without and with some, which can't be a repetition."""
    log.create_topic("orders")
    write(root, 1)
    write(root, 1)
    with pytest.raises(txn_source.BatchRepeatedError, match="with 0 rows, and comes again with 1"):
        write(root, 1, "late")
    write(root, 2, "next")
    assert values(log, "orders") == ["next"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"txnAppId": "job"}, ("one of 'txnAppId' and 'txnVersion'", "Give both")),
        ({"txnVersion": "1"}, ("one of 'txnAppId' and 'txnVersion'", "Give both")),
        ({"txnAppId": "", "txnVersion": "1"}, ("empty 'txnAppId'",)),
        *(
            ({"txnAppId": "job", "txnVersion": version}, (f"'{version}'", "'txnVersion'", "number from 0"))
            for version in ("", "-1", "1.5", "one", str(1 << 63), "²")
        ),
        ({"txnAppID": "job", "txnVersoin": "1"}, ("'txnversoin'", "'txnVersion'")),
    ],
)
def test_impossible_version_is_refused(log, root: Path, options, said) -> None:
    """Plan a write with half of the two options, and with what is no version."""
    log.create_topic("orders")
    with pytest.raises(txn_source.InvalidArgumentError) as caught:
        writer(root, topic="orders", **options)
    assert [text for text in said if text.lower() not in str(caught.value).lower()] == [], str(caught.value)


def test_versions_are_for_batch_writes_only(log, root: Path) -> None:
    """Give them to a stream's write, and to a read."""
    log.create_topic("orders")
    options = {"path": str(root), "topic": "orders", "txnAppId": "job", "txnVersion": "1"}
    source = TxnLogDataSource(CaseInsensitiveDict(options))
    with pytest.raises(txn_source.InvalidArgumentError, match=r"'txnAppId' is for batch writes only: a stream's"):
        source.streamWriter(VALUE, overwrite=False)
    with pytest.raises(txn_source.InvalidArgumentError, match="'txnAppId' is for batch writes only"):
        source.schema()


def test_largest_version_is_taken(log, root: Path) -> None:
    """Write the largest version that fits 63 bits, twice."""
    log.create_topic("orders")
    for _ in range(2):
        write(root, (1 << 63) - 1, "x")
    assert values(log, "orders") == ["x"]
