"""Batch writes with ``txnAppId`` and ``txnVersion``: a write that is repeated, as in ``foreachBatch``, counts once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

import txn_source
from txn_source.spark.sink import BatchWriter
from txn_source.spark.source import TxnLogDataSource

VALUE = StructType([StructField("value", StringType())])


def values(log: txn_source.Log, topic: str) -> list[str]:
    return sorted(
        row["value"].decode() for row in log.scan(topic, "read_uncommitted", ["value"]).read_all().to_pylist()
    )


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
