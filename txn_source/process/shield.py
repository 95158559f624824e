"""The shield delays Ctrl-C while the main thread changes state; a second Ctrl-C gets through.

Python runs a signal handler between any two steps of the main thread, so a KeyboardInterrupt may separate two steps
that belong together. Inside of ``held()`` the first signal is recorded, and its handler runs at the block's end. A
second signal means that the user doesn't want to wait, so its handler runs at once.

Some libraries share locks between threads: an exception there would stop other threads for ever. Inside of ``deaf()``
a second signal waits, too, for the next ``safe_point()`` or the end of the block.

The handlers are replaced during a block only. So the shield works with the handlers of Python, asyncio, Spark or a
notebook, and restores them. Signals without a Python handler (SIG_DFL, SIG_IGN) keep their effect.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

# Of ``_signal``, not ``signal``: the enums that this makes of what it returns cost ten times the rest.
_SIGNALS = tuple(map(int, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
Handler = Callable[[int, FrameType | None], Any]


class held:
    """A block that delays the first signal to its end. Inner blocks, and blocks of other threads, do nothing."""

    __slots__ = ("_before", "_noted", "_second", "is_deaf")
    current: held | None = None
    """The outermost block of the main thread."""

    def __enter__(self) -> None:
        self._before: dict[int, Handler] = {}
        self._noted: int | None = None
        self._second: int | None = None
        self.is_deaf = False
        if held.current is not None or not in_main_thread():
            return
        try:
            for number in _SIGNALS:
                handler = _signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler  # first: a signal may arrive at once
                    _signal.signal(number, self._note)
            held.current = self
        except BaseException:
            self.end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if held.current is self:
            self.end()
            if self._noted is not None:
                self._before[self._noted](self._noted, None)

    def end(self) -> None:
        """Restore the handlers. ``_before`` keeps them: a signal may arrive before its handler is restored."""
        try:
            held.current = None
            for number, handler in self._before.items():
                _signal.signal(number, handler)
        except BaseException:  # raised by the handler of such a signal
            self.end()
            raise

    def pass_on(self) -> None:
        """Run the handler of a second signal that waits."""
        number, self._second = self._second, None
        if number is not None:
            self._noted = None  # one exception stands for both signals
            self._before[number](number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if held.current is not self:
            self._before[number](number, frame)
        elif self._noted is None:
            self._noted = number
        else:
            self._second = number
            if not self.is_deaf:
                self.pass_on()


class deaf:
    """A block inside of ``held`` in which a second signal waits for a safe point, or the end of the block."""

    __slots__ = ("_of",)

    def __enter__(self) -> None:
        self._of = held.current if in_main_thread() else None
        if self._of is not None:
            self._of.is_deaf = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._of is not None:
            self._of.is_deaf = False
            self._of.pass_on()


def safe_point() -> None:
    """Run the handler of a second signal that waits for it, which may raise."""
    if held.current is not None and in_main_thread():
        held.current.pass_on()


def in_main_thread() -> bool:
    """Return whether this is the thread in which signal handlers run."""
    return threading.get_ident() == threading.main_thread().ident


def _in_child() -> None:
    """Restore the handlers in a child that another thread has forked during a block: the block never ends there."""
    if held.current is not None:
        held.current.end()


os.register_at_fork(after_in_child=_in_child)
