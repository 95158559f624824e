"""A new log and its console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import _no_log_in_the_environment, bare, spawn
from tests.console.asked import Asked
from txn_source.console import browsing

__all__ = ["_no_log_in_the_environment", "bare", "spawn"]


@pytest.fixture(autouse=True)
def _patient_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request read as long as it takes: pages that are cut short where a machine is busy are no fault."""
    monkeypatch.setattr(browsing, "READ_S", 60.0)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    """The console of an empty log."""
    with Asked(tmp_path / "log") as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """The console of a log with a topic, for all tests of a module that change nothing."""
    with Asked(tmp_path_factory.mktemp("shared") / "log") as made:
        made.log.create_topic("shared")
        yield made
