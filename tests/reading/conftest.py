"""The logs that plans and streams are tested over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reading.kinds import OwnHistory, history_of
from tests.reading.sources import History


@pytest.fixture(params=("own", "kafka", "pulsar"))
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    """A log of each kind in turn, with a message at each place."""
    made = history_of(request.param, tmp_path)
    yield made
    if isinstance(made, OwnHistory):
        made.site.__exit__()
