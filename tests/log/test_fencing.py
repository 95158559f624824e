"""Transactional ids: a new producer takes over from the older one of the same id, which can do no more harm."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, rows, send_each, values
from tests.log.sites import Site
from txn_source import Log, ProducerFencedError, TransactionEndedError


def test_older_producer_is_fenced(site: Site) -> None:
    """Open a second producer with the id, from another connection: the first one's next call fails, for good."""
    log = site.connect()
    log.create_topic("orders")
    older = log.producer("orders", transactional_id="tellers")
    send_each(older, [b"a"])
    newer = site.connect().producer("orders", transactional_id="tellers")
    for _ in range(2):
        older.send(b"late")
        with pytest.raises(ProducerFencedError, match=r"'tellers'.*epoch is 1, this one's 0"):
            older.flush()
    send_each(newer, [b"b"])
    assert values(log, "orders", UNCOMMITTED) == [b"a", b"b"]


def test_newer_producer_stores_as_much_as_the_older_one_did(log: Log) -> None:
    """Take over again and again, each time with as many messages: none is taken for a repetition of an older one's."""
    log.create_topic("orders", partitions=2)
    acknowledged = []
    for generation in range(4):
        producer = log.producer("orders", transactional_id="tellers")
        for index in range(5):
            acknowledged += send_each(producer, [b"%d-%d" % (generation, index)], partition=index % 2)
    assert len(set(acknowledged)) == 20
    assert sorted(values(log, "orders")) == [b"%d-%d" % (g, i) for g in range(4) for i in range(5)]


def test_open_transactions_of_the_older_producer_are_aborted(log: Log) -> None:
    """Leave two transactions open over two topics, then take over: they are aborted at once, and nothing waits."""
    for topic in ("orders", "bills"):
        log.create_topic(topic)
    older, bystander = log.producer("orders", transactional_id="tellers"), log.producer("bills")
    left = [log.begin_transaction() for _ in range(2)]
    for transaction in left:
        send_each(older, [b"left"], txn=transaction)
    send_each(bystander, [b"with"], txn=left[0])
    send_each(bystander, [b"after"])
    assert values(log, "bills") == []
    log.producer("orders", transactional_id="tellers")
    assert [log.transaction(t.id).end_reason for t in left] == ["fenced", "fenced"]
    assert log.transactions() == []
    assert values(log, "orders") == []
    assert values(log, "bills") == [b"after"]
    for transaction in left:
        with pytest.raises(ProducerFencedError):
            transaction.commit()
    assert values(log, "orders", UNCOMMITTED) == [b"left", b"left"]


def test_delayed_commit_does_not_end_the_next_transaction(site: Site) -> None:
    """Let the older producer commit after the newer one has begun: the newer transaction stays open and whole."""
    old_log, new_log = site.connect(), site.connect()
    old_log.create_topic("orders")
    older = old_log.producer("orders", transactional_id="tellers")
    delayed = old_log.begin_transaction()
    send_each(older, [b"old"], txn=delayed)

    newer = new_log.producer("orders", transactional_id="tellers")
    running = new_log.begin_transaction()
    send_each(newer, [b"new 1"], txn=running)
    with pytest.raises(ProducerFencedError, match="newer producer"):
        delayed.commit()
    delayed.abort()
    assert [t.id for t in new_log.transactions()] == [running.id]
    assert values(new_log, "orders") == []
    send_each(newer, [b"new 2"], txn=running)
    running.commit()
    assert values(new_log, "orders") == [b"new 1", b"new 2"]


def test_fenced_producer_can_not_write_into_its_successors_transaction(site: Site) -> None:
    """Give the older producer, on another connection, the id of the newer one's transaction."""
    log = site.connect()
    log.create_topic("orders")
    older = site.connect().producer("orders", transactional_id="tellers")
    newer = log.producer("orders", transactional_id="tellers")
    with log.begin_transaction() as transaction:
        send_each(newer, [b"a"], txn=transaction)
        older.send(b"b", txn=transaction.id)
        with pytest.raises(ProducerFencedError):
            older.flush()
    assert values(log, "orders", UNCOMMITTED) == [b"a"]


def test_producer_fenced_in_the_middle_of_a_transaction_stores_no_part_of_the_rest(log: Log) -> None:
    """Fence between two batches of one transaction; its commit says so."""
    log.create_topic("orders", partitions=3)
    older = log.producer("orders", transactional_id="tellers", batching=BY_HAND)
    transaction = log.begin_transaction()
    batch = pa.record_batch({"key": [b"%d" % i for i in range(50)], "value": [b"x"] * 50})
    older.send_batch(batch, txn=transaction)
    older.flush()
    older.send_batch(batch, txn=transaction)
    log.producer("orders", transactional_id="tellers")
    with pytest.raises(ProducerFencedError):
        transaction.commit()
    assert rows(log, "orders", COMMITTED) == []
    assert len(rows(log, "orders", UNCOMMITTED)) == 50


def test_only_the_same_id_of_the_same_topic_is_fenced(log: Log) -> None:
    """Open producers with another id, without one, and with the same id on another topic."""
    for topic in ("orders", "bills"):
        log.create_topic(topic)
    producer = log.producer("orders", transactional_id="tellers")
    transaction = log.begin_transaction()
    send_each(producer, [b"a"], txn=transaction)
    log.producer("orders", transactional_id="others")
    log.producer("orders", name="tellers")
    log.producer("bills", transactional_id="tellers")
    send_each(producer, [b"b"], txn=transaction)
    transaction.commit()
    assert values(log, "orders") == [b"a", b"b"]


def test_what_the_older_producer_had_ended_stays_as_it_was(log: Log) -> None:
    """Take over from a producer with a committed and an aborted transaction."""
    log.create_topic("orders")
    older = log.producer("orders", transactional_id="tellers")
    with log.begin_transaction() as committed:
        older.send(b"yes", txn=committed)
    aborted = log.begin_transaction()
    send_each(older, [b"no"], txn=aborted)
    aborted.abort()
    log.producer("orders", transactional_id="tellers")
    assert values(log, "orders") == [b"yes"]
    committed.commit()
    with pytest.raises(TransactionEndedError, match="aborted"):
        aborted.commit()


def test_taking_over_leaves_the_name_on_older_messages(log: Log) -> None:
    """Take over under another name: what was stored before keeps the name that wrote it."""
    log.create_topic("orders")
    send_each(log.producer("orders", transactional_id="tellers", name="monday"), [b"a"])
    send_each(log.producer("orders", transactional_id="tellers", name="tuesday"), [b"b"])
    found = rows(log, "orders", columns=["__producer_name", "value"])
    assert [tuple(row.values()) for row in found] == [("monday", b"a"), ("tuesday", b"b")]
