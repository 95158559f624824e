"""Raising at a chosen place of a running call, in the thread that asks for it, once.

``at_call(n)`` raises before or after the n-th call that reaches the outside: a file-system function, or the service.
``at_driver_call(n)`` does so around the calls of SQLite's driver.
``at_signal_point(n, where)`` raises at the n-th place in these modules where Python looks for signals: after each
call, at the start of each function, and where loops jump back. Between two such places no signal can come, so all of
them are all that Ctrl-C can do. All count from 0, and yield an ``Injection`` that tells whether there were so many.
"""

from __future__ import annotations

import asyncio
import dis
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import Any
from unittest.mock import patch

from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.stub.grpc_transport import GrpcTransport


class Interrupt(BaseException):
    """An exception that nothing but this package knows."""


KINDS: tuple[type[BaseException], ...] = (
    KeyboardInterrupt, MemoryError, Interrupt, GeneratorExit, asyncio.CancelledError,
)  # fmt: skip
"""What is raised, in turn, unless a test says what."""

Kind = type[BaseException]

_DRIVER = (sqlite3.Connection, sqlite3.Cursor)
_FILES = ("open", "write", "fdatasync", "fsync", "close")


@dataclass
class Injection:
    """Whether, and where, something was raised."""

    place: str | None = None
    seen: int = 0
    """How many places there were."""


@contextmanager
def at_call(number: int) -> Iterator[Injection]:
    """Raise before (even numbers) or after (odd ones) a call of a file-system function or of the service."""
    injection, thread = Injection(), threading.get_ident()
    kind = KINDS[number % len(KINDS)]

    def disturbed(inner: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if threading.get_ident() != thread:
                return inner(*arguments, **options)
            mine = injection.seen
            injection.seen += 2
            if mine == number:
                injection.place = f"before {name}"
                raise kind
            answer = inner(*arguments, **options)
            if mine + 1 == number:
                injection.place = f"after {name}"
                raise kind
            return answer

        return call

    patches = [patch.object(os, name, disturbed(getattr(os, name), name)) for name in _FILES]
    ways = (InProcessTransport, GrpcTransport)
    patches += [patch.object(way, "call", disturbed(way.call, "service")) for way in ways]
    try:
        for each in patches:
            each.start()
        yield injection
    finally:
        for each in patches:
            each.stop()


@contextmanager
def at_driver_call(number: int, kind: Kind | None = None) -> Iterator[Injection]:
    """Raise before or after a call of the driver's ``execute``, ``commit`` and so on."""
    injection = Injection()
    kind = kind or KINDS[number % len(KINDS)]

    def profile(_frame: FrameType, event: str, function: Any) -> None:
        if event in ("c_call", "c_return") and isinstance(getattr(function, "__self__", None), _DRIVER):
            injection.seen += 1
            if injection.seen == number + 1:
                injection.place = f"{event} {function.__name__}"
                raise kind

    sys.setprofile(profile)
    try:
        yield injection
    finally:
        sys.setprofile(None)


@contextmanager
def at_signal_point(number: int, where: tuple[ModuleType, ...], kind: Kind | None = None) -> Iterator[Injection]:
    """Raise at the n-th place in the modules and packages where Python looks for signals."""
    injection = Injection()
    kind = kind or KINDS[number % len(KINDS)]
    files = tuple(_prefix(module) for module in where)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(files):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode" and frame.f_lasti in _signal_points(frame.f_code):
            if injection.seen == number and not _is_destructor(frame):
                injection.place = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                raise kind
            injection.seen += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield injection
    finally:
        sys.settrace(before)


def _prefix(module: ModuleType) -> str:
    file = module.__file__
    assert file is not None
    return file.removesuffix("__init__.py")


@cache
def _signal_points(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions before which Python has looked for signals.

    Python counts what it finds as raised by the instruction before. Where that has another handler, at the end of a
    ``try``, nothing can be raised here as it would be there, so such places are left out.
    """
    found: set[int] = set()
    bytecode = dis.Bytecode(code)

    def handler(offset: int) -> object:
        return next((entry.target for entry in bytecode.exception_entries if entry.start <= offset < entry.end), None)

    before = None
    for instruction in bytecode:
        if before is not None and handler(before) == handler(instruction.offset):
            found.add(instruction.offset)
        looked = instruction.opname in ("CALL", "CALL_FUNCTION_EX", "RESUME")
        before = instruction.offset if looked else None
        if instruction.opname.startswith("JUMP_BACKWARD"):
            found.add(instruction.argval)
    return frozenset(found)


def _is_destructor(frame: FrameType | None) -> bool:
    """Return whether Python would only print what is raised here."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
