"""Fixtures that all tests share. ``site`` and ``log`` run a test over the embedded log and over a remote one."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests import java_classes
from tests.log.sites import KINDS, ManualClock, Site
from txn_source import Log

if TYPE_CHECKING:
    from txn_source.metadata.store.database_url import DatabaseUrl

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_SUBMIT_OPTS", java_classes.SHORT_LIVED)
os.environ["PYTHONPATH"] = str(Path(__file__).with_name("start"))  # see there

_TIMELESS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("repeatable", derandomize=True, **_TIMELESS)
settings.register_profile("exploring", **_TIMELESS)
settings.load_profile("repeatable")  # before test modules are imported, whose own settings are changes of it

_TESTS = Path(__file__).parent
_APART = ("connect", "cluster")
"""Folders of tests that a run of all leaves out (pyproject.toml)."""
_MEMORY = Path("/dev/shm")
_ENOUGH = 4 << 30
_CONTRACT = (
    *("consistent_cut", "deletion_and_trimming", "fencing", "offload", "producer"),
    *("shared_cuts", "subscription_seeks", "subscriptions", "timeouts", "transactions"),
    *("commit_batch", "idempotency"),
    *(f"{of}added_partitions" for of in ("", "consumers_of_", "producers_of_", "streams_of_")),
)
"""The test modules that run over PostgreSQL each time; the others, and all over two services, do with --long."""
_OVER_OBJECTS = ("whole_transactions",)
"""The test modules that run over an object store each time, and with --long also these."""
_OVER_COPIES = ("whole_transactions", "isolation_vectors", "transactions")
"""The same over a log with two copies of each segment."""
_LONG_OVER_OBJECTS = (
    *(
        "transactions",
        "offload",
        "producer",
        "garbage",
        "deletion_and_trimming",
        "read_fallback",
        "round_trip",
        "topics",
        "scan",
    ),
    *("disturbed_producers", "refused_writes", "dropped_producers", "unanswered_commits", "consumers"),
)
_OF_FILES = (
    "dropped_producers_take_their_threads_and_files_with_them",
    "age_goes_by_the_clock_that_is_given",
    "age_of_garbage_can_be_chosen",
    "block_whose_commit_is_refused_leaves_no_open_transaction",
    "crash_between_condemning_and_deleting_is_mended_by_the_next_collection",
    "damaged_segment_is_named_with_entry_and_checksums",
    "deleted_topic_takes_its_folder_along",
    "each_loss_is_told",
    "files_of_a_deleted_topic_that_were_left_are_garbage",
    "garbage_collection_leaves_what_tiers_need",
    "hot_copies_are_deleted_after_more_than_the_lag",
    "hot_copy_stays_if_the_object_cannot_be_read",
    "latest_stays_when_everything_is_trimmed",
    "ledgers_wholly_before_a_position_are_trimmed",
    "only_copy_is_not_deleted",
    "only_old_files_that_nothing_refers_to_are_removed",
    "open_ledger_and_empty_topic_are_not_offloaded",
    "producer_goes_on_when_its_segments_are_deleted",
    "refused_write_in_the_background_is_reported_by_the_next_call",
    "refused_write_is_reported_and_nothing_of_it_is_stored",
    "transaction_that_lost_messages_can_not_be_committed",
    "unreadable_segment_folder_takes_only_what_went_there",
    "what_a_producer_has_not_registered_is_garbage_only_when_it_is_old",
)
"""Tests of these that look into segments' files, which objects aren't."""
_OWN_SPARK = ("tests/spark/test_pipeline_kills.py", "tests/spark/test_sink_crashes.py")
"""Their Spark runs in processes that are killed."""
_LONGEST = (
    "tests/examples/test_examples.py",
    "tests/cli/test_migrate.py",
    "tests/log/test_forks.py",
    "tests/log/test_processes.py",
    "tests/metadata/test_postgres_kills.py",
    "tests/spark/test_pipeline_kills.py",
    "tests/spark/test_sink_crashes.py",
)
"""Files with few tests that take half a minute and more: begun late, one of them runs on when all others are done."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes; left out unless --long is given")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # children have it, whom tests interrupt
    if config.getoption("--long") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("exploring")
    if "TMPDIR" not in os.environ and _has_room(_MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)  # of the workers and all children, too
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and "PYTEST_XDIST_WORKER" not in os.environ
    if whole and (making := java_classes.begin()):
        config.add_cleanup(making.wait)


def _has_room(folder: Path) -> bool:
    """True if a folder is there that can hold what tests write: in memory no test waits for the disk."""
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ENOUGH


def pytest_collection(session: pytest.Session) -> None:
    """Let the workers of a run of all share the rewriting of assertions, a third of what collection takes: each imports
    the test modules from a place of its own on, and finds those rewritten at which the others have begun.
    """
    gc.disable()  # until all is collected: hardly anything of it is garbage
    worker = getattr(session.config, "workerinput", None)
    if worker is None or [Path(arg).resolve() for arg in session.config.args] != [_TESTS]:
        return
    modules = [path for path in sorted(_TESTS.rglob("test_*.py")) if path.parent.name not in _APART]
    begin = len(modules) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in (*modules[begin:], *modules[:begin]):
        with suppress(Exception, pytest.skip.Exception):  # told when it is collected
            importlib.import_module(".".join(path.relative_to(_TESTS.parent).with_suffix("").parts))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what was collected out of all later collections of garbage: it stays to the end."""
    gc.freeze()
    gc.enable()
    session.config.add_cleanup(gc.unfreeze)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = Counter(item.path for item in items)

    def place(item: pytest.Item) -> tuple[bool, bool, int]:
        if _shares_spark(item.nodeid):
            return False, False, 0  # the longest stretch of one process comes first
        return True, not item.nodeid.startswith(_LONGEST), -tests[item.path]

    items.sort(key=place)
    long = bool(config.getoption("--long"))
    left_out: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        later = not long and (item.get_closest_marker("long") or _is_long_on_postgres(item))
        left_out[bool(later or _is_of_files(item, long=long))].append(item)
    config.hook.pytest_deselected(items=left_out[True])
    items[:] = left_out[False]


def _is_of_files(item: pytest.Item, *, long: bool) -> bool:
    """True for a test over an object store that isn't to run there."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    kinds = [parameters.get(name) for name in ("site", "clocked_site", "kind")]
    if "objects" not in kinds and "copies" not in kinds:
        return False
    always = _OVER_OBJECTS if "objects" in kinds else _OVER_COPIES
    modules = [f"test_{name}" for name in (*always, *(_LONG_OVER_OBJECTS if long else ()))]
    name = item.name.partition("[")[0]
    return item.path.stem not in modules or name in [f"test_{name}" for name in _OF_FILES]


def _is_long_on_postgres(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    kinds = [parameters.get(name) for name in ("site", "clocked_site", "kind")]
    in_contract = item.path.stem in [f"test_{name}" for name in _CONTRACT]
    return "services" in kinds or ("postgres" in kinds and not in_contract)


class _OneSparkSession(LoadFileScheduling):  # type: ignore[misc]
    """Gives each process a file at a time, but all that share a Spark session to one: others need none."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if _shares_spark(nodeid) else super()._split_scope(nodeid)


def _shares_spark(nodeid: str) -> bool:
    return nodeid.startswith("tests/spark/") and not nodeid.startswith(_OWN_SPARK)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # by numbers of tests alone
    return _OneSparkSession(config, log)


# Logs


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


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """An empty database on PostgreSQL."""
    from tests.metadata.postgres import server

    made = server().new_database(with_tables=False)
    yield made
    server().drop_database(made)
