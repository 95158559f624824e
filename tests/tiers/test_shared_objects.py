"""Reads of partitions that share objects: each object is asked for once, and damage is that of its entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import txn_source
from tests.log.reading import BY_HAND, values
from tests.tiers.object_logs import asked, batch, objects
from tests.tiers.proxy import Proxy
from tests.tiers.stores import Bucket
from txn_source import Log
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.model.errors import SegmentUnreadableError
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection


@pytest.fixture
def log(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> Iterator[Log]:
    """A log behind a proxy that counts."""
    with txn_source.connect(bucket.uri_at(proxy.endpoint), metadata=tmp_path / "log.db") as log:
        yield log


def test_read_of_many_partitions_asks_once_for_each_object(log: Log, proxy: Proxy, bucket: Bucket) -> None:
    """Write 16 MB to 8 partitions in objects of all of them, unevenly, and scan: about one GET for each object, and as
    many bytes; what is read of one partition alone is what that one has."""
    log.create_topic("orders", partitions=8)
    producer = log.producer("orders", batching=BY_HAND)
    for _ in range(5):
        for partition in range(8):
            producer.send_batch(batch(200 + 20 * partition), partition=partition)
        producer.flush()
    many = len(objects(bucket))
    assert many > 1
    asked(proxy)
    found = log.scan("orders", columns=["__partition", "__entry_id", "__batch_index", "value"]).read_all()
    for partition in range(8):
        mine = found.filter(pc.field("__partition") == partition).select(["__entry_id", "__batch_index"])
        rows = 200 + 20 * partition
        assert mine.to_pydict() == {
            "__entry_id": [entry for entry in range(5) for _ in range(rows)],
            "__batch_index": list(range(rows)) * 5,
        }
    ranges = [request.range for request in proxy.requests]
    assert many <= len(ranges) <= many + 2
    assert sum(r[1] - r[0] + 1 for r in ranges if r is not None) < 42 << 20
    asked(proxy)
    assert len(values(log, "orders-partition-3")) == 5 * 260
    assert sum(r[1] - r[0] + 1 for r in (request.range for request in proxy.requests) if r is not None) < 2 << 20


@pytest.mark.long
def test_tasks_share_partitions_rather_than_objects(log: Log, proxy: Proxy, bucket: Bucket) -> None:
    """Plan a read of 16 partitions for several tasks: each has a part of each partition, and between them they ask for
    an object once."""
    log.create_topic("orders", partitions=16)
    producer = log.producer("orders", batching=BY_HAND)
    for _ in range(12):
        for partition in range(16):
            producer.send_batch(batch(500), partition=partition)
        producer.flush()
    many = len(objects(bucket))
    source = resolve(log.metadata, Selection.of("orders"))
    planned = plan(OwnLog(log.access), source, ReadRequest(min_partitions=4))
    assert len(planned.tasks) == 4
    asked(proxy)
    rows = Counter[int]()
    for task in planned.tasks:
        assert len(task) == len({piece.partition for piece in task}) == 16
        reader = planned.reader(OwnLog(log.access), pa.schema([("__partition", pa.int32()), ("value", pa.binary())]))
        for found in reader.read(task):
            rows.update(found["__partition"].to_pylist())
    assert rows == dict.fromkeys(range(16), 6000)
    assert asked(proxy)["GET"] == many  # of 16 that each partition alone would ask


def test_damage_of_a_shared_object_is_that_of_its_entries(log: Log, bucket: Bucket) -> None:
    """Cut off the end of an object of ten partitions, and change a byte of another one: what lies before is read, the
    partitions that nothing happened to are whole, and what is said names the entry."""
    log.create_topic("orders", partitions=10)
    producer = log.producer("orders", batching=BY_HAND)
    for _ in range(2):
        for partition in range(10):
            producer.send_batch(batch(100), partition=partition)
        producer.flush()
    cut, changed = objects(bucket)
    whole = {name: bucket.read(name) for name in (cut, changed)}
    bucket.write(cut, whole[cut][: len(whole[cut]) // 2])
    with pytest.raises(SegmentUnreadableError, match=f"{cut} is unreadable: entry .*it is truncated"):
        log.scan("orders").read_all()
    bucket.write(cut, whole[cut])
    middle = len(whole[changed]) // 2
    bucket.write(changed, whole[changed][:middle] + b"\xff" + whole[changed][middle + 1 :])
    with pytest.raises(SegmentUnreadableError, match=f"{changed} is unreadable: entry .* has checksum"):
        log.scan("orders").read_all()
    sizes = []
    for partition in range(10):
        with suppress(SegmentUnreadableError):
            sizes.append(len(values(log, f"orders-partition-{partition}")))
    assert sizes == [200] * 9
