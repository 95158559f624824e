"""The process that reads one page of messages for the console: ``previews`` starts it, and answers its calls."""

from __future__ import annotations

import json
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, NoReturn

import pyarrow as pa

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.client.access import Access
from txn_source.console.api.messages import page
from txn_source.metadata.protocol.convert import error_from_wire, error_to_wire
from txn_source.metadata.store.entries_before import Before
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.door import translated
from txn_source.model.errors import InvalidArgumentError, LimitExceededError
from txn_source.storage.object_root import root_at


class _Asked:
    """The process that started this one: it makes calls of the service as the visitor."""

    timeout_s = 30.0

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def call(self, method: str, request: Any) -> Any:
        data = self._ask(b"c" + json.dumps(method).encode() + b"\n" + request.SerializeToString())
        return getattr(pb, f"{method}Response").FromString(data)

    def converse(self, method: str, requests: Iterator[Any]) -> NoReturn:
        raise InvalidArgumentError("The console holds no conversations.", "Use a client.")

    def close(self) -> None:
        """There is nothing of its own."""

    def entries_before(self, partition_id: int, end: int, messages: int, of_bytes: int) -> Before | None:
        found = json.loads(self._ask(b"b" + json.dumps([partition_id, end, messages, of_bytes]).encode()))
        return None if found is None else Before(*found)

    def _ask(self, question: bytes) -> bytes:
        with self._lock:
            self._connection.send_bytes(question)
            answer = self._connection.recv_bytes()
        if answer[:1] == b"e":
            raise error_from_wire(pb.Error.FromString(answer[1:]))
        return answer[1:]


def _answer(connection: Connection, job: Any) -> bytes:
    asked = _Asked(connection)
    try:
        stub = MetadataStub(asked)
        stub.get_log()
        reading = SimpleNamespace(access=Access(stub, root_at(job["root"])), entries_before=asked.entries_before)
        return b"p" + json.dumps(page(SimpleNamespace(query_params=job["query"]), reading)).encode()
    except MemoryError:
        error = LimitExceededError(
            "Reading these messages needs more memory than the console has for a page.", "Read them with a client."
        )
        return b"e" + error_to_wire(error).SerializeToString()
    except Exception as error:
        return b"e" + error_to_wire(translated(error, "messages")).SerializeToString()


def main() -> None:
    """Read the page that the process at the other end of the connection asks for, then end."""
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(2)
    connection = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError):  # nobody asks any more
        connection.send_bytes(_answer(connection, json.loads(connection.recv_bytes())))


if __name__ == "__main__":
    main()
