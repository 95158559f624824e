"""Transactional ids: a new producer takes over from the older one of the same id, which can do no more harm."""

from __future__ import annotations

import pytest

from tests.log.reading import UNCOMMITTED, send_each, values
from tests.log.sites import Site
from txn_source import Log, ProducerFencedError


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
    older.send(b"late", txn=running.id)
    with pytest.raises(ProducerFencedError):
        older.flush()
    send_each(newer, [b"new 2"], txn=running)
    running.commit()
    assert values(new_log, "orders") == [b"new 1", b"new 2"]


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
