"""Garbage: segment files that nothing refers to go once they are old; everything else stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, send_each, values
from tests.log.sites import Site
from txn_source import InternalError, InvalidArgumentError, Log, TopicNotFoundError
from txn_source.client.tiering.segment_garbage import collect_garbage
from txn_source.client.writing.task_writer import BulkWriter
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import StaleSegmentError
from txn_source.model.spark_commit import Sink, TopicBatch
from txn_source.model.topic_name import TopicName

pytestmark = pytest.mark.also("objects", "copies")

_DAY_S = 24 * 3600


def segments(site: Site) -> set[str]:
    return {path.relative_to(site.root).as_posix() for path in (site.root / "segments").rglob("*.arrow")}


def age(path: Path, seconds: float) -> None:
    """Make a file look as if it was last written so long ago."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def abandoned(site: Site, name: str, size: int, seconds: float) -> str:
    """Leave a segment file behind that was never registered."""
    path = site.root / "segments" / "1" / "0" / f"1-0-{name}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    age(path, seconds)
    return path.relative_to(site.root).as_posix()


@pytest.mark.files
def test_only_old_files_that_nothing_refers_to_are_removed(site: Site) -> None:
    """Leave old and young files behind beside old ones with committed, aborted and open messages."""
    log = site.connect()
    log.create_topic("orders", partitions=2)
    send_each(log.producer("orders"), [b"plain"])
    for end in ("commit", "abort", "roll_ledger"):
        transaction = log.begin_transaction()
        send_each(log.producer("orders"), [end.encode()], txn=transaction)
        getattr(transaction, end)() if end != "roll_ledger" else log.roll_ledger("orders")
    referenced = segments(site)
    assert len(referenced) == 4
    for path in referenced:
        age(site.root / path, 10 * _DAY_S)
    old = {abandoned(site, "a" * 12, 100, 2 * _DAY_S), abandoned(site, "b" * 12, 11, 2 * _DAY_S)}
    young = {abandoned(site, "c" * 12, 7, _DAY_S / 2)}

    found = log.collect_garbage(dry_run=True)
    assert (set(found.paths), found.bytes) == (old, 111)
    assert segments(site) == referenced | old | young
    assert log.collect_garbage() == found
    assert segments(site) == referenced | young
    assert log.collect_garbage().paths == ()
    assert sorted(values(log, "orders", UNCOMMITTED)) == [b"abort", b"commit", b"plain", b"roll_ledger"]


@pytest.mark.files
def test_age_goes_by_the_clock_that_is_given(site: Site) -> None:
    """Look at one file a second before it is a day old, and a second after."""
    log = site.connect()
    log.create_topic("orders")
    path = abandoned(site, "a" * 12, 1, 0)
    written_s = (site.root / path).stat().st_mtime
    for later_s, found in ((_DAY_S - 1, ()), (_DAY_S + 1, (path,))):
        garbage = collect_garbage(log.access, _DAY_S, dry_run=True, clock=lambda: written_s + later_s)  # noqa: B023
        assert garbage.paths == found


@pytest.mark.files
def test_age_of_garbage_can_be_chosen(site: Site) -> None:
    """Collect files older than a minute, then all of them."""
    log = site.connect()
    log.create_topic("orders")
    old, new = abandoned(site, "a" * 12, 1, 100), abandoned(site, "b" * 12, 1, 10)
    assert log.collect_garbage(older_than=60).paths == (old,)
    assert log.collect_garbage(older_than=0).paths == (new,)
    with pytest.raises(InvalidArgumentError, match="-1 s is not an age"):
        log.collect_garbage(older_than=-1)


@pytest.mark.files
def test_what_a_producer_has_not_registered_is_garbage_only_when_it_is_old(site: Site) -> None:
    """Lose the answer of a registration for good: the bytes lie there, and go with the others of their age."""
    log = site.connect()
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    transaction = log.begin_transaction()
    log.abort_transaction(transaction.id)
    producer.send(b"refused", txn=transaction)
    with pytest.raises(Exception, match="can't take more messages"):
        producer.flush()
    [left] = segments(site)
    assert log.collect_garbage().paths == ()
    age(site.root / left, 2 * _DAY_S)
    assert log.collect_garbage().paths == (left,)


@pytest.mark.files
def test_deleted_topic_takes_its_folder_along(site: Site) -> None:
    """Delete one of two topics: its files go at once, the other's stay."""
    log = site.connect()
    for topic in ("orders", "bills"):
        log.create_topic(topic, partitions=2)
        for partition in (0, 1):
            send_each(log.producer(topic), [b"x"], partition=partition)
    assert len(segments(site)) == 4
    log.delete_topic("orders")
    assert sorted(path.name for path in (site.root / "segments").iterdir()) == ["2"]
    assert values(log, "bills") == [b"x", b"x"]


@pytest.mark.files
def test_files_of_a_deleted_topic_that_were_left_are_garbage(site: Site) -> None:
    """Put a file back into the folder of a deleted topic, as a producer that went on would."""
    log = site.connect()
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    log.delete_topic("orders")
    producer.send(b"late")
    with pytest.raises(TopicNotFoundError):
        producer.flush()
    [left] = segments(site)
    assert log.collect_garbage(older_than=0).paths == (left,)
    assert segments(site) == set()


