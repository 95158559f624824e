"""Where a log under test lives: embedded in this process, or behind a real server on a loopback port."""

from __future__ import annotations

import itertools
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from google.protobuf.message import Message
from sqlalchemy import Connection, text

from tests.log.objects import new_prefix, s3_surroundings
from tests.metadata.postgres import server
from txn_source import Log, connect
from txn_source.client.target import open_service
from txn_source.client.writing import copies
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.server import Server
from txn_source.metadata.service.service import Clock, MetadataService
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.stub.grpc_transport import GrpcTransport
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.transport import Transport
from txn_source.storage.root import LogRoot

EVERYWHERE = ("embedded", "remote", "postgres", "services")
"""A log in this process, one behind a server, one behind a server that keeps its metadata in PostgreSQL, and one behind
two of these, which a client calls in turn. Of two more kinds the server of ``objects`` has its segments on an object
store, that of ``copies`` two copies of them, in its root and in another one."""


def give_up_after(log: Log, seconds: float) -> None:
    """Have a remote log's calls wait so long from now on: what was asked before had all the time that it needed."""
    log.metadata.transport.timeout_s = seconds  # type: ignore[misc]


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


def service_over(
    root: Path, clock: Clock | None = None, url: str | DatabaseUrl | None = None, storage_uri: str | None = None
) -> MetadataService:
    """Return a service of its own over the database of a root that exists: the one of a URL, or SQLite's.

    ``storage_uri`` is where the segments lie, if not in the root.
    """
    database = open_database(url or LogRoot.at(root).database_url)
    return MetadataService(database, storage_uri or str(root), clock=clock or database.clock)


@dataclass(frozen=True)
class ClockedTarget:
    """An embedded log that runs by a given clock, which ``connect`` has no argument for."""

    root: Path
    clock: Clock

    def open(self) -> tuple[MetadataStub, str]:
        """Do what ``Target.open`` does."""
        stub = MetadataStub(InProcessTransport(service_over(self.root, self.clock)))
        return stub, stub.get_log().storage_uri


class InTurn:
    """A transport that makes each call at another service than the one before."""

    def __init__(self, transports: Sequence[Transport]) -> None:
        self._transports = transports
        self._turns = itertools.cycle(transports)
        self._turn = threading.Lock()
        self.timeout_s = transports[0].timeout_s

    def _next(self) -> Transport:
        with self._turn:
            return next(self._turns)

    def call(self, method: str, request: Message) -> Any:
        return self._next().call(method, request)

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        return self._next().converse(method, requests)

    def close(self) -> None:
        for transport in self._transports:
            transport.close()


@dataclass(frozen=True)
class InTurnTarget:
    """A log behind several services."""

    endpoints: tuple[str, ...]
    timeout_s: float

    def open(self) -> tuple[MetadataStub, str]:
        """Do what ``Target.open`` does."""
        stub = MetadataStub(InTurn([GrpcTransport(endpoint, self.timeout_s) for endpoint in self.endpoints]))
        return stub, stub.get_log().storage_uri


@contextmanager
def log_on_postgres(root: Path) -> Iterator[DatabaseUrl]:
    """Make a log whose metadata lies in a new database of this process's PostgreSQL; remove the database at the end."""
    postgres = server()
    url = postgres.new_database()
    try:
        open_service(str(root), url, create=True).close()
        yield url
    finally:
        postgres.drop_database(url)


