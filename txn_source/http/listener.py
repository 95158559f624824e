"""An application on a port, in a thread, with the certificates of the service."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvicorn
from cryptography import x509
from uvicorn.protocols.http.h11_impl import H11Protocol

from txn_source.metadata.access.door import place_of
from txn_source.metadata.access.watched_files import WatchedFiles
from txn_source.metadata.service.ports import bound
from txn_source.model.errors import InvalidArgumentError

FIRST_REQUEST_S = 10.0
"""So long a connection may take to send the head of a request."""
_GRACE_S = 2
_AT_ONCE = 64
_SHARE_OF_ONE = 0.5
"""So much of all connections one address may have."""
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
    """A connection that is closed if a request that it begins, or its first one, isn't there in time, or at once if its
    address has as many as one may have.

    uvicorn closes those that are idle after an answer; one on which nothing ever comes would stay, and keep a file. And
    what one address has open must not take the place of all others.
    """

    _place = ""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        if self.client is not None:
            self._place = place_of("http:{}:{}".format(*self.client))
        if self._is_one_too_many():
            transport.close()
        else:
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

    def _is_one_too_many(self) -> bool:
        if self.limit_concurrency is None:
            return False
        of_it = sum(isinstance(each, Prompt) and each._place == self._place for each in self.connections)
        return bool(of_it > self.limit_concurrency * _SHARE_OF_ONE)

    def _wait(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._timer is None:
            self._timer = self.loop.call_later(FIRST_REQUEST_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
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
