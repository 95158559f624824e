"""Work that is repeated every so many seconds until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Repeating:
    """A thread that does some work at once, and again each time that so many seconds have passed since its end.

    An exception of the work doesn't end it: it is logged with its traceback, and the work is done again in its turn.
    """

    def __init__(self, every_s: float, work: Callable[[], object], name: str) -> None:
        """``name`` is the thread's."""
        self.stopping = threading.Event()
        """Set when the thread is to end. Work that takes long looks at it, or waits for it in place of sleeping."""
        self._every_s = every_s
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, with the work done for the first time at once."""
        self._thread.start()

    def stop(self, grace_s: float) -> bool:
        """Begin the work no more, and let what is under way end; return False if that takes longer than the grace."""
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
