"""CommitBatch: what a job wrote is registered and committed in one step, once for each batch, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.log.meddling import meddling
from tests.log.reading import COMMITTED, UNCOMMITTED, rows, send_each, values
from tests.log.sites import ManualClock, Site
from txn_source import (
    BatchRepeatedError,
    InvalidArgumentError,
    Log,
    ProducerFencedError,
    TopicNotFoundError,
    UnavailableError,
)
from txn_source.client.writing.bulk_writer import BulkWriter
from txn_source.model.entry import OpenedProducer
from txn_source.model.spark_commit import Sink, TopicBatch
from txn_source.model.topic_name import TopicName

JOB = Sink(None, 0, "spark-job", None)


def query(batch_id: int, name: str = "query", transactional_id: str | None = None) -> Sink:
    """Return who writes a batch of a streaming query."""
    return Sink(name, batch_id, f"spark-{name}", transactional_id)


def written(
    log: Log, texts: Sequence[bytes], topic: str = "orders", partition: int = 0, owner: OpenedProducer | None = None
) -> TopicBatch:
    """Write messages to a file as a task does; nothing refers to it yet."""
    writer = BulkWriter(log.access, TopicName.parse(topic))
    writer.write(pa.record_batch({"value": texts, "__partition": pa.array([partition] * len(texts), pa.int32())}))
    return writer.finish(owner)


def state(log: Log) -> Any:
    """Return all that a commit could change: the topics, both levels of what is in them, and the transactions."""
    return (
        [(topic, log.stats(topic), values(log, topic, UNCOMMITTED), values(log, topic)) for topic in log.topics()],
        [transaction.id for transaction in log.transactions(state=None)],
    )


# One transaction


def test_all_topics_and_partitions_are_one_transaction(log: Log) -> None:
    """Commit three partitions of two topics: one transaction, committed by the writer, and nothing before it."""
    log.create_topic("orders", partitions=2)
    log.create_topic("bills")
    before = state(log)
    batches = [written(log, [b"a"]), written(log, [b"b", b"c"], partition=1), written(log, [b"d"], "bills")]
    assert state(log) == before, "files alone are nothing"
    joined = [TopicBatch(batches[0].topic, batches[0].topic_id, batches[0].entries + batches[1].entries), batches[2]]
    txn, repeated = log.metadata.commit_batch(JOB, joined, "key")
    assert txn is not None
    assert not repeated
    assert (values(log, "orders"), values(log, "bills")) == ([b"a", b"b", b"c"], [b"d"])
    for topic in log.topics():
        found = rows(log, topic, columns=["__txn_id", "__txn_status", "__producer_name"])
        assert {tuple(row.values()) for row in found} == {(str(txn), "committed", "spark-job")}
    [transaction] = log.transactions(state=None)
    assert [(p.topic, p.partition, p.messages) for p in transaction.partitions] == [
        ("bills", 0, 1),
        ("orders", 0, 1),
        ("orders", 1, 2),
    ]


def test_batch_may_fill_several_ledgers(log: Log) -> None:
    """Commit more entries than a ledger takes: the transaction is whole, and its marker lies in a later ledger."""
    log.create_topic("orders", ledger_max_entries=2)
    entries = tuple(entry for n in range(7) for entry in written(log, [b"%d" % n]).entries)
    one = written(log, [b"7"])
    log.metadata.commit_batch(JOB, [TopicBatch(one.topic, one.topic_id, entries + one.entries)], "key")
    assert len(log.stats("orders").ledgers) > 3
    assert values(log, "orders") == [b"%d" % n for n in range(8)]


def test_empty_batch_changes_nothing(log: Log) -> None:
    """Commit no topics, and a topic without entries."""
    log.create_topic("orders")
    before = state(log)
    assert log.metadata.commit_batch(JOB, [], "one") == (None, False)
    assert log.metadata.commit_batch(JOB, [written(log, [])], "two") == (None, False)
    assert state(log) == before


# Once


def test_batch_of_a_query_is_known_by_its_number(log: Log) -> None:
    """Commit a query's last batch again with other keys and other files: it stays as it was."""
    log.create_topic("orders")
    answers = []
    for attempt, batch_id in enumerate([0, 0, 1, 1, 1, 5, 5, 6]):
        batches = [written(log, [b"batch %d, attempt %d" % (batch_id, attempt)])]
        txn, repeated = log.metadata.commit_batch(query(batch_id), batches, f"key {attempt}")
        assert (txn is None) == repeated
        answers.append(repeated)
    assert answers == [False, True, False, True, True, False, True, False]
    assert values(log, "orders") == [
        b"batch 0, attempt 0",
        b"batch 1, attempt 2",
        b"batch 5, attempt 5",
        b"batch 6, attempt 7",
    ]


