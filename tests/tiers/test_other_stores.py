"""Hot segments by ``pyarrow.fs``, as on GCS and HDFS, and on S3 where ``botocore`` isn't installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import txn_source
from tests.log.reading import BY_HAND, UNCOMMITTED, send_each, values
from tests.tiers.object_logs import objects
from tests.tiers.proxy import Fault, Proxy
from tests.tiers.stores import Bucket
from txn_source import InvalidArgumentError, Log, SegmentUnreadableError
from txn_source.client.tiering.garbage import collect_garbage
from txn_source.storage import object_requests
from txn_source.storage.object_requests import ArrowRequests


@pytest.fixture
def log(bucket: Bucket, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """A log of a process without botocore, behind a proxy."""
    find = object_requests.importlib.util.find_spec
    monkeypatch.setattr(object_requests.importlib.util, "find_spec", lambda n: None if n == "botocore" else find(n))
    with txn_source.connect(bucket.uri_at(proxy.endpoint), metadata=tmp_path / "log.db") as log:
        assert isinstance(object_requests.requests_for(str(log.target.path)), ArrowRequests)
        yield log


@pytest.mark.long
def test_log_lives_without_botocore(log: Log, bucket: Bucket, tmp_path: Path) -> None:
    """Write to four partitions, plainly and in transactions, read all and a part, offload, delete, trim and collect."""
    log.create_topic("orders", partitions=4)
    producer = log.producer("orders", batching=BY_HAND)
    for number in range(3):
        for partition in range(4):
            producer.send(b"%d" % number, partition=partition)
        producer.flush()
    with log.begin_transaction() as txn:
        producer.send(b"3", txn=txn)
    aborted = log.begin_transaction()
    producer.send(b"4", txn=aborted)
    producer.flush()
    aborted.abort()
    assert sorted(values(log, "orders")) == sorted([b"0", b"1", b"2"] * 4 + [b"3"])
    assert values(log, "orders-partition-1") in ([b"0", b"1", b"2"], [b"0", b"1", b"2", b"3"])
    assert b"4" in values(log, "orders", UNCOMMITTED)
    producer.send_batch(pa.record_batch({"value": pa.array([bytes(9 << 20)], pa.binary())}), partition=0)
    producer.flush()
    assert max(len(value) for value in values(log, "orders")) == 9 << 20
    assert collect_garbage(log.access, 0.0, dry_run=False, clock=lambda: 1e10).paths == ()
    log.roll_ledger("orders")
    log.offload("orders")
    log.delete_hot("orders")
    assert objects(bucket) == []
    assert len(values(log, "orders")) == 14
    log.trim("orders", keep_bytes=0)
    assert bucket.names() == []
    txn_source.connect(bucket.uri.replace("/folder", "/other"), metadata=tmp_path / "other.db").close()
    with pytest.raises(InvalidArgumentError, match="is the root of the log"):
        txn_source.connect(str(log.target.path), metadata=tmp_path / "other.db")


def test_faults_are_told_without_botocore(log: Log, proxy: Proxy, bucket: Bucket) -> None:
    """Cut an object short, and remove it; and lose the answers of some puts."""
    log.create_topic("orders")
    proxy.set_fault(Fault("lose", lambda request: request.method == "PUT", times=1))
    send_each(log.producer("orders"), [b"1"])
    assert values(log, "orders") == [b"1"]
    proxy.set_fault(None)
    [segment] = objects(bucket)
    data = bucket.read(segment)
    bucket.write(segment, data[:-20])
    object_requests._requests.cache_clear()
    with pytest.raises(SegmentUnreadableError, match="it is truncated"):
        values(log, "orders")
    bucket.remove(segment)
    object_requests._requests.cache_clear()
    with pytest.raises(SegmentUnreadableError, match="it is missing"):
        values(log, "orders")
