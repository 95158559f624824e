"""How much room the disks have that a service's log lies on: without any, producers are refused."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from prometheus_client.core import Metric as Family

from txn_source.http.call_metrics import family
from txn_source.process.repeating import Repeating

_EVERY_S = 10.0
_STALE_S = 60.0
"""A disk that hasn't told for so long is left out."""


class Disks:
    """Looks at disks now and then, each in a thread of its own: one whose server is away answers nothing."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        """``folders``: what lies there, and where."""
        self._repeating = [
            Repeating(_EVERY_S, partial(self.look, place, folder), "txnlog-disk") for place, folder in folders.items()
        ]
        self._found: dict[str, tuple[float, int, int]] = {}

    def start(self) -> None:
        """Begin, with a first look at once."""
        for each in self._repeating:
            each.start()

    def stop(self) -> None:
        """Let the threads end; none is waited for."""
        for each in self._repeating:
            each.stop(0.0)

    def look(self, place: str, folder: Path) -> None:
        """Look at a disk now."""
        with suppress(OSError):  # a folder that isn't there is told by the check of the root
            use = shutil.disk_usage(folder)
            self._found[place] = time.monotonic(), use.free, use.total

    def families(self) -> Iterator[Family]:
        """Return what the disks said last."""
        now = time.monotonic()
        found = [((place,), each) for place, each in self._found.copy().items() if now - each[0] < _STALE_S]
        yield family("txnlog_disk_free_bytes", [(place, free) for place, (_, free, _) in found])
        yield family("txnlog_disk_size_bytes", [(place, size) for place, (_, _, size) in found])
