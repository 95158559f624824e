"""Ctrl-C is held back while the main thread changes something; a second one gets through.

Python runs a signal's handler between any two steps of the main thread, so an exception that it raises may fall between
two steps that belong together. Inside of ``held()`` the first signal is only noted, and comes at the block's end.
Whoever presses Ctrl-C once more doesn't want to wait: that one goes to the program's handler at once.

Nothing is installed outside of a block: it works with whatever handlers are there, Python's, asyncio's or a notebook's,
and gives them back. A signal that ends the process without Python (SIG_DFL), or is ignored, stays as it is.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

# Of ``_signal``, not ``signal``: the enums that this makes of what it returns cost ten times the rest.
_SIGNALS = tuple(map(int, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
Handler = Callable[[int, FrameType | None], Any]


class held:
    """A block in which a first signal waits for the end. Blocks in it, and other threads' blocks, do nothing."""

    __slots__ = ("_before", "_noted")
    _inside = False

    def __enter__(self) -> None:
        self._before: dict[int, Handler] = {}
        self._noted: int | None = None
        if held._inside or threading.get_ident() != threading.main_thread().ident:
            return
        try:
            for number in _SIGNALS:
                handler = _signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler  # first: a signal that comes now finds where to go
                    _signal.signal(number, self._note)
            held._inside = True
        except BaseException:
            self._end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            handler = self._before.get(self._noted or 0)
            self._end()
            if handler is not None and self._noted is not None:
                handler(self._noted, None)

    def _end(self) -> None:
        held._inside = False
        while self._before:
            _signal.signal(*self._before.popitem())

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._noted is None and held._inside:
            self._noted = number
        else:
            self._noted = None  # the second one tells the program of both
            self._before[number](number, frame)
