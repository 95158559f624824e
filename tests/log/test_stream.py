"""Streams over our own log: topics that are made meanwhile, and who holds a query back."""

from __future__ import annotations

import logging

import pytest

from tests.log.meddling import meddling
from tests.log.reading import UNCOMMITTED, send_each, told_by
from tests.log.sites import ManualClock, Site
from tests.log.streaming import Follower, numbered, stream_of
from txn_source import Log, UnavailableError


def test_topic_made_while_topics_are_looked_up_is_part_of_the_batch(site: Site) -> None:
    """Make a topic, and commit a transfer between it and an older one, after the topics were listed and before their
    bounds were read: the batch has both legs."""
    log = site.connect()
    log.create_topic("a-1")
    slow, way = meddling(site)
    query = Follower(slow, stream_of(slow, pattern="a-.*"))

    def make() -> None:
        log.create_topic("a-2")
        with log.begin_transaction() as transaction:
            for topic in ("a-1", "a-2"):
                send_each(log.producer(topic), ["leg"], txn=transaction)

    way.after["ListTopics"] = make
    assert query.values() == [b"leg", b"leg"]
    assert query.next() is None


def test_topics_that_are_made_without_end_are_told(site: Site) -> None:
    """Make a topic at every listing: an error, and no batch that may have halves of transactions."""
    log = site.connect()
    log.create_topic("a-0")
    slow, way = meddling(site)
    names = iter(range(1, 1000))

    def make() -> None:
        log.create_topic(f"a-{next(names)}")
        way.after["ListTopics"] = make

    way.after["ListTopics"] = make
    with pytest.raises(UnavailableError, match=r"'a-\.\*'.* made or deleted"):
        stream_of(slow, pattern="a-.*").initial()
    assert next(names) < 30


def test_who_holds_the_stream_back_is_told_once(
    clocked_log: Log, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Leave a transaction open before three messages; the warning names it, its age, and what of this topic waits."""
    log, now = clocked_log, [0.0]
    log.create_topic("t", partitions=2)
    log.create_topic("other")
    hanging = log.begin_transaction(600)
    producer = log.producer("t")
    send_each(producer, [b"open"], partition=1, txn=hanging)
    send_each(producer, numbered(3), partition=1)
    send_each(log.producer("other"), [b"elsewhere"], txn=hanging)
    elsewhere = log.begin_transaction(600)
    send_each(log.producer("other"), [b"elsewhere"], txn=elsewhere)
    size = sum(ledger.bytes for ledger in log.stats("t").ledgers)
    clock.advance(90)
    caplog.set_level(logging.WARNING)
    query = Follower(log, stream_of(log, clock=lambda: now[0]))
    for _ in range(3):
        assert query.next() is None
        now[0] += 60
    [told] = told_by("client.streaming", caplog)
    assert (
        f"transaction {hanging.id}, open for 90 s, which holds back 4 messages ({size} bytes) of t-partition-1" in told
    )
    second = log.begin_transaction(600)
    send_each(producer, [b"open too"], partition=0, txn=second)
    assert query.next() is None
    told_now = told_by("client.streaming", caplog)
    assert len(told_now) == 2
    assert str(second.id) in told_now[1]


def test_stream_that_nobody_holds_back_says_nothing(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """Wait at the end of the log, and at read_uncommitted beside an open transaction."""
    caplog.set_level(logging.WARNING)
    log.create_topic("t", partitions=2)
    producer = log.producer("t")
    assert Follower(log, stream_of(log)).next() is None
    send_each(producer, ["open"], txn=log.begin_transaction())
    query = Follower(log, stream_of(log, level=UNCOMMITTED))
    assert query.values() == [b"open"]
    assert query.next() is None
    assert told_by("client.streaming", caplog) == []
