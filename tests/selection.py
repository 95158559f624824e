"""How much of a test runs each time; the rest runs with ``--all``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def mostly_long(values: Iterable[Any], *each_time: Any) -> list[Any]:
    """Return parameters for ``parametrize``: ``each_time`` as they are, the others marked ``long``.

    A tuple is the values of several arguments. Each of ``each_time`` must be one of ``values``.
    """
    values = list(values)
    assert all(value in values for value in each_time)
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=() if value in each_time else pytest.mark.long
        )
        for value in values
    ]


def examples(each_time: int) -> int:
    """Return how many examples a property is tried on: twenty times as many with ``--all``."""
    return max(3, each_time // 2) if settings.default.derandomize else 10 * each_time