def test_queries_count_their_batches_apart(log: Log) -> None:
    """Commit batch 0 of two queries."""
    log.create_topic("orders")
    for name in ("a", "b"):
        log.metadata.commit_batch(query(0, name), [written(log, [name.encode()])], name)
    assert values(log, "orders") == [b"a", b"b"]


def test_empty_batch_of_a_query_counts_as_committed(log: Log) -> None:
    """Commit batch 0 without rows, then again, then with some: a batch has one content only."""
    log.create_topic("orders")
    assert log.metadata.commit_batch(query(0), [written(log, [])], "one") == (None, False)
    assert log.metadata.commit_batch(query(0), [], "two") == (None, True)
    with pytest.raises(BatchRepeatedError, match="with 0 rows, and comes again with 1"):
        log.metadata.commit_batch(query(0), [written(log, [b"late"])], "three")
    assert values(log, "orders", UNCOMMITTED) == []


def test_batch_of_a_query_is_known_for_good(clocked_site: Site, clock: ManualClock) -> None:
    """Repeat a batch after the time for which answers to requests are kept."""
    log = clocked_site.connect()
    log.create_topic("orders")
    batches = [written(log, [b"a"])]
    log.metadata.commit_batch(query(0), batches, "key")
    clock.pass_by(2 * 3600, lambda: log.metadata.commit_batch(query(7, "another"), [], "clears old answers away"))
    assert log.metadata.commit_batch(query(0), batches, "key") == (None, True)
    assert values(log, "orders", UNCOMMITTED) == [b"a"]


@pytest.mark.parametrize("sink", [JOB, query(0)], ids=["job", "query"])
def test_commit_whose_answer_was_lost_is_repeated_safely(site: Site, sink: Sink) -> None:
    """Lose the answer to the commit; it counted, and is told so when it is repeated."""
    log = site.connect()
    log.create_topic("orders")
    unlucky, way = meddling(site)

    def lose() -> None:
        raise UnavailableError("The answer was lost.", "Try again.")

    way.after["CommitBatch"] = lose
    batches = [written(log, [b"a"])]
    with pytest.raises(UnavailableError):
        unlucky.metadata.commit_batch(sink, batches, "key")
    before = state(log)
    txn, repeated = unlucky.metadata.commit_batch(sink, batches, "key")
    assert (str(txn), repeated) == (rows(log, "orders", columns=["__txn_id"])[0]["__txn_id"], False)
    assert state(log) == before
    assert values(log, "orders", UNCOMMITTED) == [b"a"]


