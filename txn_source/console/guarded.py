"""The log as a visitor may use it: its calls go through the service's guard, which judges and notes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from txn_source.client.access import Access
from txn_source.metadata.access.door import Visitor
from txn_source.metadata.service.guard import Guard
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.door import passes, translated
from txn_source.model.errors import InvalidArgumentError
from txn_source.observing.spans import calling
from txn_source.storage.object_root import Root


class GuardedTransport:
    """Carries one visitor's calls to the service of this process."""

    timeout_s = 30.0

    def __init__(self, guard: Guard, visitor: Visitor) -> None:
        self._guard = guard
        self._visitor = visitor

    def call(self, method: str, request: Any) -> Any:
        try:
            with calling(method):
                return self._guard.call(method, request, self._visitor)
        except Exception as error:
            if passes(error):
                raise
            raise translated(error, method) from error

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        raise InvalidArgumentError("The console holds no conversations.", "Use a client.")

    def close(self) -> None:
        """There is nothing of its own."""


def access_of(guard: Guard, visitor: Visitor, root: Root) -> Access:
    """Return the way to the log for one visitor."""
    stub = MetadataStub(GuardedTransport(guard, visitor))
    stub.get_log()
    return Access(stub, root)
