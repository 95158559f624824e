"""Object stores that fail at random, and puts that come late: nothing is lost, doubled, or kept for ever."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn_source
from tests.log.reading import BY_HAND, send_each, values
from tests.tiers.object_logs import objects
from tests.tiers.proxy import Fault, Proxy, Request
from tests.tiers.stores import Bucket, S3Server
from txn_source import Log, SegmentUnreadableError, TxnLogError
from txn_source.client.tiering.garbage import collect_garbage
from txn_source.storage.object_requests import requests_for

_LATER_S = 10.0**10


class Storm(Proxy):
    """A store that does something else than it was asked for with a part of all requests."""

    def __init__(self, upstream: str, seed: int) -> None:
        super().__init__(upstream)
        self._rng = random.Random(seed)
        self._guard = threading.Lock()
        self.share = 0.0
        self.counts: dict[str, int] = {}

    def strike(self, request: Request) -> Fault | None:
        with self._guard:
            if self._rng.random() >= self.share:
                return None
            kinds = ["refuse", "lose", "busy", "cut"]
            if request.method == "GET" and "/segments/" in request.path:
                kinds += ["corrupt", "missing", "short"]
            what = self._rng.choice(kinds)
            self.counts[what] = self.counts.get(what, 0) + 1
        return Fault(what)


@pytest.fixture
def storm(s3: S3Server) -> Iterator[Storm]:
    with Storm(s3.endpoint, 1) as storm:
        yield storm


@pytest.mark.long
def test_storms_lose_and_double_nothing(storm: Storm, bucket: Bucket, tmp_path: Path) -> None:
    """Let three of ten requests fail in one of seven ways while a producer writes plainly and in transactions, readers
    read, and two collections of garbage run at once: a read yields what was acknowledged, or says why not; at the end
    all is there, once."""
    rng, steps = random.Random(2), 8
    kinds = ["plain", "plain", "commit", "abort", "garbage", "roll"]
    wanted: list[bytes] = []
    with txn_source.connect(bucket.uri_at(storm.endpoint), metadata=tmp_path / "log.db") as log:
        log.create_topic("orders", partitions=4)
        producer = log.producer("orders", batching=BY_HAND)
        storm.share = 0.3
        failed = 0
        for step in range(steps):
            value = b"%d" % step
            match rng.choice(kinds):
                case "plain":
                    producer.send(value, partition=step % 4)
                    producer.flush()
                    wanted.append(value)
                case "commit" | "abort" as how:
                    txn = log.begin_transaction()
                    producer.send(value, partition=step % 4, txn=txn)
                    producer.send(value + b"'", partition=(step + 1) % 4, txn=txn)
                    producer.flush()
                    if how == "commit":
                        txn.commit()
                        wanted += [value, value + b"'"]
                    else:
                        txn.abort()
                case "garbage":
                    twice = [threading.Thread(target=_collect, args=(log,)) for _ in range(2)]
                    for thread in twice:
                        thread.start()
                    for thread in twice:
                        thread.join()
                case _:
                    log.roll_ledger("orders")
            try:
                assert sorted(values(log, "orders")) == sorted(wanted)
            except SegmentUnreadableError:
                failed += 1
        assert sum(storm.counts.values()) > steps // 2
        assert failed < steps
        storm.share = 0.0
        assert sorted(values(log, "orders")) == sorted(wanted)
        _collect(log)
        assert sorted(values(log, "orders")) == sorted(wanted)


def test_put_that_comes_late_is_garbage(bucket: Bucket, s3: S3Server, tmp_path: Path) -> None:
    """Put a segment once more after it was trimmed, and after its topic was deleted, as a try that the store finished
    long after it was given up: it goes with the next collection."""
    uri = bucket.uri_at(s3.endpoint)
    with txn_source.connect(uri, metadata=tmp_path / "log.db") as log:
        log.create_topic("orders")
        producer = log.producer("orders", batching=BY_HAND)
        for end in ("trim", "delete"):
            send_each(producer, [b"1"])
            [segment] = objects(bucket)
            data = bucket.read(segment)
            if end == "trim":
                log.roll_ledger("orders")
                log.trim("orders", keep_bytes=0)
            else:
                log.delete_topic("orders")
            assert objects(bucket) == []
            requests_for(uri).put(segment, data)
            _collect(log)
            assert objects(bucket) == []


def _collect(log: Log) -> None:
    try:
        collect_garbage(log.access, 0.0, dry_run=False, clock=lambda: _LATER_S)
    except (OSError, TxnLogError):
        return  # the next one goes on
