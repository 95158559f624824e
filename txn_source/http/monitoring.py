"""What watches a service: its counters, the figures of its log, its checks, on a port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

from prometheus_client import disable_created_metrics
from prometheus_client.core import Metric as Family

from txn_source.http.app import monitoring_app
from txn_source.http.call_metrics import CallMetrics, family
from txn_source.http.disks import Disks
from txn_source.http.gate import Gate
from txn_source.http.listener import Certificates, Listener
from txn_source.http.log_metrics import MAX_TOPICS, REFRESH_S, LogMetrics
from txn_source.http.readiness import Readiness, checks_of
from txn_source.http.release import release
from txn_source.metadata.access.door import Door
from txn_source.metadata.service.service import MetadataService
from txn_source.storage.object_root import Root


class Monitoring:
    """A service that is watched. A context manager around its server, which ``observer`` is given to."""

    def __init__(
        self,
        service: MetadataService,
        root: Root,
        host: str,
        port: int,
        *,
        certificates: Certificates | None = None,
        door: Door | None = None,
        max_topics: int = MAX_TOPICS,
        refresh_s: float = REFRESH_S,
    ) -> None:
        """Bind to the port; 0 takes a free one. ``door`` and ``certificates`` are the service's own."""
        # Else each counter has a second series, which nobody looks at.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._service = service
        self._door = door
        self._certificates = certificates
        self.observer = CallMetrics()
        self.observer.add(self._looked_at)
        service.observe(self.observer.transacted, self.observer.timed_out)
        self.readiness = Readiness(checks_of(service, root))
        self._figures = LogMetrics(service, self.observer, max_topics, refresh_s, self.readiness.ask)
        self._disks = Disks(_folders(service, root))
        self._build = release(), service.log_id, "SQLite" if service.database_file else "PostgreSQL"
        app = monitoring_app(self.text, self.readiness, Gate(door))
        self.listener = Listener(app, host, port, certificates)

    def __enter__(self) -> Monitoring:
        self._figures.start()
        self._disks.start()
        self.listener.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.listener.stop()
        self._figures.stop()
        self._disks.stop()

    def refresh(self) -> None:
        """Find the figures of the log now."""
        self._figures.refresh()

    def text(self) -> bytes:
        """Return what a scrape gets."""
        if self._certificates is not None:
            self._certificates.look()
        return self.observer.text() + self._figures.text()

    def _looked_at(self) -> Iterator[Family]:
        yield family("txnlog_build_info", [(self._build, 1)])
        yield family("txnlog_ready", [((name,), float(held)) for name, held in self.readiness.last().items()])
        yield from self._disks.families()
        certificates = () if self._certificates is None else (self._certificates,)
        yield family("txnlog_certificate_expires_timestamp_seconds", [((), each.expires_at) for each in certificates])
        use = self._service.database_use
        yield family("txnlog_database_connections", [(("busy",), use.busy), (("idle",), use.idle)])
        yield family("txnlog_database_waiting_writes", [((), use.waiting_writes)])
        consumers, unacknowledged = self._service.connected()
        yield family("txnlog_connected_consumers", [((), consumers)])
        yield family("txnlog_unacknowledged_messages", [((), unacknowledged)])
        refused = {} if self._door is None else self._door.refusals.by_reason()
        yield family("txnlog_refused_requests_total", [((reason,), count) for reason, count in refused.items()])


def _folders(service: MetadataService, root: Root) -> Mapping[str, Path]:
    """Return where on this machine the log lies."""
    places = {"root": root if isinstance(root, Path) else None, "database": service.database_file}
    return {place: path if place == "root" else path.parent for place, path in places.items() if path is not None}
