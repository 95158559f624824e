"""The command in this process, for most tests, and as a real process where signals, pipes and ports matter."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import txn_source
from tests.cli.commands import kept
from txn_source.cli.app import app

COMMAND = [sys.executable, "-W", "error", "-m", "txn_source.cli"]

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[bytes]]
Served = Callable[..., None]


@pytest.fixture(autouse=True, scope="session")
def _commands_are_built_once() -> Iterator[None]:
    with kept():
        yield


@pytest.fixture(autouse=True)
def _no_log_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TXNLOG_ROOT", "TXNLOG_ENDPOINT", "TXNLOG_METADATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that doesn't exist yet."""
    return tmp_path / "log"


@pytest.fixture
def log(root: Path) -> Iterator[txn_source.Log]:
    """A new log at the root."""
    with txn_source.connect(root) as connected:
        yield connected


@pytest.fixture
def bare() -> Run:
    """Runs ``txnlog`` with the given arguments and nothing else."""

    def run(*arguments: object, **options: Any) -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False, **options)

    return run


@pytest.fixture
def txnlog(bare: Run, root: Path) -> Run:
    """Runs ``txnlog --root ROOT`` with the given arguments."""
    return lambda *arguments, **options: bare("--root", root, *arguments, **options)


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts ``txnlog`` as a process with pipes, in which every warning is an error; what is left of it is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | options
        started.append(subprocess.Popen([*COMMAND, *(str(a) for a in arguments)], **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def shown(bare: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """Runs a command that fails, and returns all that its process would show, with tracebacks."""
    monkeypatch.setenv("TXNLOG_TRACEBACK", "1")

    def run(*arguments: object) -> str:
        try:
            result = bare(*arguments)
        except Exception as error:
            return caplog.text + "".join(traceback.format_exception(error))
        assert result.exit_code
        return caplog.text + str(result.output)

    return run


@pytest.fixture(autouse=True)
def _levels_of_loggers() -> Iterator[None]:
    """Restore what ``txnlog serve`` sets for its process, which is the tests' here."""
    loggers = [logging.getLogger(name) for name in ("txn_source.client.target", "botocore")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture
def served(bare: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Served:
    """Runs ``txnlog serve`` in this process, without maintenance, while a function works with its address."""

    def serve(*arguments: object, during: Callable[[str], object]) -> None:
        failed: list[BaseException] = []

        def work(_: object) -> signal.Signals:
            try:
                [address] = [m.split()[2].rstrip(",") for m in caplog.messages if m.startswith("serving on ")]
                during(address)
            except BaseException as error:
                failed.append(error)
            return signal.SIGTERM

        caplog.clear()
        caplog.set_level(logging.INFO, "txnlog")
        with monkeypatch.context() as patch:
            patch.setattr(signal, "sigwait", work)
            done = bare("serve", *arguments, "--port", 0, "--maintenance-interval", 0)
        for error in failed:
            raise error
        assert done.exit_code == 0, done.output

    return serve
