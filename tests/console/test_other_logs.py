"""The console of logs whose metadata is in PostgreSQL, and whose messages are in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.console.asked import Asked
from tests.console.demo import fill
from tests.console.test_messages import all_pages
from tests.tiers.conftest import bucket, credentials
from tests.tiers.stores import Bucket, S3Server
from txn_source import connect
from txn_source.client.target import open_service
from txn_source.console.app import LOOKS
from txn_source.console.serving import Console
from txn_source.metadata.service.server import Server
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.storage.object_root import root_at

__all__ = ["bucket", "credentials"]
ASKED = {"topic": "orders", "partition": 0, "name": "orders", "limit": 500}


class Served(Asked):
    """A console beside a service over a root, with metadata elsewhere."""

    def __init__(self, root: str, metadata: DatabaseUrl) -> None:
        self.stack = ExitStack()
        service = open_service(root, metadata, create=True)
        server = self.stack.enter_context(Server(service, "127.0.0.1", 0))
        self.log = self.stack.enter_context(connect(endpoint=server.address))
        self.console = Console(service, root_at(root), "127.0.0.1", 0)


@pytest.fixture
def served(bucket: Bucket, s3: S3Server, url: DatabaseUrl) -> Iterator[Served]:
    with Served(bucket.uri_at(s3.endpoint), url) as made:
        yield made


@pytest.mark.long
def test_all_is_answered(served: Served) -> None:
    """Ask for everything of a lively log, browse all of a topic, and change something."""
    fill(served.log, messages=40)
    for path in LOOKS:
        more = {"name": "billing"} if path.startswith("subscription") else {}
        assert served.get(path, **ASKED | more).status == 200, path
    pages = [all_pages(served, topic="orders", limit=500, from_=start) for start in ("earliest", "latest")]
    assert len(pages[0]) == len(pages[1]) == served.log.count("orders")
    for name in ("guessed", "\x00", "ü" * 5000):
        assert served.get("subscription", topic="orders", name=name).status in (400, 404), name[:9]
    of = {"topic": "orders", "name": "billing", "to": {"at": "latest"}}
    found = served.post("subscriptions/preview", of).json
    assert found["skipped_messages"] == served.log.subscription("orders", "billing").backlog > 0
    assert served.post("subscriptions/seek", of | {"epoch": found["epoch"]}).status == 200
    first = served.get("blockers").rows[0]
    released = served.post("transactions/abort", {"txn": first["txn"]}).json["released"]
    assert sum(each["messages"] for each in released) == first["held_back_messages"] - first["own_messages"]
