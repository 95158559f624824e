"""Hot segments as objects: how many requests they take, whose they are, and when they go."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import txn_source
from tests.log.reading import BY_HAND, UNCOMMITTED, registered, send_each, values
from tests.tiers.object_logs import asked, batch, objects
from tests.tiers.proxy import Fault, Proxy
from tests.tiers.stores import Bucket, S3Server
from txn_source import Batching, Log
from txn_source.client.tiering.garbage import collect_garbage
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.topic_name import TopicName
from txn_source.storage import root_marker
from txn_source.storage.object_requests import S3Requests, requests_for
from txn_source.storage.object_root import ObjectRoot
from txn_source.storage.segment_store import ObjectSegments

_LATER_S = 10.0**10


@pytest.fixture
def log(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> Iterator[Log]:
    """A log behind a proxy that counts."""
    with txn_source.connect(bucket.uri_at(proxy.endpoint), metadata=tmp_path / "log.db") as log:
        yield log


def test_flush_to_many_partitions_is_one_request(log: Log, proxy: Proxy, bucket: Bucket) -> None:
    """Write to 32 partitions, plainly and in a transaction: one object has it all, with a part for each partition."""
    log.create_topic("orders", partitions=32)
    producer = log.producer("orders", batching=BY_HAND)
    with log.begin_transaction() as transaction:
        for partition in range(32):
            producer.send(b"plain", partition=partition)
            producer.send(b"of a transaction", partition=partition, txn=transaction)
        asked(proxy)
        producer.flush()
    assert asked(proxy) == {"PUT": 1}
    assert len(objects(bucket)) == 1
    assert Counter(values(log, "orders")) == {b"plain": 32, b"of a transaction": 32}


def test_read_asks_once_for_each_object_of_eight_mebibytes(log: Log, proxy: Proxy, bucket: Bucket) -> None:
    """Write 16 MB in objects of about 8 MiB, and scan: no request but one GET for each object."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=Batching(linger_s=1e6, max_messages=1_000_000, max_bytes=64 << 20))
    for _ in range(16):
        producer.send_batch(batch(1000))
    producer.flush()
    many = len(objects(bucket))
    assert many == asked(proxy)["PUT"] - 1 == 2  # one is the log's marker
    assert sum(len(one) for one in log.scan("orders", columns=["value"])) == 16_000
    found = asked(proxy)
    assert set(found) == {"GET"}
    assert found["GET"] == many


@pytest.mark.long
def test_more_is_read_before_it_is_wanted(log: Log, proxy: Proxy) -> None:
    """Take the first batch of a scan of many objects: others have been asked for, and not all."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    for _ in range(16):
        producer.send_batch(batch(7000))
        producer.flush()
    asked(proxy)
    reader = log.scan("orders", columns=["value"])
    next(iter(reader))
    assert 1 < asked(proxy)["GET"] < 16
    reader.close()


def test_read_of_a_small_range_takes_what_it_needs(log: Log, proxy: Proxy) -> None:
    """Read one entry out of the middle of an object of many: one request, of its bytes alone."""
    log.create_topic("orders", partitions=3)
    producer = log.producer("orders", batching=BY_HAND)
    for partition in range(3):
        producer.send_batch(batch(1000), partition=partition)
    producer.flush()
    asked(proxy)
    assert len(values(log, "orders-partition-1")) == 1000
    [request] = [request for request in proxy.requests if "/segments/" in request.path]
    assert request.range is not None
    assert request.range[1] - request.range[0] < 1_100_000


def test_object_stays_as_long_as_one_partition_needs_it(log: Log, bucket: Bucket) -> None:
    """Let a subscription keep one of two partitions that share an object: it goes when that one is trimmed, too."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders", batching=BY_HAND)
    for partition in range(2):
        producer.send(b"%d" % partition, partition=partition)
    producer.flush()
    log.roll_ledger("orders")
    send_each(producer, [b"later"])
    log.create_subscription("orders", "keeps", initial_position="earliest")
    with log.subscribe("orders", "keeps") as consumer:
        while (message := consumer.receive(1.0)) is not None:
            if message.value == b"0":
                consumer.acknowledge(message)
    kept = set(objects(bucket))
    log.trim("orders", keep_bytes=0)
    assert set(objects(bucket)) == kept
    assert values(log, "orders")
    log.delete_subscription("orders", "keeps")
    log.trim("orders", keep_bytes=0)
    assert len(set(objects(bucket)) & kept) == len(kept) - 1


