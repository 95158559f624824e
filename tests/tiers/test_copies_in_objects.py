"""Copies in folders and on object stores together: the same bytes, read from either, repaired from either."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import txn_source
from tests.log.reading import BY_HAND, UNCOMMITTED, send_each, values
from tests.tiers.proxy import Fault, Proxy
from tests.tiers.stores import Bucket
from txn_source import Log
from txn_source.client import segment_copying
from txn_source.client.tiering.hot_repair import RepairReport
from txn_source.client.writing import copies
from txn_source.model.errors import InvalidArgumentError, SegmentUnreadableError, UnavailableError
from txn_source.storage import root_health, segment_store


@pytest.fixture
def log(
    bucket: Bucket, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses_pass_at_once: None
) -> Iterator[Log]:
    """A log in a folder, with copies in a bucket."""
    monkeypatch.setattr(root_health, "REST_S", 0.0)
    monkeypatch.setattr(root_health, "HUNG_REST_S", 0.0)
    monkeypatch.setattr(copies, "PATIENCE_S", 60.0)
    monkeypatch.setattr(copies, "DEADLINE_S", 60.0)
    with txn_source.connect(tmp_path / "log") as log:
        log.add_root("s3", bucket.uri_at(proxy.endpoint, max_attempts=1))
        log.create_topic("t", hot_copies="main,s3")
        yield log


def local(log: Log) -> dict[str, bytes]:
    root = Path(str(log.root))
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in (root / "segments").rglob("*.arrow*")}


def objects(bucket: Bucket) -> dict[str, bytes]:
    return {name: bucket.read(name) for name in bucket.files() if name.startswith("segments/")}


def test_folder_and_bucket_have_the_same(log: Log, bucket: Bucket) -> None:
    """Write, lose the folder's segments, read from the bucket; repair, lose the bucket's, and read from the folder."""
    send_each(log.producer("t", batching=BY_HAND), [b"1", b"2", b"3"])
    written = local(log)
    assert objects(bucket) == written
    assert len(written) == 3
    shutil.rmtree(Path(str(log.root)) / "segments")
    assert values(log, "t") == [b"1", b"2", b"3"]
    assert log.maintain().copies == RepairReport(copied=3)
    assert local(log) == written
    for name in written:
        bucket.remove(name)
    assert values(log, "t") == [b"1", b"2", b"3"]
    assert log.maintain().copies == RepairReport(copied=3)
    assert objects(bucket) == written


def test_long_segments_are_put_into_a_bucket_in_parts(
    log: Log, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than what is put at once: the object is the same, and there is none if its source changes meanwhile."""
    monkeypatch.setattr(segment_store, "_PUT_AT_ONCE", 100)
    send_each(log.producer("t", batching=BY_HAND), [b"1", b"2"])
    written = local(log)
    for name in written:
        bucket.remove(name)
    assert log.maintain().copies == RepairReport(copied=2)
    assert objects(bucket) == written
    for name in written:
        bucket.remove(name)
    with monkeypatch.context() as changing:
        changing.setattr(segment_copying._Checks, "windows_of", lambda *_: _broken())
        log.maintain()
    assert objects(bucket) == {}
    assert log.maintain().copies == RepairReport(copied=2)
    assert objects(bucket) == written


def _broken() -> Iterator[bytes]:
    yield b"x"
    raise SegmentUnreadableError("The segment has changed while it was copied.", "Let the repair run again.")


def test_backup_takes_segments_from_a_bucket(log: Log, bucket: Bucket, tmp_path: Path) -> None:
    """Lose the folder's segments: the backup has those of the bucket, and a restored log has them in its folder."""
    send_each(log.producer("t", batching=BY_HAND), [b"1", b"2"])
    written = local(log)
    shutil.rmtree(Path(str(log.root)) / "segments")
    txn_source.backup(str(log.root), tmp_path / "backup")
    txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    with txn_source.connect(tmp_path / "restored") as restored:
        found = local(restored)
        assert found.keys() == written.keys()
        assert all(found[path].startswith(data) for path, data in written.items())  # notes may follow
        assert values(restored, "t") == [b"1", b"2"]


def test_store_that_is_down_costs_what_the_policy_says(log: Log, bucket: Bucket, proxy: Proxy) -> None:
    """Refuse all requests: with both copies to be acknowledged nothing is, with one it is; later the copy is made."""
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, [b"1"])
    proxy.set_fault(Fault("refuse", lambda _: True))
    producer.send(b"2")
    with pytest.raises(UnavailableError, match="too few copies"):
        producer.flush()
    assert values(log, "t", UNCOMMITTED) == [b"1"]
    log.set_policies("t", acknowledge_copies=1)
    assert len(producer.flush()) == 1
    assert values(log, "t") == [b"1", b"2"]
    proxy.set_fault(None)
    assert log.maintain().copies == RepairReport(copied=1)
    assert objects(bucket) == local(log)


def test_files_that_grow_are_read_from_a_bucket(log: Log, bucket: Bucket) -> None:
    """Write files of one copy, with two schemas, raise the policy, and read all from objects alone."""
    log.set_policies("t", hot_copies="main")
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, [b"1", b"2"])
    send_each(producer, [b"3"], properties={"a": "b"})
    log.set_policies("t", hot_copies="main,s3")
    assert log.maintain().copies == RepairReport(copied=2)
    assert objects(bucket) == local(log)
    shutil.rmtree(Path(str(log.root)) / "segments")
    found = log.scan("t", columns=["value", "__properties"]).read_all().to_pylist()
    assert [row["value"] for row in found] == [b"1", b"2", b"3"]
    assert found[2]["__properties"] == [("a", "b")]


def test_bucket_has_a_marker_of_its_own(log: Log, bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    """Use the prefix for another log: as its root, and for its copies."""
    uri = bucket.uri_at(proxy.endpoint, max_attempts=1)
    with txn_source.connect(tmp_path / "other") as other, pytest.raises(InvalidArgumentError, match="holds copies of"):
        other.add_root("b", uri)
    [main, found] = log.roots()
    assert (found.name, found.reachable, "endpoint" in found.uri) == ("s3", True, False)
    assert main.reachable


def test_log_on_a_store_has_copies_in_a_folder(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    """Let the log's own root be on the store, and a folder beside it: objects are lost one by one, and read."""
    with txn_source.connect(bucket.uri_at(proxy.endpoint), metadata=tmp_path / "log.db") as log:
        log.add_root("folder", tmp_path / "folder")
        log.create_topic("t", hot_copies="main,folder")
        send_each(log.producer("t", batching=BY_HAND), [b"1", b"2"])
        for name in list(objects(bucket)):
            bucket.remove(name)
        assert values(log, "t") == [b"1", b"2"]
        assert log.maintain().copies == RepairReport(copied=2)
        shutil.rmtree(tmp_path / "folder")
        assert values(log, "t") == [b"1", b"2"]
