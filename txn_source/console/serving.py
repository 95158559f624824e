"""The console on a port."""

from __future__ import annotations

from collections.abc import Iterable

from txn_source.console.admission import Admission
from txn_source.console.app import ConsoleParts, console_app
from txn_source.console.previews import InProcesses, Previews
from txn_source.http.listener import Certificates, Listener
from txn_source.http.release import release
from txn_source.metadata.access.door import Door
from txn_source.metadata.service.guard import Guard
from txn_source.metadata.service.service import MetadataService
from txn_source.storage.object_root import Root

_CONNECTIONS = 1024
"""A browser keeps up to six open, and one address, such as a proxy's, half of all."""


class Console:
    """The console of a service. A context manager that ends it."""

    def __init__(
        self,
        service: MetadataService,
        root: Root,
        host: str,
        port: int,
        *,
        certificates: Certificates | None = None,
        door: Door | None = None,
        names: Iterable[str] = (),
        previews: Previews | None = None,
    ) -> None:
        """Bind to the port; 0 takes a free one. ``door`` and ``certificates`` are the service's own.

        Args:
            service: whose log is shown.
            root: where its segments lie.
            host: address to listen on.
            port: and the port.
            certificates: None: plain text.
            door: who may come in; None: anybody.
            previews: what reads pages of messages; None: processes.
            names: by which browsers reach it beside its address, such as a proxy's.

        Raises:
            UnavailableError: nobody can listen there.
        """
        door = Door() if door is None else door
        admission = Admission(door, host, names)
        self._previews = InProcesses() if previews is None else previews
        look = (lambda: None) if certificates is None else certificates.look
        parts = ConsoleParts(service, Guard(service, door), root, admission, release(), self._previews.page, look)
        self.snapshots = parts.snapshots
        self.listener = Listener(console_app(parts), host, port, certificates, _CONNECTIONS)
        self.address = f"{self.listener.scheme}://{self.listener.address}/"

    def __enter__(self) -> Console:
        self.listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.stop()
        self._previews.close()
