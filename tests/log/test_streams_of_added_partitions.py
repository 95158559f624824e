"""Streams with a subscription over a topic that gets more partitions: these are read from their start."""

from __future__ import annotations

import pytest

from tests.log.meddling import meddling
from tests.log.reading import BY_HAND, send_each
from tests.log.sites import Site
from tests.log.streaming import Follower
from tests.log.subscribed import Streams, ends, marks
from txn_source import Log, MessageId


def test_stream_with_a_subscription_reads_and_acknowledges_new_partitions(log: Log, streams: Streams) -> None:
    """Add partitions while a stream holds its subscription: what it has processed of them is acknowledged."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, [b"old"])
    stream = streams.open(log, start="earliest")
    follower = Follower(log, stream)
    assert follower.values() == [b"old"]
    epoch = follower.at.epoch
    log.update_topic("t", 3)
    send_each(producer, [b"new"], partition=2)
    assert follower.values() == [b"new"]
    stream.commit(follower.at)
    assert marks(log) == ends(follower.at)
    assert (follower.at.epoch, len(marks(log))) == (epoch, 3)
    log.seek("t", "s", {"t": {2: "earliest"}})
    assert follower.values() == [b"new"]


def test_partition_that_came_while_a_batch_was_planned_is_acknowledged_later(site: Site, streams: Streams) -> None:
    """Add a partition between the look at the subscription and that at the topic: the next batch acknowledges it."""
    log, way = meddling(site)
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    stream = streams.open(log, start="earliest")
    follower = Follower(log, stream)
    send_each(producer, [b"old"])

    def add() -> None:
        log.update_topic("t", 2)
        send_each(log.producer("t", batching=BY_HAND), [b"new"], partition=1)

    way.after["ListSubscriptions"] = add
    assert follower.values() == [b"old", b"new"]
    stream.commit(follower.at)
    assert follower.values() is None
    assert marks(log) == ends(follower.at)


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_subscription_that_a_stream_makes_begins_new_partitions_at_their_start(
    site: Site, streams: Streams, known: bool
) -> None:
    """Add a partition with a message between the look at the starts and the making of the subscription, which looks at
    the topic once more: after that, or before."""
    log, way = meddling(site)
    log.create_topic("t")
    send_each(log.producer("t", batching=BY_HAND), [b"old"])

    def add() -> None:
        log.update_topic("t", 2)
        send_each(log.producer("t", batching=BY_HAND), [b"new"], partition=1)

    stream = streams.open(log, start="latest")
    if known:
        way.after["GetView"] = add
    else:
        way.before["CreateSubscription"] = add
    follower = Follower(log, stream)
    assert marks(log)[1] == MessageId(marks(log)[1].ledger_id, 0)
    assert follower.values() == [b"new"]
