"""Copies of hot entries in several roots: what is acknowledged, what is seen, and what happens when roots fail."""

from __future__ import annotations

import gc
import logging
import shutil
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.log.reading import BY_HAND, UNCOMMITTED, eventually, send_each, told_by, values
from tests.log.roots import Roots, bounds_of, log, roots, spoil
from txn_source import Log
from txn_source.client.writing import copies
from txn_source.client.writing.bulk_writer import BulkWriter
from txn_source.metadata.store.figures import blockers, partition_figures
from txn_source.metadata.store.opening import open_database
from txn_source.model.entry import NewEntry
from txn_source.model.errors import (
    InvalidArgumentError,
    SegmentUnreadableError,
    StorageWriteError,
    TransactionEndedError,
    UnavailableError,
)
from txn_source.model.position import PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.storage import root_health
from txn_source.storage.root import LogRoot
from txn_source.storage.segment_store import LocalSegments

__all__ = ["log", "roots"]


def entries_at_log_end(log: Log) -> int:
    """Return how many entries a fetch isolated at ``log_end`` finds."""
    [view] = log.metadata.get_view([TopicName.parse("t")]).topics
    [partition] = view.partitions
    whole = PositionRange(partition.bounds.log_start, partition.bounds.log_end)
    return sum(page.entries.num_rows for page in log.metadata.list_entries(partition.partition_id, whole))


def test_each_root_has_the_same_bytes(log: Log, roots: Roots) -> None:
    """Write plainly and in a transaction: each root has the same files, and one call has registered each flush."""
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, [b"1", b"2"])
    with log.begin_transaction() as txn:
        producer.send(b"3", txn=txn)
    found = [{p.name: p.read_bytes() for p in roots.segments(name)} for name in ("main", "b", "c")]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 3
    assert values(log, "t") == [b"1", b"2", b"3"]
    assert bounds_of(log) == (4, 4, 4)


@pytest.mark.parametrize("lost", ["main", "b", "c"])
def test_what_lacks_copies_is_registered_and_seen_by_nobody(log: Log, roots: Roots, lost: str) -> None:
    """Lose a root: a flush isn't acknowledged, what it wrote lies above the high watermark, and log_end reads it. When
    the root is back the next flush has all ids, and everybody sees it."""
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, [b"1"])
    roots.lose(lost)
    producer.send(b"2")
    for _ in range(2):
        with pytest.raises(UnavailableError, match="1 messages to topic 't' have too few copies"):
            producer.flush()
        assert bounds_of(log) == (1, 1, 2)
        assert values(log, "t", UNCOMMITTED) == [b"1"]
        assert entries_at_log_end(log) == 2
    roots.bring_back(lost)
    assert len(producer.flush()) == 1
    assert bounds_of(log) == (2, 2, 2)
    assert values(log, "t") == [b"1", b"2"]
    assert [len(roots.segments(name)) for name in ("main", "b", "c")] == [2, 2, 2]


def test_fewer_copies_are_enough_if_so_many_are_to_be_acknowledged(
    log: Log, roots: Roots, caplog: pytest.LogCaptureFixture
) -> None:
    """Acknowledge two of three, and lose roots one after the other; each is told once."""
    log.set_policies("t", acknowledge_copies=2)
    producer = log.producer("t", batching=BY_HAND)
    roots.lose("c")
    with caplog.at_level(logging.WARNING):
        assert len(send_each(producer, [b"1", b"2", b"3"])) == 3
    assert [said.partition(":")[0] for said in told_by("storage.root_health", caplog)] == [
        "the root c is left out for now, and tried again later"
    ]
    assert bounds_of(log) == (3, 3, 3)
    roots.lose("b")
    producer.send(b"4")
    with pytest.raises(UnavailableError):
        producer.flush()
    roots.bring_back("c")
    assert len(producer.flush()) == 1
    assert values(log, "t") == [b"1", b"2", b"3", b"4"]


