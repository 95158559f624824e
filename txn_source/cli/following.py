"""Printing batches of messages as they come."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from txn_source.cli.output import write
from txn_source.cli.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

    from txn_source.cli.message_lines import Render

_POLL_INTERVAL_S = 0.2


class Read(Protocol):
    """Yields what is there now and was not yielded before; ``expect`` is told how much that is, if it can be known."""

    def __call__(self, expect: Callable[[int], object] | None) -> Iterator[pa.RecordBatch]: ...


def print_batches(read: Read, render: Render, most: int | None, *, follow: bool) -> None:
    """Print what a read yields, so many messages at most; with ``follow`` read again and again, until Ctrl-C."""
    most = sys.maxsize if most is None else most
    done = 0
    with Progress("messages", later=True, wanted=not follow and not sys.stdout.isatty()) as shown:
        while True:
            for batch in read((lambda total: shown.expect(min(total, most))) if shown.wanted else None):
                write(render(batch.slice(0, most - done)))
                done += batch.num_rows
                if done >= most:
                    return
                shown.update(done)
            if not follow:
                return
            sys.stdout.flush()
            pause(_POLL_INTERVAL_S)


def pause(seconds: float) -> None:
    """Wait a moment; raise BrokenPipeError if nobody reads our output any more, which writing nothing wouldn't show."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        time.sleep(seconds)
        return
    watch = select.poll()
    watch.register(descriptor, 0)  # only errors, which are always reported
    if watch.poll(seconds * 1000):
        raise BrokenPipeError