def test_offloaded_object_goes_and_its_producer_goes_on(log: Log, bucket: Bucket) -> None:
    """Offload and delete the hot copies of what a producer has just written; it writes on."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders", batching=BY_HAND)
    send_each(producer, [b"1", b"2"])
    log.roll_ledger("orders")
    log.offload("orders")
    log.set_policies(topic="orders", offload_deletion_lag=0)
    log.maintain()
    assert objects(bucket) == []
    assert [name for name in bucket.files() if name.endswith(".parquet")]
    send_each(producer, [b"3"])
    assert sorted(values(log, "orders")) == [b"1", b"2", b"3"]


def test_garbage_is_what_ended_writers_left(log: Log, bucket: Bucket) -> None:
    """Leave an object of a closed producer behind, one of an open one and one of nobody's: the first one goes."""
    log.create_topic("orders")
    send_each(log.producer("orders"), [b"1"])
    kept = set(objects(bucket))
    (opened, _), (closed, _) = (log.metadata.open_producer(TopicName.parse("orders"), None, None) for _ in range(2))
    log.metadata.close_producer(closed)
    of = {id_: f"segments/1/{id_}-0123456789ab.arrows" for id_ in (opened.producer_id, closed.producer_id, 0)}
    for path in of.values():
        log.access.segments.put(path, b"x")
    for dry_run in (True, False):
        found = collect_garbage(log.access, 0.0, dry_run=dry_run, clock=lambda: _LATER_S)
        assert (found.paths, found.unknown) == ((of[closed.producer_id],), (of[0],))
    assert set(objects(bucket)) == kept | {of[opened.producer_id], of[0]}
    assert values(log, "orders") == [b"1"]


def test_uploads_of_killed_offloads_are_garbage(log: Log, bucket: Bucket, s3: S3Server, tmp_path: Path) -> None:
    """Leave uploads in parts: of offloads to the root and to where a policy says, one that is young, and somebody
    else's. Only the first two go, and only their parts."""
    elsewhere = s3.make_bucket()
    log.create_topic("orders")
    log.set_policies(topic="orders", offload_uri=elsewhere.uri)
    send_each(log.producer("orders"), [b"1"])
    name = "public/default/orders/0/ledger-1-0123456789ab.parquet"
    root = requests_for(str(log.target.path))
    there = requests_for(elsewhere.uri)
    assert isinstance(root, S3Requests)
    assert isinstance(there, S3Requests)
    root.client._asked("create_multipart_upload", Key=f"folder/tiered/{name}")
    second = name.replace("/ledger", "/_ledger").replace(".parquet", ".aborted")
    there.client._asked("create_multipart_upload", Key=f"folder/{second}")
    there.client._asked("create_multipart_upload", Key="folder/others.parquet")
    assert collect_garbage(log.access, 0.0, dry_run=False, clock=lambda: 1e9).uploads == ()  # moto says 2010 of all
    wanted = (f"s3://{bucket.name}/folder/tiered/{name}", f"s3://{elsewhere.name}/folder/{second}")
    for dry_run in (True, False):
        found = collect_garbage(log.access, 0.0, dry_run=dry_run, clock=lambda: _LATER_S)
        assert sorted(found.uploads) == sorted(wanted)
    assert [key for key, _, _ in there.client.uploads("")] == ["folder/others.parquet"]
    assert collect_garbage(log.access, 0.0, dry_run=False, clock=lambda: _LATER_S).uploads == ()
    assert values(log, "orders") == [b"1"]


