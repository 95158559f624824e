"""A way to the service on which something happens at a chosen call: a crash, a lost answer, or another one's work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.log.sites import Site
from txn_source import Log
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.transport import Transport


class Crash(BaseException):
    """The end of a process."""


@dataclass
class Meddling:
    """Way to a service on which something happens before or after the first call of a method; also its target.

    ``times`` is how often each call is sent.
    """

    inner: Transport
    before: dict[str, Callable[[], object]] = field(default_factory=dict)
    after: dict[str, Callable[[], object]] = field(default_factory=dict)
    dead: bool = False
    times: int = 1

    @property
    def timeout_s(self) -> float:
        return self.inner.timeout_s

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        return self.inner.converse(method, requests)

    def call(self, method: str, request: Any) -> Any:
        if self.dead:
            raise Crash
        self.before.pop(method, lambda: None)()
        answers = [self.inner.call(method, request) for _ in range(self.times)]
        self.after.pop(method, lambda: None)()
        return answers[-1]

    def close(self) -> None:
        pass

    def open(self) -> tuple[MetadataStub, str]:
        stub = MetadataStub(self)
        return stub, stub.get_log().storage_uri

    def crash(self) -> None:
        """End, as a process does: no later call gets through."""
        self.dead = True
        raise Crash


def meddling(site: Site, **how: Any) -> tuple[Log, Meddling]:
    """Return a connection to a site's log and the way that it takes."""
    way = Meddling(site.transport(), **how)
    return Log(way), way  # type: ignore[arg-type]
