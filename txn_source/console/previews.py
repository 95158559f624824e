"""Pages of messages, each read in a process of its own.

What somebody wrote to a topic is decoded where it can harm one page only: the process has a limit of memory, nothing of
other visitors is in it, and it has no way to the metadata but calls as its visitor, which the guard judges.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, Protocol

from txn_source.console.api.messages import page
from txn_source.console.viewer import Viewer
from txn_source.metadata.stub.relay import result_of
from txn_source.model.errors import LimitExceededError, RateLimitedError
from txn_source.storage import allowed_places

_PROGRAM = ["-m", "txn_source.console.page_process"]
_AT_ONCE = 4
"""So many pages are read at the same time."""
_PATIENCE_S = 10.0
_PAGE_S = 30.0
_MEMORY = 2 << 30
"""So many bytes of addresses a process may have."""


class Previews(Protocol):
    """What reads pages of messages."""

    def page(self, query: Mapping[str, str], viewer: Viewer) -> Any:
        """Return a page for a visitor; ``query`` is what its address says."""

    def close(self) -> None:
        """Let go of what it holds."""


class InThisProcess:
    """Pages that are read where they are asked for, of a log whose writers are trusted."""

    def page(self, query: Mapping[str, str], viewer: Viewer) -> Any:
        return page(SimpleNamespace(query_params=query), viewer)

    def close(self) -> None:
        """There is nothing."""


class InProcesses:
    """Pages that are read in processes. One is always started ahead, so that a page needn't wait for its start."""

    def __init__(self) -> None:
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._lock = threading.Lock()
        self._spare: _Reader | None = None

    def page(self, query: Mapping[str, str], viewer: Viewer) -> Any:
        with self._turn(), self._taken() as reader:
            return reader.page(query, viewer)

    def close(self) -> None:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.end()

    @contextmanager
    def _taken(self) -> Iterator[_Reader]:
        """Take the process that was started ahead, unless it has died, and start the next one."""
        with self._lock:
            reader, self._spare = self._spare, None
        if reader is None or reader.has_ended:
            reader = _Reader()
        try:
            with self._lock, suppress(OSError):  # the next page tells it, if it still can't be started
                self._spare = self._spare or _Reader()
            yield reader
        finally:
            reader.end()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=_PATIENCE_S):
            raise RateLimitedError("Others read messages at this moment.", "Try again.")
        try:
            yield
        finally:
            self._turns.release()


class _Reader:
    """A process that reads one page."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *_PROGRAM, str(theirs.fileno()), str(_MEMORY)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_surroundings(),
            )
        self._connection = Connection(ours.detach())

    def page(self, query: Mapping[str, str], viewer: Viewer) -> Any:
        def before(question: Any) -> Any:
            partition_id, end, messages, of_bytes = (int(number) for number in question)
            found = viewer.entries_before(partition_id, end, messages, of_bytes)
            return None if found is None else astuple(found)

        timer = threading.Timer(_PAGE_S, self._process.kill)
        timer.start()
        try:
            self._connection.send_bytes(json.dumps({"root": str(viewer.root), "query": dict(query)}).encode())
            return result_of(self._connection, viewer.access.metadata.transport, before)
        except (EOFError, OSError) as error:
            raise LimitExceededError(
                f"The process that read these messages has ended: it needed too much memory or more than {_PAGE_S:g} s,"
                " or couldn't decode them.",
                "Ask for fewer, or read them with a client.",
            ) from error
        finally:
            timer.cancel()

    @property
    def has_ended(self) -> bool:
        """True if the process isn't there any more."""
        return self._process.poll() is not None

    def end(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _surroundings() -> dict[str, str]:
    """Return the environment of a process: memory is taken from the system, so that its limit counts what is used."""
    found = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
    listed = allowed_places.listed()
    with suppress(KeyError):
        del found[allowed_places.VARIABLE]
    return found if listed is None else {**found, allowed_places.VARIABLE: allowed_places.as_variable(listed)}
