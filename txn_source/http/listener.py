"""An application on a port, in a thread, with the certificates of the service."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvicorn
from cryptography import x509
from uvicorn.protocols.http.h11_impl import H11Protocol

from txn_source.metadata.access.addresses import place_of
from txn_source.metadata.access.watched_files import WatchedFiles
from txn_source.metadata.service.ports import bound
from txn_source.model.errors import InvalidArgumentError

FIRST_REQUEST_S = 10.0
"""So long a connection may take to send the head of a request."""
_GRACE_S = 2
_AT_ONCE = 64
_log = logging.getLogger(__name__)


class Certificates:
    """The files of TLS, for connections that are made from now on; read again when they change."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        """Read them.

        Raises:
            InvalidArgumentError: they can't be used.
        """
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if client_ca is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED
        paths = [cert, key] if client_ca is None else [cert, key, client_ca]
        self.expires_at = 0.0
        """When the first of the certificates in the file ends, in seconds since 1970."""
        self._files = WatchedFiles(paths, self._load)

    def look(self) -> None:
        """Take notice of files that have changed."""
        self._files.current()

    def _load(self, contents: Mapping[Path, bytes]) -> object:
        try:
            found = x509.load_pem_x509_certificates(contents[self._cert])
            self.context.load_cert_chain(self._cert, self._key, password="")  # else it would ask on the terminal
            if self._client_ca is not None:
                self.context.load_verify_locations(self._client_ca)
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(
                f"The certificate {self._cert} and its key can't be used for HTTP: {error}.", "Check the files."
            ) from None
        self.expires_at = min(each.not_valid_after_utc for each in found).timestamp()
        return object()


class Prompt(H11Protocol):
    """A connection that is closed if the head of its first request, or of a request that it began, is late, or to make
    room for a new one.

    uvicorn closes connections that are idle after an answer. One without any request would stay, and keep a file. A new
    connection is always accepted: it may be the check whether the service lives. Room is made by the address with most
    connections, so one address never keeps others out.
    """

    _place = ""
    _made = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._made = self.loop.time()
        if self.client is not None:
            self._place = place_of("http:{}:{}".format(*self.client))
        self._make_room()
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        self._stop_waiting()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing where uvicorn would advise to install what speaks WebSocket: nobody here does."""

    def _make_room(self) -> None:
        """Close an idle connection, the oldest of the address that has most, if there are as many as may be."""
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        idle = [each for each in self.connections if isinstance(each, Prompt) and each is not self and each.is_idle]
        if not idle:
            self.transport.close()  # all others get an answer now
            return
        counts = Counter(each._place for each in self.connections if isinstance(each, Prompt))
        closed = min(idle, key=lambda each: (-counts[each._place], each._made))
        self.connections.discard(closed)  # uvicorn counts it until it is gone, and would refuse the new one
        closed.transport.close()

    @property
    def is_idle(self) -> bool:
        """True if no request is answered on it."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _wait(self) -> None:
        if not self.is_idle:
            self._stop_waiting()
        elif self._timer is None:
            self._timer = self.loop.call_later(FIRST_REQUEST_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.is_idle:
            self.transport.close()


class Listener:
    """An application that is served in a thread. A context manager that ends it."""

    def __init__(
        self, app: Any, host: str, port: int, certificates: Certificates | None = None, at_once: int = _AT_ONCE
    ) -> None:
        """Bind to the port; 0 takes a free one, see ``port``. ``at_once``: so many connections, the idle ones too.

        Raises:
            UnavailableError: it is taken, or the address is not this machine's.
        """
        logging.getLogger("uvicorn").setLevel(logging.WARNING)  # that it serves, whoever made it says
        self._socket = bound(host, port)
        self.port = int(self._socket.getsockname()[1])
        self.address = f"{host}:{self.port}"
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=at_once,
            timeout_graceful_shutdown=_GRACE_S,
            proxy_headers=False,  # whoever says so could be anybody
            http=Prompt,
            ws="none",
        )
        config.load()
        config.ssl = None if certificates is None else certificates.context
        self.scheme = "http" if certificates is None else "https"
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="txnlog-http", daemon=True)

    def __enter__(self) -> Listener:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to serve; connections wait in the socket until the thread takes them."""
        self._thread.start()

    def stop(self) -> None:
        """Answer what was asked, for a moment, then end."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(_GRACE_S + 3.0)
        self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run([self._socket])
        except Exception:
            _log.exception("HTTP is served no more on %s", self.address)
