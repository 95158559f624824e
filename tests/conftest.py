"""Which tests run, in which order and process, and over which kinds of sites."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.log.sites import EVERYWHERE

pytest_plugins = ("tests.fixtures",)

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# Short-lived; and a port of Spark's may have been a service's before, which a client still calls: files can't be.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Dspark.python.unix.domain.socket.enabled=true"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _JAVA)
os.environ["PYTHONPATH"] = str(Path(__file__).with_name("start"))  # see there

_TIMELESS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("repeatable", derandomize=True, max_examples=30, **_TIMELESS)
settings.register_profile("exploring", **_TIMELESS)
settings.load_profile("repeatable")  # before test modules are imported, whose own settings are changes of it

_TESTS = Path(__file__).parent
_APART = ("connect", "cluster")
"""Folders of tests that a run of all leaves out (pyproject.toml)."""
_KEPT = ("spark", "s3", "browser")
"""Fixtures that start a process for all their tests: what takes longest first."""
_MEMORY = Path("/dev/shm")
_ENOUGH = 4 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked long, too, and over all kinds of sites")


def pytest_configure(config: pytest.Config) -> None:
    # Children inherit what is ignored: SIGINT by what a shell runs in the background, SIGHUP below nohup.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    if config.getoption("--all") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("exploring")
    if "TMPDIR" not in os.environ and _has_room(_MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)  # of the workers and all children, too


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over each kind of site that its marks name: the embedded one, unless they name others."""
    for name in ("site", "clocked_site"):
        if name in metafunc.fixturenames:
            metafunc.parametrize(
                name, _kinds(metafunc.definition, everything=metafunc.config.getoption("--all")), indirect=True
            )


def _kinds(test: pytest.Item, *, everything: bool) -> list[str]:
    named = test.get_closest_marker("kinds")
    kinds = list(named.args if named else ("embedded",))
    if everything:
        kinds += [*EVERYWHERE, *(kind for mark in test.iter_markers("also") for kind in mark.args)]
    without_files = {"objects", "copies"} if test.get_closest_marker("files") else set()
    return [kind for kind in dict.fromkeys(kinds) if kind not in without_files]


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist, which reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep tests that share what is costly in one process, begin with what takes longest, leave out what is long."""
    order = {}
    for item in items:
        kept = next((name for name in _KEPT if name in getattr(item, "fixturenames", ())), None)
        if kept is not None:
            item.add_marker(pytest.mark.xdist_group(kept))
        order[item] = len(_KEPT) if kept is None else _KEPT.index(kept)
    items.sort(key=order.__getitem__)
    if not config.getoption("--all"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say after everything else how many tests want a browser, and how to get one."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        without = sum("no browser: " in str(report.longrepr) for report in reporter.stats.get("skipped", ()))
        if without:
            reporter.write_line(
                f"{without} tests of the console were skipped without a browser; `make browser` installs one."
            )
