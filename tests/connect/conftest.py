"""A Spark Connect session. A process that has a classic session can't have one, so pytest enters this folder only when
it is named (``make test-connect``)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txn_source
from txn_source.spark.catalog.jar import jar


@pytest.fixture(scope="session")
def served_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the log of the server's catalog ``served`` lies."""
    root = tmp_path_factory.mktemp("served") / "log"
    txn_source.connect(root).close()
    return root


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, served_root: Path) -> Iterator[SparkSession]:
    """A session of a client, over gRPC to a server that is started with it and ends with it.

    A client may set the options of its session only, and is warned about others; the server takes these elsewhere.
    """
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": str(jar()),
        "spark.sql.catalog.served": "io.txnlog.spark.TxnLogCatalog",
        "spark.sql.catalog.served.path": str(served_root),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join([*_conf(settings), "pyspark-shell"]))
        session = SparkSession.builder.remote("local[2]").getOrCreate()
        yield session
        session.stop()


def _conf(settings: dict[str, str]) -> Iterator[str]:
    for name, value in settings.items():
        yield from ("--conf", f"{name}={value}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the test's log lies."""
    return tmp_path / "log"


@pytest.fixture
def log(root: Path) -> Iterator[txn_source.Log]:
    """An empty log."""
    with txn_source.connect(root) as log:
        yield log
