"""Listening on a port of this machine, and how many connections there may be."""

from __future__ import annotations

import resource
import socket
from contextlib import suppress

from txn_source.model.errors import UnavailableError

_MAX_CONNECTIONS = 16_384
_OTHER_FILES = 512
UNREAD_S = 20.0
"""So long whoever asked may take nothing of its answer."""


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; 0 takes a free port. Who never reads loses its connection (``UNREAD_S``).

    Raises:
        UnavailableError: the port is taken, or the address is not this machine's.
    """
    bare = host.strip("[]")
    try:
        found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except OSError:
        raise cannot_listen(f"{host}:{port}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_S * 1000))
        made.bind(address)
        made.listen(128)
    except OSError:
        made.close()
        raise cannot_listen(f"{host}:{port}") from None
    return made


def allow_files() -> None:
    """Let this process open as many files as the system lets it have; each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # on macOS the hard limit may be more than the kernel's
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections() -> int:
    """Return how many connections to take, so that descriptors are left for databases, files and HTTP."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MAX_CONNECTIONS if limit < 0 else max(64, min(_MAX_CONNECTIONS, (limit - _OTHER_FILES) // 2))


def cannot_listen(address: str) -> UnavailableError:
    """Return the error of an address that a server can't have."""
    return UnavailableError(
        f"The server can't listen on {address}: the port is taken or the address is not this machine's.",
        "Stop what listens there, or choose another port.",
    )
