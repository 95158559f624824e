"""How much of a test runs each time; the rest runs with ``--all``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
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


def for_each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test's body with each case, one after the other, over the same fixtures: for cases that leave these as
    they were, as refusals and values of functions do. Arguments are like those of ``parametrize``."""
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    alone, given = isinstance(names, str) and len(wanted) == 1, list(cases)
    assert given

    def with_each(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            for case in given:
                try:
                    test(**fixtures, **dict(zip(wanted, (case,) if alone else case, strict=True)))
                except BaseException as error:
                    error.add_note(f"The case was {case!r:.500}.")
                    raise

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in wanted]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return with_each
