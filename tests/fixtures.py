"""Fixtures that all tests share. ``site`` and ``log`` run a test over the kinds of sites that its marks name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.log.sites import ManualClock, Site
from tests.log.subscribed import Streams
from txn_source import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.tiers.stores import S3Server
    from txn_source.metadata.store.database_url import DatabaseUrl


CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""How Spark keeps its checkpoints: by its usual way Hadoop starts ten processes for each file on a local disk."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores; its time zone is not UTC, so that times mixed up show."""
    from pyspark.sql import SparkSession

    from tests.log.objects import SURROUNDINGS
    from txn_source.spark.catalog.jar import jar

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        for name, value in SURROUNDINGS.items():  # workers have the surroundings of Java's process
            patch.setenv(name, value)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("txnlog tests")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "2g")
            .config("spark.jars", str(jar()))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "Asia/Kolkata")
            .config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINTS)
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser; tests that need one are skipped where there is none. Playwright allows one in a process."""
    from playwright.sync_api import expect

    from tests.console.browser import browsing

    executable = browsing.chromium()
    if executable is None:
        pytest.skip(browsing.NO_BROWSER)
    expect.set_options(timeout=60_000)  # machines are busy; nothing waits so long if all is well
    with browsing.started(executable) as browser:
        yield browser


@pytest.fixture(scope="session")
def s3() -> S3Server:
    """An S3 endpoint; tests use buckets or prefixes of their own."""
    from tests.log.objects import shared_server

    return shared_server()


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A fresh log, embedded unless the test's marks name other kinds, and the connections to it."""
    with Site(request.param, tmp_path / "log") as site:
        yield site


@pytest.fixture
def log(site: Site) -> Log:
    """A connection to the log of ``site``."""
    return site.connect()


@pytest.fixture
def clock() -> ManualClock:
    """The clock of ``clocked_site``."""
    return ManualClock()


@pytest.fixture
def clocked_site(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Site]:
    """Like ``site``, with a service that goes by ``clock``."""
    with Site(request.param, tmp_path / "log", clock) as site:
        yield site


@pytest.fixture
def clocked_log(clocked_site: Site) -> Log:
    """A connection to the log of ``clocked_site``."""
    return clocked_site.connect()


@pytest.fixture
def embedded_site(tmp_path: Path) -> Iterator[Site]:
    """A fresh embedded log, where the kind makes no difference or is the point."""
    with Site("embedded", tmp_path / "log") as site:
        yield site


@pytest.fixture
def remote_site(tmp_path: Path) -> Iterator[Site]:
    """A fresh log behind a server, where the network is the point."""
    with Site("remote", tmp_path / "log") as site:
        yield site


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """An empty database on PostgreSQL."""
    from tests.metadata.postgres import server

    made = server().new_database(with_tables=False)
    yield made
    server().drop_database(made)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients of this process say within a tenth of a second that no service is there, not after three seconds."""
    from txn_source.metadata.stub import grpc_transport

    monkeypatch.setattr(grpc_transport, "_ATTEMPTS", 2)


@pytest.fixture
def streams() -> Iterator[Streams]:
    """Opens streams, and closes them."""
    with closing(Streams([])) as streams:
        yield streams
