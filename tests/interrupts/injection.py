"""Raising at a chosen place of a running call, in the thread that asks for it, once.

``at_call(n)`` raises before or after the n-th call that reaches the outside: a file-system function, or the service.
``at_signal_point(n, modules)`` raises at the n-th place in these modules where Python looks for signals: after each
call, at the start of each function, and where loops jump back. Between two such places no signal can come, so all of
them are all that Ctrl-C can do. Both count from 0, and yield an ``Injection`` that tells whether there were so many.
"""

from __future__ import annotations

import asyncio
import dis
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import Any
from unittest.mock import patch

from txn_source.metadata.transport import GrpcTransport, InProcessTransport


class Interrupt(BaseException):
    """An exception that nothing but this package knows."""


KINDS: tuple[type[BaseException], ...] = (
    KeyboardInterrupt, MemoryError, Interrupt, GeneratorExit, asyncio.CancelledError,
)  # fmt: skip
"""What is raised, in turn."""

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
def at_signal_point(number: int, modules: tuple[ModuleType, ...]) -> Iterator[Injection]:
    """Raise at the n-th place in the modules where Python looks for signals."""
    injection = Injection()
    kind = KINDS[number % len(KINDS)]
    files = {module.__file__ for module in modules}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            if frame.f_code.co_filename not in files:
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


@cache
def _signal_points(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions before which Python has looked for signals."""
    found: set[int] = set()
    looked = False
    for instruction in dis.get_instructions(code):
        if looked:
            found.add(instruction.offset)
        looked = instruction.opname in ("CALL", "CALL_FUNCTION_EX", "RESUME")
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
