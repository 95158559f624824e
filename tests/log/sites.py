"""Where a log under test lives: embedded in this process, or behind a real server on a loopback port."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from txn_source import Log, connect
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.server import Server
from txn_source.metadata.service.service import Clock, MetadataService, system_clock
from txn_source.metadata.store.database import open_database
from txn_source.metadata.stub.grpc_transport import GrpcTransport
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.transport import Transport
from txn_source.storage.root import LogRoot

KINDS = ("embedded", "remote")


class ManualClock:
    """A clock that stands still until it is moved; it begins on 2026-01-31 at 12:00 UTC."""

    def __init__(self) -> None:
        self.now_us = 1_769_860_800_000_000

    def __call__(self) -> int:
        return self.now_us

    def pass_by(self, seconds: float, look: Callable[[], object], step_s: float = 600.0) -> None:
        """Let time pass in steps, with a look of the service (a call that writes) after each: then it is believed."""
        while seconds > 0:
            self.advance(min(step_s, seconds))
            look()
            seconds -= step_s

    def advance(self, seconds: float) -> None:
        """Move the clock, backwards too if that is asked for."""
        self.now_us += round(seconds * 1_000_000)


def service_over(root: Path, clock: Clock = system_clock) -> MetadataService:
    """Return a service of its own over the database of a root that exists."""
    return MetadataService(open_database(LogRoot.at(root).database_url), str(root), clock=clock)


@dataclass(frozen=True)
class ClockedTarget:
    """An embedded log that runs by a given clock, which ``connect`` has no argument for."""

    root: Path
    clock: Clock

    def open(self) -> tuple[MetadataStub, str]:
        """Do what ``Target.open`` does."""
        stub = MetadataStub(InProcessTransport(service_over(self.root, self.clock)))
        return stub, stub.get_log().storage_uri


class Site:
    """A fresh log of one kind, and the connections to it. A context manager that closes them and stops the server."""

    def __init__(self, kind: str, root: Path, clock: Clock | None = None) -> None:
        self.kind = kind
        self.root = root
        self.clock = clock
        self.server: Server | None = None
        self._stack = ExitStack()
        connect(root).close()
        if kind == "remote":
            self.start_server()
            self._stack.callback(self.stop_server)

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def endpoint(self) -> str:
        """The server's address."""
        assert self.server is not None
        return self.server.address

    def start_server(self, port: int = 0) -> None:
        """Start the server, on a free port unless one is given."""
        self.server = Server(service_over(self.root, self.clock or system_clock), "127.0.0.1", port).start()

    def stop_server(self) -> None:
        """Stop the server, and keep it to know its address."""
        assert self.server is not None
        self.server.stop()

    def connect(self, timeout: float = 30.0) -> Log:
        """Open one more connection; it is closed with the site."""
        return self._stack.enter_context(self.open(timeout))

    def open(self, timeout: float = 30.0) -> Log:
        """Open one more connection that whoever asks closes, or doesn't."""
        if self.kind == "remote":
            return connect(endpoint=self.endpoint, timeout=timeout)
        return connect(self.root, create=False) if self.clock is None else Log(ClockedTarget(self.root, self.clock))

    def at_end(self, call: Callable[[], object]) -> None:
        """Have something done before what was opened so far is closed."""
        self._stack.callback(call)

    def transport(self) -> Transport:
        """Return a bare way to the service, for requests made by hand."""
        if self.kind == "remote":
            transport: Transport = GrpcTransport(self.endpoint, 30.0)
        else:
            transport = InProcessTransport(service_over(self.root, self.clock or system_clock))
        self._stack.callback(transport.close)
        return transport