def test_what_lacks_copies_is_not_held_back_by_a_transaction(log: Log, roots: Roots) -> None:
    """Write behind an open transaction while a root is away: it holds back what lies below the high watermark, and one
    that began above it nothing. Listing, stats, figures and the table about the log agree."""
    producer = log.producer("t", batching=BY_HAND)
    first, second = log.begin_transaction(), log.begin_transaction()
    send_each(producer, [b"1"], txn=first)
    send_each(producer, [b"2"])
    roots.lose("b")
    producer.send(b"33333")
    with pytest.raises(UnavailableError):
        producer.flush()
    other = log.producer("t", batching=BY_HAND)
    other.send(b"4", txn=second)
    with pytest.raises(UnavailableError):
        other.flush()
    assert bounds_of(log) == (0, 2, 4)
    held = {each.id: each.messages_held_back for each in log.stats("t").ongoing_transactions}
    assert held == {each.id: each.held_back_messages for each in log.transactions()} == {first.id: 2, second.id: 0}
    bytes_held = {each.id: each.bytes_held_back for each in log.stats("t").ongoing_transactions}
    with closing(open_database(LogRoot.at(roots.main).database_url)) as database, database.read() as connection:
        [figures] = partition_figures(connection)
        blocking = sorted(blockers(connection), key=lambda each: each.txn)  # both may be of one millisecond
    assert (figures.held_back_messages, figures.short_messages) == (2, 2)
    assert [each.held_back_messages for each in blocking] == [2, 0]
    assert figures.held_back_bytes == blocking[0].held_back_bytes == bytes_held[first.id] > 0
    [row] = log.metadata_table("partitions", "t").to_pylist()
    assert row["held_back_messages"] == 2
    roots.bring_back("b")
    producer.flush()
    other.flush()
    assert {each.id: each.held_back_messages for each in log.transactions()} == {first.id: 4, second.id: 1}
    first.abort()
    second.abort()


@pytest.mark.parametrize("known", [True, False])
def test_commit_returns_when_there_are_enough_copies(log: Log, roots: Roots, known: bool) -> None:
    """Commit while a root is away, with a transaction that is begun and with one that would be a single call: it is not
    committed before its entries have their copies, and then the same call commits it."""
    producer = log.producer("t", batching=BY_HAND)
    txn = log.begin_transaction()
    if known:
        assert txn.id
    roots.lose("b")
    producer.send(b"1", txn=txn)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            txn.commit()
        assert values(log, "t", UNCOMMITTED) == []
    roots.bring_back("b")
    txn.commit()
    txn.commit()
    assert values(log, "t") == [b"1"]
    with pytest.raises(TransactionEndedError):
        txn.abort()


def test_transaction_that_lacks_copies_can_be_aborted(log: Log, roots: Roots) -> None:
    """Abort instead: the producer goes on without what it had, once the root is back."""
    producer = log.producer("t", batching=BY_HAND)
    txn = log.begin_transaction()
    roots.lose("b")
    producer.send(b"1", txn=txn)
    with pytest.raises(UnavailableError):
        txn.commit()
    txn.abort()
    roots.bring_back("b")
    assert log.maintain().failures == ()
    assert len(send_each(producer, [b"2"])) == 1
    assert values(log, "t") == [b"2"]


def test_whole_transaction_without_copies_is_committed_and_not_acknowledged(log: Log, roots: Roots) -> None:
    """Raise what is to be acknowledged behind a producer's back: the service commits in one call what has one copy,
    says so, and commit() doesn't return before there are more."""
    log.set_policies("t", hot_copies="main")
    producer = log.producer("t", batching=BY_HAND)
    log.set_policies("t", hot_copies="main,b")
    roots.lose("b")
    txn = log.begin_transaction()
    producer.send(b"1", txn=txn)
    with pytest.raises(UnavailableError, match="committed, and has too few copies"):
        txn.commit()
    assert values(log, "t", UNCOMMITTED) == []
    assert bounds_of(log) == (0, 0, 2)
    with pytest.raises(UnavailableError):
        txn.commit()
    roots.bring_back("b")
    txn.commit()
    assert values(log, "t") == [b"1"]
    assert len(producer.flush()) == 1


def test_producers_follow_the_policy(log: Log, roots: Roots) -> None:
    """Raise and lower the number of copies under a producer: with its next flushes it writes to where they are to be,
    and the first one that lacks a copy gets it."""
    log.set_policies("t", hot_copies="main")
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, [b"1", b"2"])
    assert roots.segments("b") == []
    log.set_policies("t", hot_copies="main,b")
    assert len(send_each(producer, [b"3", b"4", b"5"])) == 3
    assert [p.name for p in roots.segments("b")] == [p.name for p in roots.segments("main")]
    assert bounds_of(log) == (5, 5, 5)
    assert values(log, "t") == [b"1", b"2", b"3", b"4", b"5"]


def test_lowered_policy_frees_what_waits(log: Log, roots: Roots) -> None:
    """Lose a root for good: a policy that asks for fewer copies raises the high watermark at once."""
    producer = log.producer("t", batching=BY_HAND)
    shutil.rmtree(roots.b)
    producer.send(b"1")
    with pytest.raises(UnavailableError):
        producer.flush()
    log.set_policies("t", acknowledge_copies=2)
    assert bounds_of(log) == (1, 1, 1)
    assert len(producer.flush()) == 1
    assert values(log, "t") == [b"1"]


