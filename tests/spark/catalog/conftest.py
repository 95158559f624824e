"""One log behind one catalog for all tests of reads through it: each makes the topics that it needs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import txn_source
from txn_source.model.position import PositionRange
from txn_source.model.topic_name import TopicName

CATALOG = "reads"
_NUMBERS = itertools.count()


class Bank:
    """The log, its catalog, and topics in it."""

    def __init__(self, spark: SparkSession, log: txn_source.Log) -> None:
        self.spark = spark
        self.log = log
        self.root = log.root

    def topic(self, schema: pa.Schema, partitions: int = 1) -> str:
        """Make a topic and return its name, which is new."""
        name = f"t{next(_NUMBERS)}"
        self.log.create_topic(name, partitions, schema)
        return name

    def send(self, topic: str, table: pa.Table, *, partition: int = 0, txn: Any = None) -> None:
        """Write rows as one batch."""
        with self.log.producer(topic) as producer:
            producer.send_batch(table.cast(self.log.schema(topic)), partition=partition, txn=txn)

    def segments(self, topic: str) -> list[Path]:
        """Return the files that have a topic's messages."""
        stub = self.log.access.metadata
        [view] = stub.get_view([TopicName.parse(topic)]).topics
        paths = {
            path
            for partition in view.partitions
            for page in stub.list_entries(
                partition.partition_id, PositionRange(partition.bounds.log_start, partition.bounds.log_end)
            )
            for path in page.segments.values()
        }
        return [Path(self.root, path) for path in paths]

    def sql(self, text: str) -> DataFrame:
        """Run SQL in which names in braces stand for topics: ``SELECT * FROM {t1}``."""
        return self.spark.sql(re.sub(r"\{(t\d+)\}", rf"{CATALOG}.public.\1", text))

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run SQL and return its rows, sorted."""
        return sorted((tuple(row) for row in self.sql(text).collect()), key=repr)

    def table(self, topic: str) -> DataFrame:
        """Return a topic as a table."""
        return self.spark.table(f"{CATALOG}.public.{topic}")


@pytest.fixture(scope="session")
def bank(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """A log behind the catalog ``reads``."""
    root = tmp_path_factory.mktemp("bank") / "log"
    with txn_source.connect(root) as log:
        spark.conf.set(f"spark.sql.catalog.{CATALOG}", "io.txnlog.spark.TxnLogCatalog")
        spark.conf.set(f"spark.sql.catalog.{CATALOG}.path", str(root))
        yield Bank(spark, log)


@pytest.fixture
def numbers(bank: Bank) -> str:
    """A topic with columns ``id`` and ``name`` and a hundred rows in two partitions."""
    topic = bank.topic(pa.schema([("id", pa.int64()), ("name", pa.string())]), 2)
    for partition in range(2):
        ids = list(range(partition * 50, partition * 50 + 50))
        bank.send(topic, pa.table({"id": ids, "name": [f"n{i % 10}" for i in ids]}), partition=partition)
    return topic


@pytest.fixture
def scan_text() -> Callable[[DataFrame], str]:
    """A function that returns what a query's plan says of its only scan."""

    def scan_text(frame: DataFrame) -> str:
        plan = frame._jdf.queryExecution().executedPlan().toString()
        [line] = [line for line in plan.splitlines() if "BatchScan" in line]
        return line[line.index("txnlog ") :].removesuffix(" RuntimeFilters: []")

    return scan_text


@pytest.fixture
def places(pytestconfig: pytest.Config) -> int:
    """At how many places a file is damaged."""
    return 200 if pytestconfig.getoption("--all") else 4