class Site:
    """A fresh log of one kind, and the connections to it. A context manager that closes them and stops the server."""

    def __init__(self, kind: str, root: Path, clock: Clock | None = None) -> None:
        """Make the log. Of a ``postgres`` one, ``kind`` says that it is remote, and ``url`` where its database is."""
        self.kind = "embedded" if kind == "embedded" else "remote"
        self.root = root
        self.clock = clock
        self.server: Server | None = None
        self._kept: socket.socket | None = None
        self.url: DatabaseUrl | None = None
        self._stack = ExitStack()
        self.storage_uri: str | None = None
        """Of the kind ``objects``: where its segments are; its ``root`` has only the metadata."""
        self.other: Site | None = None
        """The second service, of the kind ``services``."""
        if kind in ("postgres", "services"):
            self.url = self._stack.enter_context(log_on_postgres(root))
        elif kind == "objects":
            self._stack.enter_context(s3_surroundings())
            self.storage_uri = new_prefix()
            root.mkdir()
            connect(self.storage_uri, metadata=LogRoot.at(root).database).close()
        else:
            connect(root).close()
        if kind == "copies":
            self.b = root.with_name(f"{root.name}-b")
            for name in ("PATIENCE_S", "DEADLINE_S"):
                self._stack.enter_context(patch.object(copies, name, 60.0))
            with connect(root) as log:
                log.add_root("b", self.b)
                log.set_policies(hot_copies="main,b")
        if self.kind == "remote":
            self.start_server()
            self._stack.callback(self.stop_server)
        if kind == "services":
            self.other = self._stack.enter_context(Site.beside(self))

    @classmethod
    def beside(cls, other: Site) -> Site:
        """Return another service over the log of a site on PostgreSQL."""
        site = cls.__new__(cls)
        site.kind, site.root, site.clock, site.url = other.kind, other.root, other.clock, other.url
        site.server, site.other, site._stack, site.storage_uri = None, None, ExitStack(), other.storage_uri
        site._kept = None
        site.start_server()
        site._stack.callback(site.stop_server)
        return site

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()
        self._let_go()

    @property
    def endpoint(self) -> str:
        """The server's address."""
        assert self.server is not None
        return self.server.address

    def service(self) -> MetadataService:
        """Return a service of its own over the log's database."""
        return service_over(self.root, self.clock, self.url, self.storage_uri)

    def start_server(self, port: int = 0) -> None:
        """Start the server, on a free port unless one is given."""
        service = self.service()
        self._let_go()  # at the last moment: others may take the port from here on
        self.server = Server(service, "127.0.0.1", port).start()

    def stop_server(self) -> None:
        """Stop the server, and keep it to know its address, and its port, so that no other process gets that."""
        assert self.server is not None
        self.server.stop()
        self._let_go()
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            self._kept.bind(("127.0.0.1", self.server.port))  # nobody listens: who connects is refused

    def _let_go(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def connect(self, timeout: float = 30.0) -> Log:
        """Open one more connection; it is closed with the site."""
        return self._stack.enter_context(self.open(timeout))

    def open(self, timeout: float = 30.0) -> Log:
        """Open one more connection that the caller closes, or doesn't."""
        if self.other is not None:
            return Log(InTurnTarget((self.endpoint, self.other.endpoint), timeout))  # type: ignore[arg-type]
        if self.kind == "remote":
            return connect(endpoint=self.endpoint, timeout=timeout)
        return connect(self.root, create=False) if self.clock is None else Log(ClockedTarget(self.root, self.clock))

    def execute(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        """Ask the log's database, or change it behind the service's back; return the rows of the answer."""

        def rows(connection: Connection) -> list[tuple[Any, ...]]:
            came = connection.execute(text(statement), values)
            return [tuple(row) for row in came] if came.returns_rows else []

        database = open_database(self.url or LogRoot.at(self.root).database_url)
        try:
            return database.write(rows)
        finally:
            database.close()

    @staticmethod
    def rows_of(root: Path, question: str) -> list[tuple[Any, ...]]:
        """Ask the SQLite database of a log."""
        with closing(sqlite3.connect(root / "metadata.db")) as raw:
            return raw.execute(question).fetchall()

    def at_end(self, call: Callable[[], object]) -> None:
        """Have something done before what was opened so far is closed."""
        self._stack.callback(call)

    def transport(self) -> Transport:
        """Return a bare way to the service, for requests made by hand."""
        if self.kind == "remote":
            transport: Transport = GrpcTransport(self.endpoint, 30.0)
        else:
            transport = InProcessTransport(self.service())
        self._stack.callback(transport.close)
        return transport