def test_root_that_hangs_costs_a_bounded_time(log: Log, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writes to a root hang: an entry that two roots have is acknowledged, the third copy comes late, and
    maintenance makes it known."""
    monkeypatch.setattr(copies, "PATIENCE_S", 0.05)
    log.set_policies("t", acknowledge_copies=2)
    producer = log.producer("t", batching=BY_HAND)
    going_on, put = threading.Event(), LocalSegments.put

    def hang(store: LocalSegments, path: str, data: bytes) -> None:
        if store._root == roots.c:
            going_on.wait(30)
        put(store, path, data)

    monkeypatch.setattr(LocalSegments, "put", hang)
    assert len(send_each(producer, [b"1"])) == 1
    [before] = log.metadata.list_hot_segments(TopicName.parse("t"))
    assert before.roots == 0b011
    going_on.set()
    for thread in threading.enumerate():
        if thread.name == "txnlog-copy":
            thread.join(30)
    root_health.roots._until.clear()
    log.maintain()
    [after] = log.metadata.list_hot_segments(TopicName.parse("t"))
    assert after.roots == 0b111


def test_read_that_hangs_is_given_up(log: Log, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reads of a root hang: they come from the next one, and the root is left alone from then on."""
    monkeypatch.setattr(root_health, "HUNG_REST_S", 1e6)
    send_each(log.producer("t", batching=BY_HAND), [b"1", b"2"])
    going_on, asked, read, bounded = threading.Event(), list[str](), LocalSegments.fill, root_health.bounded

    def hang(store: LocalSegments, path: str, start: int, into: memoryview) -> None:
        if store._root == roots.main:
            asked.append(path)
            going_on.wait(60)
        read(store, path, start, into)

    with ThreadPoolExecutor(4) as pool:

        def short_where_it_hangs(call: Callable[[], Any], _: float) -> Any:
            before, future = len(asked), pool.submit(call)
            eventually(lambda: future.done() or len(asked) > before)
            return bounded(future.result, 60.0 if future.done() else 0.05)

        monkeypatch.setattr(LocalSegments, "fill", hang)
        monkeypatch.setattr(root_health, "bounded", short_where_it_hangs)
        assert values(log, "t") == [b"1", b"2"]
        assert values(log, "t") == [b"1", b"2"]
        going_on.set()
    assert len(asked) == 1
    root_health.roots._until.clear()


@pytest.mark.parametrize("damage", ["gone", "short", "flipped"])
def test_readers_go_on_with_the_next_root(
    log: Log, roots: Roots, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage one copy of each segment, each in another root: all messages are read, and each failure is told once."""
    send_each(log.producer("t", batching=BY_HAND), [b"%d" % n for n in range(6)])
    for n, path in enumerate(roots.segments("main")):
        spoil(roots[("main", "b", "c")[n % 3]] / path.relative_to(roots.main), damage)
    with caplog.at_level(logging.WARNING):
        assert sorted(values(log, "t")) == [b"%d" % n for n in range(6)]
    told = [r.getMessage() for r in caplog.records if "going on with the next one" in r.getMessage()]
    assert len(told) == len(set(told)) == 2
    assert all("the copy in the root main failed" in line for line in told)


def test_each_copy_that_failed_is_named(log: Log, roots: Roots) -> None:
    """Damage all copies in different ways: one error tells of each root why."""
    send_each(log.producer("t", batching=BY_HAND), [b"1"])
    for name, damage in (("main", "gone"), ("b", "short"), ("c", "flipped")):
        [path] = roots.segments(name)
        spoil(path, damage)
    with pytest.raises(SegmentUnreadableError) as failed:
        values(log, "t")
    said = str(failed.value)
    assert said.index("main: ") < said.index("b: ") < said.index("c: ")
    assert "it is missing" in said
    assert "truncated" in said
    assert "checksum" in said


def test_append_again_tells_if_copies_are_still_missing(log: Log, roots: Roots) -> None:
    """Make the same append three times: before and after the copy is there it has the same position, once."""
    stub, name = log.metadata, TopicName.parse("t")
    opened, view = stub.open_producer(name, None, None)
    path = f"segments/{view.topic.topic_id}/{opened.producer_id}-{'0' * 12}.arrows"
    entry = NewEntry(view.partitions[0].partition_id, 0, 1, path, 8, 10, 0, roots=0b001)
    first = stub.append(opened, None, [entry])
    assert first.needs_copies
    assert stub.append(opened, None, [entry]) == first
    from txn_source.metadata.stub.roots import SegmentRoots

    stub.change_segment_roots(name, [SegmentRoots(path, 0b010, 0, 18)])
    assert stub.append(opened, None, [entry]).needs_copies
    stub.change_segment_roots(name, [SegmentRoots(path, 0b110, 0, 17)])  # it has looked at less than there is
    assert stub.append(opened, None, [entry]).needs_copies
    stub.change_segment_roots(name, [SegmentRoots(path, 0b110, 0, 18)])
    done = stub.append(opened, None, [entry])
    assert (done.positions, done.needs_copies) == (first.positions, False)
    stub.change_segment_roots(name, [SegmentRoots(path, 0, 0b111, 18)])
    [segment] = stub.list_hot_segments(name)
    assert segment.roots == 0b111  # the last copies are never given up
    stub.change_segment_roots(name, [SegmentRoots(path, 0, 0b011, 18)])
    assert bounds_of(log) == (1, 1, 1)  # a copy that is lost later lowers nothing


def test_segment_is_in_the_roots_that_have_all_of_its_entries(log: Log) -> None:
    """Append to one segment with different sets of roots: what it is in becomes less, never more."""
    stub, name = log.metadata, TopicName.parse("t")
    log.set_policies("t", acknowledge_copies=1)
    opened, view = stub.open_producer(name, None, None)
    path = f"segments/{view.topic.topic_id}/{opened.producer_id}-{'0' * 12}.arrows"
    of = view.partitions[0].partition_id
    for number, (sent, kept) in enumerate([(0b111, 0b111), (0b011, 0b011), (0b110, 0b010), (0b111, 0b010)]):
        stub.append(opened, None, [NewEntry(of, number, 1, path, 8 + number, 1, 0, roots=sent)])
        [segment] = stub.list_hot_segments(name)
        assert segment.roots == kept
    from txn_source.model.errors import StaleSegmentError

    with pytest.raises(StaleSegmentError):
        stub.append(opened, None, [NewEntry(of, 9, 1, path, 20, 1, 0, roots=0b100)])
    with pytest.raises(StaleSegmentError):
        stub.append(opened, None, [NewEntry(of, 9, 1, path[:-8] + "1.arrows", 20, 1, 0, roots=1 << 40)])


def test_jobs_wait_for_no_copies(log: Log, roots: Roots) -> None:
    """Write as a task of a job does while a root is away: the task fails, and leaves nothing."""
    import pyarrow as pa

    batch = pa.record_batch({"key": pa.nulls(1, pa.binary()), "value": pa.array([b"1"], pa.binary())})
    writer = BulkWriter(log.access, TopicName.parse("t"))
    writer.write(batch)
    roots.lose("b")
    with pytest.raises(StorageWriteError, match="too few copies"):
        writer.finish()
    writer.discard()
    roots.bring_back("b")
    assert [len(roots.segments(name)) for name in ("main", "b", "c")] == [0, 0, 0]


@pytest.mark.long
def test_nothing_is_kept_in_memory_of_what_has_gone(log: Log, roots: Roots) -> None:
    """Write what lacks copies in a transaction and abort it, and write more: the producer holds no bytes of either."""
    producer = log.producer("t", batching=BY_HAND)
    roots.lose("b")
    txn = log.begin_transaction()
    producer.send(bytes(100_000), txn=txn)
    with pytest.raises(UnavailableError):
        txn.commit()
    gc.collect()
    held = [weakref.ref(each) for each in gc.get_objects() if type(each) is copies.CopiedPut]
    assert held
    txn.abort()
    roots.bring_back("b")
    send_each(producer, [b"1", b"2"])
    gc.collect()
    assert [put() for put in held] == [None] * len(held)


def test_root_of_the_log_that_is_not_mounted_is_not_written_to(log: Log, roots: Roots) -> None:
    """Take the marker of the log's own root away: copies go to the others alone."""
    log.set_policies("t", acknowledge_copies=2)
    producer = log.producer("t", batching=BY_HAND)
    marker = roots.main / "txnlog.json"
    marker.rename(roots.main / "away")
    send_each(producer, [b"1"])
    assert [len(roots.segments(name)) for name in ("main", "b", "c")] == [0, 1, 1]
    (roots.main / "away").rename(marker)
    assert log.maintain().copies.copied == 1


def test_configuration_that_names_no_root_is_told(tmp_path: Path) -> None:
    """Write a broker.conf that asks for a root that isn't there: writes are refused, and name it."""
    txn_source.connect(tmp_path / "log").close()
    (tmp_path / "log" / "broker.conf").write_text("managedLedgerHotCopies=main,b\n")
    with txn_source.connect(tmp_path / "log") as log:
        log.create_topic("t")
        with log.producer("t", batching=BY_HAND) as producer:
            producer.send(b"1")
            with pytest.raises(InvalidArgumentError, match="names the root 'b', and the log has none"):
                producer.flush()
        assert values(log, "t", UNCOMMITTED) == []
