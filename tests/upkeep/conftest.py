"""Fixtures of the tests of upkeep."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a log may be made."""
    return tmp_path / "log"
