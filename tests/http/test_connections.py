"""Connections that are open, idle ones too, never keep a new one out."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from txn_source.http.listener import Listener

Connect = Callable[[str], socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect from an address of this machine to a server that takes eight connections; the sockets are closed."""
    app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("here"))])
    with ExitStack() as held:
        port = held.enter_context(Listener(app, "127.0.0.1", 0, at_once=8)).port

        def connected(address: str) -> socket.socket:
            return held.enter_context(socket.create_connection(("127.0.0.1", port), 60, (address, 0)))

        yield connected


def is_answered(connection: socket.socket) -> bool:
    """Ask; False if the connection was closed instead."""
    try:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        answer = b""
        while not answer.endswith(b"here"):
            answer += (part := connection.recv(1024))
            if not part:
                return False
        return answer.startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


def test_new_connection_is_answered_whatever_others_hold(connect: Connect) -> None:
    """Hold more from one address than there may be: each new one is answered, the oldest of that address are closed,
    and the only one of another address stays."""
    other = connect("127.0.0.2")
    assert is_answered(other)
    silent = [connect("127.0.0.1") for _ in range(20)]
    assert is_answered(connect("127.0.0.1"))
    assert is_answered(connect("127.0.0.3"))
    assert is_answered(other)
    assert not is_answered(silent[0])
    assert is_answered(silent[-1])