def test_commits_at_once_register_a_batch_once(site: Site) -> None:
    """Let four drivers that think they run the same query commit the same batches, each with its own files."""
    log = site.connect()
    log.create_topic("orders")
    barrier = threading.Barrier(4)
    told: list[tuple[int, bool]] = []

    def drive(mine: Log, driver: int) -> None:
        for batch_id in range(5):
            batches = [written(mine, [b"%d by %d" % (batch_id, driver), b"%d too" % batch_id])]
            barrier.wait()
            told.append((batch_id, mine.metadata.commit_batch(query(batch_id), batches, f"{batch_id} {driver}")[1]))

    threads = [threading.Thread(target=drive, args=(site.connect(), driver)) for driver in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(batch_id for batch_id, repeated in told if not repeated) == [0, 1, 2, 3, 4]
    assert [value.split()[0] for value in values(log, "orders", UNCOMMITTED)] == [
        b"%d" % n for n in range(5) for _ in range(2)
    ]


# Refused whole


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
@pytest.mark.parametrize("sink", [JOB, query(0)], ids=["job", "query"])
def test_topic_that_is_gone_refuses_the_whole_batch(site: Site, sink: Sink, again: bool) -> None:
    """Delete one of two topics (and make it again) between writing and committing; then do the batch anew."""
    log = site.connect()
    for topic in ("bills", "orders"):
        log.create_topic(topic)
    batches = [written(log, [b"a"], "bills"), written(log, [b"b"])]
    log.delete_topic("orders")
    if again:
        log.create_topic("orders")
    before = state(log)
    with pytest.raises(TopicNotFoundError, match="'orders'") as caught:
        log.metadata.commit_batch(sink, batches, "one")
    assert ("made again" in str(caught.value)) == again
    assert state(log) == before
    if not again:
        log.create_topic("orders")
    repaired = [batches[0], written(log, [b"c"])]
    assert log.metadata.commit_batch(sink, repaired, "two")[1] is False
    assert (values(log, "bills"), values(log, "orders")) == ([b"a"], [b"c"])


def test_old_batch_of_a_query_is_old_without_its_topic(log: Log) -> None:
    """Repeat a committed batch after its topic was deleted: the query goes on."""
    log.create_topic("orders")
    batches = [written(log, [b"a"])]
    log.metadata.commit_batch(query(0), batches, "one")
    log.delete_topic("orders")
    assert log.metadata.commit_batch(query(0), batches, "two") == (None, True)


def test_query_goes_on_in_a_topic_that_was_made_again(log: Log) -> None:
    """Delete and make the topic between two batches: the second one is in the new one."""
    log.create_topic("orders")
    log.metadata.commit_batch(query(0), [written(log, [b"a"])], "one")
    log.delete_topic("orders")
    log.create_topic("orders")
    log.metadata.commit_batch(query(1), [written(log, [b"b"])], "two")
    found = rows(log, "orders", columns=["value", "__sequence_id"])
    assert [tuple(row.values()) for row in found] == [(b"b", 0)]


def test_entry_for_another_topics_partition_refuses_the_whole_batch(log: Log) -> None:
    """Give a topic's batch an entry of a partition that isn't its own."""
    log.create_topic("orders")
    log.create_topic("bills")
    ours, others = written(log, [b"a"]), written(log, [b"b"], "bills")
    before = state(log)
    with pytest.raises(InvalidArgumentError, match="the topic has none such"):
        log.metadata.commit_batch(JOB, [TopicBatch(ours.topic, ours.topic_id, ours.entries + others.entries)], "key")
    assert state(log) == before


# Who wrote it


def test_query_stays_one_producer_whose_sequences_go_on(log: Log) -> None:
    """Commit three batches over two partitions: one name, and each message has a sequence id of its own."""
    log.create_topic("orders", partitions=2)
    for batch_id in range(3):
        for_0, for_1 = written(log, [b"a", b"b"]), written(log, [b"c"], partition=1)
        batch = TopicBatch(for_0.topic, for_0.topic_id, for_0.entries + for_1.entries)
        log.metadata.commit_batch(query(batch_id), [batch], f"key {batch_id}")
    found = rows(log, "orders", columns=["__partition", "__sequence_id", "__producer_name"])
    by_partition = {p: [row["__sequence_id"] for row in found if row["__partition"] == p] for p in (0, 1)}
    assert by_partition == {0: [0, 1, 3, 4, 6, 7], 1: [2, 5, 8]}
    assert {row["__producer_name"] for row in found} == {"spark-query"}


def test_jobs_are_producers_of_their_own(log: Log) -> None:
    """Commit two jobs of one name: the sequences begin anew, and neither is taken for a repetition of the other."""
    log.create_topic("orders")
    for key in ("one", "two"):
        log.metadata.commit_batch(JOB, [written(log, [key.encode(), b"more"])], key)
    found = rows(log, "orders", columns=["value", "__sequence_id"])
    assert [tuple(row.values()) for row in found] == [(b"one", 0), (b"more", 1), (b"two", 0), (b"more", 1)]


def test_query_takes_over_a_transactional_id(log: Log) -> None:
    """Let a producer hold the id with an open transaction: the query aborts it and fences the producer."""
    log.create_topic("orders")
    producer = log.producer("orders", transactional_id="tellers")
    transaction = log.begin_transaction()
    send_each(producer, [b"left"], txn=transaction)
    log.metadata.commit_batch(query(0, transactional_id="tellers"), [written(log, [b"a"])], "key")
    assert values(log, "orders") == [b"a"], "nothing waits for the transaction that was left"
    producer.send(b"late")
    with pytest.raises(ProducerFencedError, match="'tellers'"):
        producer.flush()
    log.metadata.commit_batch(query(1, transactional_id="tellers"), [written(log, [b"b"])], "next")
    assert values(log, "orders") == [b"a", b"b"]


@pytest.mark.parametrize("transactional_id", ["others", None])
def test_fenced_query_is_refused_until_it_gets_another_id(log: Log, transactional_id: str | None) -> None:
    """Let a producer take over a query's id: its batches are refused whole and stay undone; with another id it goes
    on with the same batch."""
    log.create_topic("bills")
    log.create_topic("orders")
    log.metadata.commit_batch(query(0, transactional_id="tellers"), [written(log, [b"a"])], "one")
    producer = log.producer("orders", transactional_id="tellers")
    send_each(producer, [b"b"])
    before = state(log)
    for key in ("two", "three"):
        batches = [written(log, [b"c"], "bills"), written(log, [b"c"])]
        with pytest.raises(ProducerFencedError, match=r"'tellers'.*epoch is 1, this one's 0"):
            log.metadata.commit_batch(query(1, transactional_id="tellers"), batches, key)
    assert state(log) == before
    for batch_id in (1, 2):
        again = query(batch_id, transactional_id=transactional_id)
        assert log.metadata.commit_batch(again, [written(log, [b"%d" % batch_id])], f"again {batch_id}")[1] is False
    assert values(log, "orders") == [b"a", b"b", b"1", b"2"]
    found = rows(log, "orders", columns=["__sequence_id"])
    assert [row["__sequence_id"] for row in found] == [0, 0, 0, 1]
    send_each(producer, [b"still allowed"])


def test_older_job_of_a_transactional_id_is_fenced(site: Site) -> None:
    """Begin two jobs with one id: the older one's commit is refused whole, the newer one's is not."""
    log = site.connect()
    log.create_topic("orders")
    older, newer = (log.metadata.open_producer(TopicName.parse("orders"), "nightly", None)[0] for _ in range(2))
    sink = Sink(None, 0, "nightly", "nightly")
    with pytest.raises(ProducerFencedError, match="'nightly'"):
        log.metadata.commit_batch(sink, [written(log, [b"older"], owner=older)], "older")
    assert values(log, "orders", UNCOMMITTED) == []
    batches = [written(log, [b"newer"], owner=newer)]
    log.metadata.commit_batch(sink, batches, "newer")
    log.metadata.commit_batch(sink, batches, "another key, the same files")
    for level in (COMMITTED, UNCOMMITTED):
        assert values(log, "orders", level) == [b"newer"]
