"""Reading many things one after the other, of a store several at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from txn_source.process.calls import begun

T = TypeVar("T")
R = TypeVar("R")
_AT_ONCE = 16
_AT_ONCE_BYTES = 64 << 20


def read_ahead(
    these: Iterable[T], read: Callable[[T], R], *, is_remote: bool, size: Callable[[T], int] = lambda _: 0
) -> Iterator[tuple[T, R]]:
    """Yield each thing with what was read of it, in their order; what a read raises is raised in its place.

    Args:
        these: what is to be read.
        read: reads one.
        is_remote: several are read at once.
        size: how many bytes one has; so many are under way that they fit into memory.
    """
    if not is_remote:
        for each in these:
            yield each, read(each)
        return
    under_way: deque[tuple[T, Callable[[], R], int]] = deque()
    total = 0
    for each in these:
        mine = size(each)
        while under_way and (len(under_way) >= _AT_ONCE or total + mine > _AT_ONCE_BYTES):
            first, result, its = under_way.popleft()
            total -= its
            yield first, result()
        under_way.append((each, begun(lambda it=each: read(it)), mine))  # type: ignore[misc]
        total += mine
    for first, result, _ in under_way:
        yield first, result()
