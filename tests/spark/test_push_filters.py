"""Why the source has no ``pushFilters``: on Spark 4.3 a pushed filter leaks into other scans of one DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, GreaterThan, InputPartition
from pyspark.sql.types import StructType

import txn_source
from txn_source.spark.batch import BatchReader

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with filters pushed down to Python sources that take them."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.set(PUSHDOWN, before)


def pushing_source() -> type[DataSource]:
    """Return a source of the numbers 0 to 5 that takes ``id > n`` as Spark's documentation shows.

    The classes are made in here so that Spark pickles them whole: its workers can't import this module.
    """

    class Reader(DataSourceReader):
        def __init__(self) -> None:
            self.above = -1

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
            for wanted in filters:
                if isinstance(wanted, GreaterThan) and wanted.attribute == ("id",):
                    self.above = wanted.value
                else:
                    yield wanted

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(self.above)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            return ((number,) for number in range(partition.value + 1, 6))

    class Pushing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushing"

        def schema(self) -> str:
            return "id int"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    return Pushing


@pytest.mark.long
def test_pushed_filter_leaks_into_the_next_query(pushdown: SparkSession) -> None:
    """Count a filtered frame and then the frame itself with a source that takes filters: rows are missing.

    On a Spark in which the counts are right, the reason to do without is gone, and the test says so by skipping.
    """
    pushdown.dataSource.register(pushing_source())
    frame = pushdown.read.format("pushing").load()
    assert frame.filter("id > 2").count() == 3
    leaked = frame.count()
    if leaked == 6 and not pyspark.__version__.startswith("4.3.0"):
        pytest.skip(f"Spark {pyspark.__version__} keeps pushed filters apart: pushFilters could be used there")
    assert leaked == 3


def test_source_takes_no_filters() -> None:
    """Look at the reader's class: Spark refuses a reader that defines the method where push-down is off, too."""
    assert BatchReader.pushFilters is DataSourceReader.pushFilters


@pytest.mark.long
def test_counts_are_right_with_push_down_enabled(log: txn_source.Log, pushdown: SparkSession, spark_read) -> None:
    """Count a filtered frame, the frame itself, another filter and a union of both, with push-down on."""
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for number in range(6):
            producer.send(str(number))
            producer.flush()
    frame = spark_read(topic="orders")
    filtered = frame.filter("__entry_id > 2")
    assert filtered.count() == 3
    assert frame.count() == 6
    assert frame.filter("__entry_id > 4").count() == 1
    assert filtered.union(frame).count() == 9
