"""One Spark session for the tests that need one, and a fresh log for each test.

Most tests do with the source what Spark does, without it (``plain.py``); those that use ``spark`` share a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import txn_source
from tests.spark.plain import Frame, Query, logs_closed, write_table
from txn_source.client.target import Target
from txn_source.metadata.service.server import Server
from txn_source.model.errors import TxnLogError

MESSAGE_LINES_MAX = 8
"""Spark's own first and last line, two frames at most (with their marks), and the error itself."""


class Read(Protocol):
    """Reads the test's log with options."""

    def __call__(self, *, schema: str | StructType | None = None, **options: Any) -> Frame: ...


class SparkRead(Protocol):
    """The same in Spark."""

    def __call__(self, *, schema: str | StructType | None = None, **options: Any) -> DataFrame: ...


@pytest.fixture(autouse=True, scope="module")
def _transactions_that_last() -> Iterator[None]:
    """Let transactions stay open for as long as Spark takes, which may be more than a minute on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(txn_source.Log.begin_transaction, "__defaults__", (900.0,))
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the test's log lies."""
    return tmp_path / "log"


@pytest.fixture
def log(root: Path) -> Iterator[txn_source.Log]:
    """An empty log, open in the driver's process all the while."""
    with txn_source.connect(root) as log:
        yield log


@pytest.fixture
def server(root: Path, log: txn_source.Log) -> Iterator[Server]:
    """A metadata service over the test's log, on a free port of the loopback interface."""
    with Server(Target.of(root, None).service(), "127.0.0.1", 0) as server:
        yield server


@pytest.fixture(params=["auto", pytest.param("python", marks=pytest.mark.long)])
def spark_read(spark: SparkSession, root: Path, request: pytest.FixtureRequest) -> SparkRead:
    """A function that returns the DataFrame of a batch query, over the log's path unless an endpoint is given.

    Long runs have it read in both lanes.
    """

    def read(*, schema: str | StructType | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format("txnlog").options(**_over(root, {"lane": request.param} | options))
        return (reader if schema is None else reader.schema(schema)).load()

    return read


@pytest.fixture
def read(root: Path) -> Iterator[Read]:
    """The same without Spark, in this process: cheap enough for every option and value."""

    def read(*, schema: str | StructType | None = None, **options: Any) -> Frame:
        return Frame(_over(root, options), schema)

    with logs_closed():
        yield read


@pytest.fixture
def write(root: Path) -> Iterator[Callable[..., None]]:
    """A function that writes a table as a job of some tasks does, in this process."""
    with logs_closed():
        yield lambda table, tasks=1, **options: write_table(table, tasks, _over(root, options))


@pytest.fixture
def spark_write(root: Path) -> Callable[..., None]:
    """The same with a DataFrame, in Spark."""

    def write(frame: DataFrame, mode: str = "append", **options: str) -> None:
        frame.write.format("txnlog").options(**_over(root, options)).mode(mode).save()

    return write


@pytest.fixture
def plan(read: Read) -> Callable[..., list[InputPartition]]:
    """A function that returns the tasks of a batch query, planned in this process."""
    return lambda **options: read(**options).tasks()


@pytest.fixture
def query(root: Path, tmp_path: Path) -> Iterator[Query]:
    """A streaming query in this process, over the test's log from its start unless options say something else."""
    query = Query(tmp_path / "checkpoint", {"path": str(root), "startingOffsets": "earliest"})
    with logs_closed():
        yield query
        if query.reader is not None:
            query.reader.stop()


def _over(root: Path, options: dict[str, Any]) -> dict[str, Any]:
    return options if "path" in options or "endpoint" in options else {"path": str(root), **options}


@pytest.fixture
def values() -> Callable[[DataFrame | Frame], list[str]]:
    """A function that returns the messages of a raw topic as text, sorted."""
    return lambda frame: sorted(value.decode() for value in frame.toArrow()["value"].to_pylist())


@pytest.fixture
def ordered() -> Callable[[DataFrame | Frame | pa.RecordBatchReader], list[dict[str, Any]]]:
    """A function that returns rows, however they are read, in the order of topic, partition and position."""
    key = ("__topic", "__partition", "__ledger_id", "__entry_id", "__batch_index")

    def ordered(source: DataFrame | Frame | pa.RecordBatchReader) -> list[dict[str, Any]]:
        table = source.read_all() if isinstance(source, pa.RecordBatchReader) else source.toArrow()
        return sorted(table.to_pylist(), key=lambda row: [row[name] for name in key if name in row])

    return ordered


@pytest.fixture
def refusal() -> Callable[[str, Callable[[], Any]], str]:
    """A function that makes a query which must be refused, and returns the one line that says so.

    What Spark shows must be short: the error with its code, and no more than two lines of where it came from.
    """

    def refusal(code: str, query: Callable[[], Any]) -> str:
        with pytest.raises((PySparkException, TxnLogError)) as caught:
            query()
        shown = str(caught.value)
        lines = [line for line in shown.splitlines() if line.strip()]
        told = [line for line in lines if "[TXNLOG_" in line]
        assert len(told) == 1, shown
        assert f"[TXNLOG_{code}] " in told[0], shown
        assert len(lines) <= MESSAGE_LINES_MAX, shown
        assert shown.count('File "') <= 2, shown
        return told[0][told[0].index("[TXNLOG_") :]

    return refusal
