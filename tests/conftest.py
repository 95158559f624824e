"""Fixtures that all tests share. ``site`` and ``log`` run a test over the embedded log and over a remote one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.log.sites import KINDS, ManualClock, Site
from txn_source import Log

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")
"""Of every Java that tests start: none lives long enough for its best compiler to pay."""
os.environ["PYTHONPATH"] = str(Path(__file__).with_name("start"))  # see there


_MEMORY = Path("/dev/shm")
_ENOUGH = 4 << 30
_CONTRACT = (
    *("consistent_cut", "deletion_and_trimming", "fencing", "offload", "producer"),
    *("shared_cuts", "subscription_seeks", "subscriptions", "timeouts", "transactions"),
    *("commit_batch", "idempotency"),
    *(f"{of}added_partitions" for of in ("", "consumers_of_", "producers_of_", "streams_of_")),
)
"""The test modules that run over PostgreSQL each time; the others, and all over two services, do with --long."""
_CONTRACT_OVER_OBJECTS = ("producer", "transactions", "whole_transactions", "offload", "consumers", "stream")
"""Those that run over an object store each time; the others with --long."""
_OWN_SPARK = ("tests/spark/test_pipeline_kills.py", "tests/spark/test_sink_crashes.py")
"""Their Spark runs in processes that are killed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes; left out unless --long is given")
    if "TMPDIR" not in os.environ and _has_room(_MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)  # of the workers and all children, too


def _has_room(folder: Path) -> bool:
    """True if a folder is there that can hold what tests write: in memory no test waits for the disk."""
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ENOUGH


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not _shares_spark(item.nodeid))  # the longest stretch of one process comes first
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long") or _is_long_on_postgres(item)]
        if long:
            config.hook.pytest_deselected(items=long)
            items[:] = [item for item in items if item not in long]


def _is_long_on_postgres(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    kinds = [parameters.get(name) for name in ("site", "clocked_site", "kind")]
    in_contract = item.path.stem in [f"test_{name}" for name in _CONTRACT]
    over_objects = item.path.stem in [f"test_{name}" for name in _CONTRACT_OVER_OBJECTS]
    return "services" in kinds or ("postgres" in kinds and not in_contract) or ("objects" in kinds and not over_objects)


class _OneSparkSession(LoadFileScheduling):  # type: ignore[misc]
    """Gives each process a file at a time, but all that share a Spark session to one: others need none."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if _shares_spark(nodeid) else super()._split_scope(nodeid)


def _shares_spark(nodeid: str) -> bool:
    return nodeid.startswith("tests/spark/") and not nodeid.startswith(_OWN_SPARK)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return _OneSparkSession(config, log) if config.getvalue("dist") == "loadfile" else None


# Logs


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A fresh log, embedded or remote, and the connections to it."""
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


@pytest.fixture(params=KINDS)
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
