"""``txn_source.spark.read``: Spark's Parquet reader takes the tiered ledgers, the Python source the rest, and the rows
are those of the Python source alone, whatever the session is set to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import txn_source
from tests.log.tiers import objects, write_ledgers
from txn_source import InvalidArgumentError, Log, TopicNotFoundError
from txn_source.spark.native_read import unreadable
from txn_source.storage import tiered

LEVELS = ("read_committed", "read_uncommitted")
Native = Callable[..., DataFrame]


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())


@pytest.fixture
def native(spark: SparkSession, root: Path) -> Native:
    """A function that reads the test's log natively."""

    def native(topic: Any = "orders", **options: Any) -> DataFrame:
        return txn_source.spark.read(spark, topic, path=root, **options)

    return native


@pytest.fixture
def offloaded(log: Log) -> Log:
    """A log with three offloaded ledgers and an open one; aborted messages in each of the three."""
    log.create_topic("orders", partitions=2)
    write_ledgers(log)
    log.offload("orders")
    return log


def files(frame: DataFrame) -> list[str]:
    """Return the objects that Spark's Parquet reader takes."""
    return sorted(Path(uri).name for uri in frame.inputFiles())


def names(log: Log) -> list[str]:
    return sorted(path.name for path in objects(log.root))


@pytest.mark.parametrize("level", ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.long)])
def test_rows_are_those_of_the_source(offloaded, native, spark_read, ordered, level) -> None:
    """Read all columns at both levels, with and without hot copies."""
    options = {"isolationLevel": level, "metadataColumns": "all"}
    for _ in range(2):
        expected = spark_read(topic="orders", **options)
        frame = native(**options)
        assert ordered(frame) == ordered(expected)
        assert frame.dtypes == expected.dtypes
        assert all(field.nullable for field in frame.schema.fields)
        assert files(frame) == (names(offloaded) if level == LEVELS[0] else [])
        offloaded.delete_hot("orders")
    assert native(**options, nativeTieredReads=False).inputFiles() == []
    assert ordered(native(**options, nativeTieredReads="false")) == ordered(expected)


def test_columns_that_differ_in_case_are_left() -> None:
    """Take topics that Spark can't tell the columns of apart, at any depth."""
    number = pa.int32()
    for fields in ([("a", number), ("A", number)], [("s", pa.struct([("x", number), ("X", number)]))]):
        schema = pa.schema(fields)
        assert unreadable(schema, schema) == "columns differ in the case of letters only"


def test_bad_input_is_refused_in_the_logs_own_words(offloaded, native) -> None:
    """Name a topic, a column, an option and a value that aren't there."""
    with pytest.raises(TopicNotFoundError):
        native("nowhere")
    for options in ({"isolation_level": "serializable"}, {"isolationLevl": "x"}, {"nativeTieredReads": "perhaps"}):
        with pytest.raises(InvalidArgumentError):
            native(**options)
    with pytest.raises(txn_source.SchemaMismatchError):
        native(columns=["nothing"])
