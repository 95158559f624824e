"""Doing a thing for each of many items, several at once: for calls that mostly wait for a store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
AT_ONCE = 16
"""So many items are begun before the first one's result is taken."""


def each(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield a function's results, in the order of the items; what it raises is raised in its item's turn.

    Results wait for their turn in memory, so they should be small.
    """
    if len(items) <= 1:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor  # most plans need no thread

    threads = ThreadPoolExecutor(min(AT_ONCE, len(items)), "txnlog-window")
    try:
        left = iter(items)
        begun = deque(threads.submit(function, item) for item in islice(left, AT_ONCE))
        while begun:
            yield begun.popleft().result()
            begun.extend(threads.submit(function, item) for item in islice(left, 1))
    finally:
        threads.shutdown(cancel_futures=True)
