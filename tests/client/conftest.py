"""Tests of what a client is made of need a log of no particular kind: one in memory, as users' own tests do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from txn_source import Log, connect


@pytest.fixture
def log() -> Iterator[Log]:
    """A log in memory."""
    with connect("memory:") as log:
        yield log
