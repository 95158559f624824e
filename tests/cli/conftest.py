"""The command in this process, for most tests, and as a real process where signals, pipes and ports matter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import txn_source
from txn_source.cli.app import app

COMMAND = [sys.executable, "-W", "error", "-m", "txn_source.cli"]

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[bytes]]


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
