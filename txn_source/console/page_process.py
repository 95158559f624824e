"""The process that reads one page of messages for the console: ``previews`` starts it, and answers its calls."""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.console.api.messages import page
from txn_source.metadata.store.entries_before import Before
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.relay import RelayedTransport
from txn_source.model.errors import LimitExceededError
from txn_source.storage.object_root import root_at


class _Reading:
    """The log as the page's visitor may have it."""

    def __init__(self, transport: RelayedTransport, root: str) -> None:
        self._transport = transport
        stub = MetadataStub(transport)
        stub.get_log()
        self.access = Access(stub, root_at(root))

    def entries_before(self, partition_id: int, end: int, messages: int, of_bytes: int) -> Before | None:
        found = self._transport.ask([partition_id, end, messages, of_bytes])
        return None if found is None else Before(*found)


def _page(transport: RelayedTransport, job: Any) -> Any:
    try:
        return page(SimpleNamespace(query_params=job["query"]), _Reading(transport, job["root"]))
    except MemoryError:
        raise LimitExceededError(
            "Reading these messages needs more memory than the console has for a page.", "Read them with a client."
        ) from None


def main() -> None:
    """Read the page that the process at the other end of the connection asks for, then end."""
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(2)
    connection = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError):  # nobody asks any more
        job, transport = json.loads(connection.recv_bytes()), RelayedTransport(connection)
        transport.send_result(lambda: _page(transport, job))


if __name__ == "__main__":
    main()
