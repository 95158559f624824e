"""Tests of the client's parts use a log in memory, as users' tests do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from txn_source import Log, connect


@pytest.fixture
def log() -> Iterator[Log]:
    """A log in memory."""
    with connect("memory:") as log:
        yield log