def test_garbage_goes_where_uploads_cannot_be_listed(log: Log, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    """Refuse to list uploads: garbage is collected all the same, and a warning names the place."""
    log.create_topic("orders")
    proxy.set_fault(Fault("refuse", lambda request: "uploads" in request.path))
    assert collect_garbage(log.access, 0.0, dry_run=False, clock=lambda: _LATER_S).uploads == ()
    assert "can't be looked for: the store can't be reached" in caplog.text


def test_nothing_is_put_or_missed_in_another_logs_bucket(
    log: Log, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put another log's objects in the place of the log's, as if the name led to another bucket: a client that comes
    then writes nothing there, and says why it can't read."""
    log.create_topic("orders")
    send_each(log.producer("orders"), [b"1"])
    [segment] = objects(bucket)
    bucket.remove(segment)
    own = bucket.read("txnlog.json")
    bucket.write("txnlog.json", b'{"format_version": 3, "log_id": "another"}')
    monkeypatch.setattr(root_marker, "_confirmed", set())
    with pytest.raises(SegmentUnreadableError, match=r"it is missing: s3://.* is the root of the log another"):
        values(log, "orders")
    producer = log.producer("orders", batching=BY_HAND)
    producer.send(b"2")
    with pytest.raises(txn_source.StorageWriteError, match="is the root of the log another"):
        producer.flush()
    assert objects(bucket) == []
    bucket.write("txnlog.json", own)
    assert len(producer.flush()) == 1


def test_object_of_a_slow_writer_is_left_alone(log: Log, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect between the put and the registration."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    append, taken = log.metadata.append, []

    def late(*args: object) -> object:
        taken.append(collect_garbage(log.access, 0.0, dry_run=False, clock=lambda: _LATER_S).paths)
        return append(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(log.metadata, "append", late)
    producer.send(b"1")
    producer.flush()
    assert taken == [()]
    assert values(log, "orders") == [b"1"]


def test_writes_are_registered_in_their_order(log: Log, proxy: Proxy) -> None:
    """Let the first of several puts come last: readers see nothing of the others before it, and then all in order."""
    log.create_topic("orders")
    producer = log.producer("orders")
    proxy.set_fault(Fault("busy", lambda request: request.method == "PUT", times=3))
    for number in range(4):
        producer.send_batch(pa.record_batch({"value": pa.array([b"%d" % number + bytes(5 << 20)], pa.binary())}))
        producer.send_batch(pa.record_batch({"value": pa.array([b"%d" % number + bytes(5 << 20)], pa.binary())}))
    ids = producer.flush()
    assert len(ids) == 8
    assert [value[:1] for value in values(log, "orders")] == [b"0", b"0", b"1", b"1", b"2", b"2", b"3", b"3"]
    assert proxy.struck == 3


def test_dropped_producer_lives_until_its_put_is_registered(log: Log, proxy: Proxy) -> None:
    """Drop a producer whose put takes a while, without a flush."""
    log.create_topic("orders")
    producer = log.producer("orders")
    proxy.set_fault(Fault("busy", lambda request: request.method == "PUT", times=3))
    producer.send(b"1")
    ended = threading.Event()
    thread = producer._linger
    del producer
    while not values(log, "orders") and thread._thread is not None and thread._thread.is_alive():
        ended.wait(0.01)
    assert values(log, "orders") == [b"1"]


_WRITER = """
    import sys, txn_source
    log = txn_source.connect(sys.argv[1], metadata=sys.argv[2])
    producer = log.producer("orders")
    number = 0
    while True:
        for _ in range(20):
            producer.send(b"%d" % number)
            number += 1
        producer.flush()
        print(number, flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.long)])
def test_killed_writer_loses_nothing_that_was_acknowledged(
    log: Log, bucket: Bucket, tmp_path: Path, times: int
) -> None:
    """Kill writers with signal 9 in the middle: what they were told of is there, once and in order."""
    log.create_topic("orders")
    uri = str(log.target.path)
    told: list[int] = []
    for _ in range(times):
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_WRITER), uri, str(tmp_path / "log.db")],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        last = 0
        for line in writer.stdout:
            last = int(line)
            if last >= 100:
                break
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.communicate()[0].split()
        told.append(int(rest[-1]) if rest else last)
    found = [int(value) for value in values(log, "orders")]
    starts = [at for at, value in enumerate(found) if value == 0]
    runs = [found[a:b] for a, b in zip(starts, [*starts[1:], len(found)], strict=True)]
    assert len(runs) == times
    for run, acknowledged in zip(runs, told, strict=True):
        assert run == list(range(len(run)))
        assert len(run) >= acknowledged
    left = collect_garbage(log.access, 0.0, dry_run=False, clock=lambda: _LATER_S)
    assert set(left.paths).isdisjoint(registered(log))
    assert [int(value) for value in values(log, "orders", UNCOMMITTED)] == found


def test_path_of_an_object_never_leaves_the_prefix(s3: S3Server, bucket: Bucket) -> None:
    """Ask for paths that a service that lies may send."""
    store = ObjectSegments(ObjectRoot.at(bucket.uri_at(s3.endpoint)))
    for path in ("../other/segments/1/1-0123456789ab.arrows", "/segments/x"):
        with pytest.raises(txn_source.InvalidArgumentError, match="leaves the log's root"):
            store.size(path)


def test_objects_are_there_as_long_as_they_are_needed(log: Log, bucket: Bucket) -> None:
    """Write to three partitions, roll, offload, delete and trim at random: all that should be read is, each object that
    a hot ledger needs is there, and at the end, when all is trimmed, none is."""
    rng = random.Random(1)
    log.create_topic("orders", partitions=3)
    log.set_policies(topic="orders", offload_deletion_lag=0)
    producer = log.producer("orders", batching=BY_HAND)
    closed: set[bytes] = set()
    opened: set[bytes] = set()
    for step in range(12):
        match rng.choice(["write", "write", "write", "roll", "tiers", "trim"]):
            case "write":
                for partition in rng.sample(range(3), rng.randint(1, 3)):
                    opened.add(value := b"%d-%d" % (step, partition))
                    producer.send(value, partition=partition)
                producer.flush()
            case "roll":
                log.roll_ledger("orders")
                closed, opened = closed | opened, set()
            case "tiers":
                log.maintain()
            case _:
                log.trim("orders", keep_bytes=0)
                closed = set()
        assert set(values(log, "orders")) == closed | opened
        assert set(objects(bucket)) == set(registered(log))
    log.roll_ledger("orders")
    log.trim("orders", keep_bytes=0)
    assert objects(bucket) == []
    assert values(log, "orders") == []
