"""Calls of a process that has no way of its own to a service: the process that started it makes them.

The connection carries messages of one letter and bytes. From the process: ``c`` a call (its name in JSON, a line's end,
the request), ``q`` another question in JSON, ``r`` its result in JSON, ``e`` the error that it ended with. To it: ``o``
an answer, ``e`` an error.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from google.protobuf.message import DecodeError

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.convert import error_from_wire, error_to_wire
from txn_source.metadata.stub.transport import Transport
from txn_source.model.door import translated
from txn_source.model.errors import InvalidArgumentError, TxnLogError

_MOST = 64 << 20


class RelayedTransport:
    """Makes calls through the process at the other end of a connection."""

    timeout_s = 30.0

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def call(self, method: str, request: Any) -> Any:
        data = self._ask(b"c" + json.dumps(method).encode() + b"\n" + request.SerializeToString())
        return getattr(pb, f"{method}Response").FromString(data)

    def ask(self, question: Any) -> Any:
        """Ask the other process something else than a call of the service."""
        return json.loads(self._ask(b"q" + json.dumps(question).encode()))

    def converse(self, method: str, requests: Iterator[Any]) -> NoReturn:
        raise InvalidArgumentError("This process holds no conversations.", "Use a client.")

    def close(self) -> None:
        """There is nothing of its own."""

    def send_result(self, make: Callable[[], Any]) -> None:
        """Send what ``make`` returns, or the error that it raises, as the last message."""
        try:
            data = b"r" + json.dumps(make()).encode()
        except Exception as error:
            data = _error(error)
        self._connection.send_bytes(data)

    def _ask(self, question: bytes) -> bytes:
        with self._lock:
            self._connection.send_bytes(question)
            answer = self._connection.recv_bytes()
        if answer[:1] == b"e":
            raise error_from_wire(pb.Error.FromString(answer[1:]))
        return answer[1:]


def result_of(connection: Connection, transport: Transport, answer: Callable[[Any], Any]) -> Any:
    """Answer a process until it has a result, a JSON object; return that.

    An attacker may control the process. It may send anything, or stop in the middle of a message, so the caller kills
    it after a while. ``transport`` makes its calls, and ``answer`` answers its other questions.

    Raises:
        EOFError, OSError: it has ended, or its result can't be decoded.
        TxnLogError: the error that it ended with.
    """
    while True:
        data = connection.recv_bytes(_MOST)
        kind, data = data[:1], data[1:]
        if kind in (b"r", b"e"):
            return _end(kind, data)
        try:
            if kind == b"q":
                found = json.dumps(answer(json.loads(data))).encode()
            else:
                name, _, request = data.partition(b"\n")
                method = json.loads(name)
                found = transport.call(method, getattr(pb, f"{method}Request").FromString(request)).SerializeToString()
        except Exception as error:
            connection.send_bytes(_error(error))
        else:
            connection.send_bytes(b"o" + found)


def _end(kind: bytes, data: bytes) -> Any:
    """Return a process's result, or raise its error."""
    try:
        found = json.loads(data) if kind == b"r" else error_from_wire(pb.Error.FromString(data))
    except (ValueError, RecursionError, DecodeError) as error:
        raise EOFError(f"its result can't be decoded: {error}") from None
    if isinstance(found, TxnLogError):
        raise found
    if not isinstance(found, dict):
        raise EOFError("its result is no JSON object")
    return found


def _error(error: Exception) -> bytes:
    known = error if isinstance(error, TxnLogError) else translated(error, "a page")
    return b"e" + bytes(error_to_wire(known).SerializeToString())
