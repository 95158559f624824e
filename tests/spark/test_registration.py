"""How Spark finds the source, and how it reaches the log: by a path, or through a service."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txn_source
from txn_source.metadata.service.server import Server
from txn_source.spark.source import TxnLogDataSource


@pytest.fixture
def orders(log: txn_source.Log) -> txn_source.Log:
    """A log whose topic ``orders`` has the messages 0 to 5 on two partitions."""
    log.create_topic("orders", partitions=2)
    with log.producer("orders") as producer:
        for number in range(6):
            producer.send(str(number), partition=number % 2)
    return log


def test_format_is_found_without_registration(spark: SparkSession, orders: txn_source.Log, root: Path) -> None:
    """Read with a session of its own registry, in which nobody has registered anything."""
    fresh = spark.newSession()
    frame = fresh.read.format("txnlog").option("topic", "orders").load(str(root))
    assert sorted(row.value for row in frame.collect()) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_registering_the_source_itself_does_no_harm(spark: SparkSession, orders: txn_source.Log, root: Path) -> None:
    """Register what Spark also finds by itself, as the documentation of Spark says to, and read."""
    fresh = spark.newSession()
    fresh.dataSource.register(TxnLogDataSource)
    assert fresh.read.format("txnlog").option("topic", "orders").load(str(root)).count() == 6


def test_endpoint_gives_what_the_path_gives(orders, server: Server, read, ordered) -> None:
    """Read one topic over the root and over a real server on the loopback interface; compare all columns."""
    over_path = ordered(read(topic="orders", metadataColumns="all"))
    over_endpoint = ordered(read(topic="orders", metadataColumns="all", endpoint=server.address))
    assert len(over_path) == 6
    assert over_endpoint == over_path


def test_path_may_be_a_file_uri(orders, root: Path, read) -> None:
    """Read by ``file:`` URIs, the form that Spark's own sources and tables hand on."""
    assert read(topic="orders", path=f"file://{root}").count() == 6
    assert read(topic="orders", path=f"file:{root}").count() == 6


def test_log_made_anew_at_a_path_is_read_anew(root: Path, read, values) -> None:
    """Delete a root that the process has open, make another log there, and read: nothing old may appear."""
    for message in ("old", "new", "newest"):
        with txn_source.connect(root) as log:
            log.create_topic("orders")
            with log.producer("orders") as producer:
                producer.send(message)
            assert values(read(topic="orders")) == [message]
        shutil.rmtree(root)


def test_reading_leaves_nothing_in_the_root(orders: txn_source.Log, root: Path, read) -> None:
    """List the root's files before and after reads at both levels, one of which is refused."""

    def content() -> dict[str, int]:
        return {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}

    before = content()
    assert len(before) >= 4, "a marker, the database and two segments"
    read(topic="orders").collect()
    read(topic="orders", isolationLevel="read_uncommitted", metadataColumns="all").collect()
    with pytest.raises(Exception, match="TOPIC_NOT_FOUND"):
        read(topic="order")
    assert content() == before


def test_jobs_are_reached_without_an_import_of_their_own() -> None:
    """Import the package alone: it has ``spark.create_tables``, and loads PySpark only when that is used."""
    code = (
        "import sys, txn_source; assert 'pyspark' not in sys.modules;"
        " print(callable(txn_source.spark.create_tables), 'pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
