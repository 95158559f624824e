"""The source over a log on an object store, by its service's endpoint alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import txn_source
from tests.log.objects import new_prefix, s3_surroundings
from tests.spark.plain import Frame, logs_closed, write_table
from txn_source.client.target import metadata_url, open_service
from txn_source.metadata.service.server import Server


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """A service over a new log on an object store."""
    with s3_surroundings():
        service = open_service(new_prefix(), metadata_url(tmp_path / "log.db"), create=True)
        with Server(service, "127.0.0.1", 0) as server, logs_closed():
            yield server.address


def test_batch_read_and_write(endpoint: str) -> None:
    """Write by tasks and by a producer; read from hot and from offloaded copies."""
    given = {"endpoint": endpoint, "topic": "orders"}
    with txn_source.connect(endpoint=endpoint) as log:
        log.create_topic("orders", partitions=3, schema=pa.schema([("id", pa.int64())]))
        write_table(pa.table({"id": range(1000)}), 3, given)
        aborted = log.begin_transaction()
        with log.producer("orders") as producer:
            producer.send_batch(pa.record_batch({"id": pa.array([-1, -2])}), txn=aborted)
            producer.flush()
        aborted.abort()
        for _ in range(2):
            frame = Frame({**given, "isolationLevel": "read_uncommitted"})
            assert sorted(row.id for row in frame.collect()) == list(range(-2, 1000))
            log.roll_ledger("orders")
            log.offload("orders")
            log.set_policies(topic="orders", offload_deletion_lag=0)
            log.maintain()
