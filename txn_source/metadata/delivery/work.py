"""What delivery needs of the service that it is a part of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from txn_source.metadata.store.connection import Connection

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class Work(Protocol):
    """Database transactions that show no open transaction past its deadline, and the time."""

    def read(self) -> AbstractContextManager[Connection]:
        """A read of one moment."""

    def write(self, action: Callable[[Connection], T]) -> T:
        """Carry out an action that touches nothing but the database; it may be carried out more than once."""

    def once(self, request: Any, response: type[R], action: Callable[[Connection], R]) -> R:
        """Carry out a change once for each request id, and answer a repetition as the first time."""

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""
