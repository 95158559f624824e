"""A new log and its console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import _no_log_in_the_environment, bare, spawn
from tests.console.asked import Asked

__all__ = ["_no_log_in_the_environment", "bare", "spawn"]


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
