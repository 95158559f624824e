"""A thread that repeats work at an interval until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Repeating:
    """A thread that works at once, and again ``every_s`` seconds after each round has ended.

    An exception of the work is logged with its traceback; the next round takes place as usual.
    """

    def __init__(self, every_s: float, work: Callable[[], object], name: str) -> None:
        """``name`` is the name of the thread."""
        self.stopping = threading.Event()
        """Set by ``stop``. Long work checks it, or waits for it instead of sleeping."""
        self._every_s = every_s
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; the first round begins at once."""
        self._thread.start()

    def stop(self, grace_s: float) -> bool:
        """Begin no further round; return False if the current one takes longer than the grace in seconds."""
        self.stopping.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join(grace_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._work()
            except Exception:
                _log.exception("%s failed and is tried again", self._thread.name)
            self.stopping.wait(self._every_s)