def test_what_is_not_ours_is_not_garbage(site: Site) -> None:
    """Put files with other names among the segments: whoever put them there knows why."""
    log = site.connect()
    log.create_topic("orders")
    folder = site.root / "segments" / "1" / "0"
    folder.mkdir(parents=True)
    others = [folder / name for name in ("notes.txt", "1-0-xyz.arrow", f"1-0-{'a' * 12}.arrow.bak")]
    for other in others:
        other.write_text("mine")
    assert log.collect_garbage(older_than=0).paths == ()
    assert all(other.exists() for other in others)


# Late registration: nothing of it goes by a clock


@contextmanager
def stepping_in(log: Log, what: Callable[[], object]) -> Iterator[None]:
    """Do something once, just before the log's next append reaches the service."""
    append, done = log.metadata.append, []

    def late(*given: Any) -> Any:
        if not done:
            done.append(what())
        return append(*given)

    log.metadata.append = late  # type: ignore[method-assign]
    try:
        yield
    finally:
        log.metadata.append = append  # type: ignore[method-assign]
        assert done


@pytest.mark.parametrize("in_transaction", [False, True], ids=["plain", "in a transaction"])
def test_flush_whose_file_is_collected_writes_it_again(site: Site, in_transaction: bool) -> None:
    """Collect all garbage between the write and its registration: the messages are there all the same, once."""
    log, other = site.connect(), site.connect()
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders", batching=BY_HAND)
    send_each(producer, [b"before"], partition=0)
    before = segments(site)
    txn = log.begin_transaction() if in_transaction else None
    taken: list[str] = []
    for partition in (0, 1):
        producer.send(b"late", partition=partition, txn=None if txn is None else txn.id)
    with stepping_in(log, lambda: taken.extend(other.collect_garbage(older_than=0).paths)):
        assert len(producer.flush()) >= 2
    if txn is not None:
        txn.commit()
    assert len(taken) == 1, "the other partition's file was registered from before"
    assert sorted(values(log, "orders")) == [b"before", b"late", b"late"]
    assert before <= segments(site)
    send_each(producer, [b"after"], partition=1)
    assert other.collect_garbage(older_than=0).paths == ()
    assert len(values(log, "orders")) == 4


def test_job_whose_file_is_collected_fails_and_says_why(site: Site) -> None:
    """Collect the files of a job before its commit: nothing of it counts, and running it again works."""
    log = site.connect()
    log.create_topic("orders")

    def written() -> TopicBatch:
        writer = BulkWriter(log.access, TopicName.parse("orders"))
        writer.write(pa.record_batch({"value": [b"job"]}))
        return writer.finish()

    late = written()
    assert len(log.collect_garbage(older_than=0).paths) == 1
    for _ in range(2):
        with pytest.raises(StaleSegmentError, match=r"taken for garbage.*Run the job again"):
            log.metadata.commit_batch(Sink("query", 0, "spark", None), [late], "job")
    assert values(log, "orders", UNCOMMITTED) == []
    log.metadata.commit_batch(Sink("query", 0, "spark", None), [written()], "again")
    assert values(log, "orders") == [b"job"]


@pytest.mark.files
def test_crash_between_condemning_and_deleting_is_mended_by_the_next_collection(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the deletion fail: the file can't be registered any more, and the next collection deletes it."""
    log = site.connect()
    log.create_topic("orders")
    left = abandoned(site, "a" * 12, 5, 0)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", lambda *_, **__: 1 / 0)
        with pytest.raises(InternalError):
            log.collect_garbage(older_than=0)
    assert segments(site) == {left}
    assert log.collect_garbage(older_than=0).paths == (left,)
    assert segments(site) == set()


def test_file_with_a_time_to_come_is_only_left_for_later(site: Site) -> None:
    """Give a file a modification time in the future: it isn't tried, and nothing else depends on it."""
    log = site.connect()
    log.create_topic("orders")
    ahead = abandoned(site, "a" * 12, 5, -1e6)
    assert log.collect_garbage(older_than=0).paths == ()
    assert segments(site) == {ahead}


@pytest.mark.parametrize("times", [3, 4])
def test_segments_that_are_taken_again_and_again_are_written_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Collect all garbage whenever a producer is about to register: after some tries it tells, and goes on."""
    log = site.connect()
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    append, left = MetadataStub.append, [times]

    def collecting(self: MetadataStub, *arguments: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            assert len(log.collect_garbage(older_than=0).paths) == 1
        return append(self, *arguments, **options)

    monkeypatch.setattr(MetadataStub, "append", collecting)
    producer.send(b"1")
    with pytest.raises(StaleSegmentError, match=r"1 message is not stored") if times == 4 else nullcontext():
        producer.flush()
    send_each(producer, [b"2"])
    assert values(log, "orders") == [b"1", b"2"][times - 3 :]
    assert log.collect_garbage(older_than=0).paths == ()


def test_collections_at_once_remove_each_file_and_nothing_else(site: Site) -> None:
    """Collect from several threads while a producer writes: what was acknowledged is there, once, and reads."""
    log = site.connect()
    log.create_topic("orders")
    producer, stop = log.producer("orders", batching=BY_HAND), threading.Event()
    others = [site.connect() for _ in range(2)]

    def collect(other: Log) -> None:
        while not stop.is_set():
            other.collect_garbage(older_than=0.05)

    threads = [threading.Thread(target=collect, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    try:
        for number in range(30):
            if number % 5 == 0:
                log.roll_ledger("orders")
            written = False
            while not written:
                with suppress(StaleSegmentError):  # taken four times in a row, which is said: it wasn't acknowledged
                    written = bool(send_each(producer, [b"%d" % number]))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert values(log, "orders") == [b"%d" % number for number in range(30)]
