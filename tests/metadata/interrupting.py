"""Raises an interrupt at a chosen moment: around a call of SQLite's driver, or before a line of some modules."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from txn_source.metadata import database, group_commit, service, sqlite_file, timekeeping, write_turn

MODULES = (database, group_commit, service, sqlite_file, timekeeping, write_turn)
_DRIVER = (sqlite3.Connection, sqlite3.Cursor)


class Interrupt(KeyboardInterrupt):
    """As Ctrl-C, but known to be ours."""


class Moments:
    """Counts moments, and interrupts at one of them; 0: at none."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def pass_one(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Interrupt(f"at moment {self.at}")


@contextmanager
def at_driver_calls(at: int) -> Iterator[Moments]:
    """Interrupt this thread before or after the driver's ``execute``, ``commit`` and so on."""
    moments = Moments(at)

    def profile(_frame: FrameType, what: str, function: Any) -> None:
        if what in ("c_call", "c_return") and isinstance(getattr(function, "__self__", None), _DRIVER):
            moments.pass_one()

    sys.setprofile(profile)
    try:
        yield moments
    finally:
        sys.setprofile(None)


@contextmanager
def at_lines(at: int, modules: Any = MODULES) -> Iterator[Moments]:
    """Interrupt this thread before a line of the modules."""
    moments = Moments(at)
    files = {module.__file__ for module in modules}

    def in_frame(_frame: FrameType, what: str, _argument: object) -> Any:
        if what == "line":
            moments.pass_one()
        return in_frame

    def trace(frame: FrameType, _what: str, _argument: object) -> Any:
        return in_frame if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield moments
    finally:
        sys.settrace(before)


HARNESSES: dict[str, Callable[[int], Any]] = {"driver": at_driver_calls, "lines": at_lines}
