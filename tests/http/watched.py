"""A log behind a real service that is watched over HTTP."""

from __future__ import annotations

import http.client
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.log.reading import eventually
from txn_source import Log, connect
from txn_source.client.target import open_service
from txn_source.http.listener import Certificates
from txn_source.http.monitoring import Monitoring
from txn_source.metadata.access.certificates import server_credentials
from txn_source.metadata.access.door import Door
from txn_source.metadata.service.server import Server
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.storage.object_root import root_at

Labels = dict[str, str]


class Answer(NamedTuple):
    status: int
    body: str
    headers: dict[str, str]


class Watched:
    """A service over a root and what watches it, each on a free port. A context manager."""

    def __init__(
        self,
        root: Path | str,
        *,
        metadata: DatabaseUrl | None = None,
        door: Door | None = None,
        tls: tuple[Path, Path] | None = None,
        client_ca: Path | None = None,
        **monitoring: Any,
    ) -> None:
        """``metadata``: the database, if it isn't the root's own; a root on an object store needs one."""
        self._stack = ExitStack()
        self.service = open_service(str(root), metadata, create=True)
        certificates = None if tls is None else Certificates(*tls, client_ca)
        # The thread that refreshes looks once: tests have it look when there is something to see.
        given = {"refresh_s": 3600.0} | monitoring
        self.monitoring = Monitoring(
            self.service, root_at(root), "127.0.0.1", 0, certificates=certificates, door=door, **given
        )
        self.monitoring.readiness.patience_s = 60.0  # a check that is slow where a machine is busy hasn't failed
        credentials = None if tls is None else server_credentials(*tls, client_ca)
        observer = self.monitoring.observer
        self.server = Server(self.service, "127.0.0.1", 0, door=door, tls=credentials, observer=observer)

    def __enter__(self) -> Watched:
        self._stack.enter_context(self.server)
        self._stack.enter_context(self.monitoring)
        # The first look runs the checks, too: a test that makes a fault meanwhile would get a result from before it.
        eventually(lambda: bool(self._rounds().all("txnlog_background_rounds_total", task="figures")))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _rounds(self) -> Figures:
        return Figures(self.monitoring.observer.text().decode())

    def connect(self, **credentials: Any) -> Log:
        return self._stack.enter_context(connect(endpoint=self.server.address, timeout=60, **credentials))

    def get(self, path: str, tls: ssl.SSLContext | None = None, method: str = "GET", **headers: str) -> Answer:
        """Ask for a path."""
        host, port = "127.0.0.1", self.monitoring.listener.port
        made: Any = http.client.HTTPConnection(host, port, timeout=60)
        if tls is not None:
            made = http.client.HTTPSConnection(host, port, timeout=60, context=tls)
        try:
            made.request(method, path, headers=headers)
            answer = made.getresponse()
            return Answer(answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()})
        finally:
            made.close()

    def scrape(self, tls: ssl.SSLContext | None = None, *, refresh: bool = True, **headers: str) -> Figures:
        """Return what a scrape gets, with the figures of the log as they are now."""
        if refresh:
            self.monitoring.refresh()
        answer = self.get("/metrics", tls, **headers)
        assert answer.status == 200, answer
        return Figures(answer.body)


class Figures:
    """The samples of a scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def all(self, name: str, **labels: str) -> list[tuple[Labels, float]]:
        """Return the samples of a name that have some labels."""
        return [
            (sample.labels, sample.value)
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def one(self, name: str, **labels: str) -> float:
        """Return the value of the one sample there is; 0 if there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, found
        return found[0][1] if found else 0.0
