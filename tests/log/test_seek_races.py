"""The races of PIP-194: whatever is on its way while a subscription is moved, nothing overtakes the seek.

The way to the service holds back flow permits, deliveries, acknowledgements, receipts or the seek itself until a test
lets them go, or cuts the connection; see ``holding.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.log.consuming import VALUES, WAIT_S, mark, meanwhile, take
from tests.log.holding import HoldingWay, holding, settle
from tests.log.reading import BY_HAND, eventually, send_each
from tests.log.sites import Site
from txn_source import Consumer, Log, MessageId, Producer, StaleEpochError


def filled(log: Log, partitions: int = 1) -> tuple[Producer, list[MessageId]]:
    """Make the topic with ten messages, each an entry of its own, in its first partition."""
    log.create_topic("t", partitions)
    producer = log.producer("t", batching=BY_HAND)
    return producer, send_each(producer, VALUES, partition=0)


def subscribed(log: Log, **options: Any) -> Consumer:
    return log.subscribe("t", "s", initial_position="earliest", acknowledge_interval=1000.0, **options)


# Permits


def test_permits_from_before_a_seek_are_void(site: Site) -> None:
    """Seek while the service has permits left; hold back those of the new epoch: nothing comes before they do."""
    log, way = holding(site)
    producer, _ = filled(log)
    consumer = subscribed(log, queue_size=100)
    take(consumer, 10)
    way.hold("flow")
    consumer.seek("earliest")
    send_each(producer, [b"new"])
    way.held("flow")
    settle(consumer)
    assert way.deliveries(consumer.epoch) == 0
    way.let_go("flow")
    assert take(consumer, 11) == [*VALUES, b"new"]


def test_permits_sent_before_a_seek_that_arrive_after_it_are_void(site: Site) -> None:
    """Hold permits of the old epoch back until the seek is over: the queue gets no more than its size."""
    log, way = holding(site)
    filled(log)
    consumer = subscribed(log, queue_size=2)
    take(consumer, 2)
    way.hold("flow")
    assert consumer.receive(0.0) is None  # the queue is empty: it asks for more
    way.held("flow")
    consumer.seek("earliest")
    assert {r.flow.epoch for r in way.held("flow", 2)} == {0, 1}
    way.let_go("flow")
    eventually(lambda: way.deliveries(1) == 2)
    settle(consumer)
    assert way.deliveries(1) == 2
    assert take(consumer, 10) == VALUES


# Deliveries


def test_delivery_on_the_wire_during_a_seek_is_dropped(site: Site) -> None:
    """Hold the first deliveries back until the seek has returned."""
    log, way = holding(site)
    _, ids = filled(log)
    way.hold("delivery")
    consumer = subscribed(log, queue_size=4)
    assert {d.delivery.epoch for d in way.held("delivery")} == {0}
    consumer.seek(ids[7])
    way.let_go("delivery")
    assert take(consumer, 3) == VALUES[7:]
    assert consumer.receive(0.0) is None
    assert mark(log) == ids[7]


def test_delivery_on_the_wire_during_an_operators_seek_cannot_move_the_cursor(site: Site) -> None:
    """Let an operator seek; the consumer gets what was under way, then what the seek says; its old acks don't count."""
    log, way = holding(site)
    _, ids = filled(log)
    way.hold("epoch_change", "delivery")
    consumer = subscribed(log, queue_size=100)
    way.held("delivery")
    sought = log.seek("t", "s", ids[6])
    way.let_go("delivery")
    old = consumer.receive(WAIT_S)
    assert old is not None
    assert (old.epoch, sought.epoch) == (0, 1)
    consumer.acknowledge_cumulative(old)
    consumer.flush()
    assert mark(log) == ids[6]
    assert log.subscription("t", "s").ignored_acknowledgements == 1
    way.let_go("epoch_change")
    eventually(lambda: consumer.epoch == 1)
    assert take(consumer, 4) == VALUES[6:]


# Acknowledgements


@pytest.mark.parametrize("cumulative", [False, True])
def test_late_acknowledgement_is_ignored_and_counted(site: Site, cumulative: bool) -> None:
    """Hold acknowledgements back until a seek is over."""
    log, way = holding(site)
    filled(log)
    consumer = subscribed(log)
    messages = [consumer.receive(WAIT_S) for _ in range(4)]
    for message in messages:
        assert message is not None
        if cumulative:
            consumer.acknowledge_cumulative(message)
        else:
            consumer.acknowledge(message)
    way.hold("acknowledge")
    with meanwhile(consumer.flush):
        way.held("acknowledge")
        log.seek("t", "s", "earliest")
        way.let_go("acknowledge")
    info = log.subscription("t", "s")
    assert info.ignored_acknowledgements == (1 if cumulative else 4)
    assert (info.epoch, info.partitions[0].backlog) == (1, 10)
    eventually(lambda: consumer.epoch == 1)
    assert take(consumer, 10) == VALUES


def test_acknowledgements_made_before_a_seek_of_another_partition_count(site: Site) -> None:
    """Acknowledge in one partition, not sent yet; seek by a message of the other one: the first keeps its place."""
    log = site.connect()
    producer, ids = filled(log, 2)
    others = send_each(producer, [b"a", b"b", b"c"], partition=1)
    consumer = subscribed(log)
    messages = [consumer.receive(WAIT_S) for _ in range(13)]
    for message in messages:
        assert message is not None
        if message.value in (b"a", b"c"):
            consumer.acknowledge(message)
    consumer.seek(ids[9])
    assert sorted(take(consumer, 2)) == [b"9", b"b"]
    assert consumer.receive(0.0) is None
    assert mark(log, 1) == others[1]
    assert log.subscription("t", "s").ignored_acknowledgements == 0


# Two seeks


@pytest.mark.parametrize("operators_epoch", [None, 7])
def test_seek_that_an_operators_seek_overtakes_is_made_after_it(site: Site, operators_epoch: int | None) -> None:
    """Hold the consumer's seek back until an operator has sought: it takes the next epoch, and is the last."""
    log, way = holding(site)
    _, ids = filled(log)
    consumer = subscribed(log)
    take(consumer, 2)
    way.hold("seek")
    with meanwhile(lambda: consumer.seek(ids[3])):
        way.held("seek")
        assert log.seek("t", "s", ids[6], epoch=operators_epoch).epoch == (operators_epoch or 1)
        way.let_go("seek")
    assert consumer.epoch == (operators_epoch or 1) + 1
    assert mark(log) == ids[3]
    assert take(consumer, 7) == VALUES[3:]
    assert consumer.receive(0.0) is None


def test_two_seeks_of_one_consumer_come_one_after_the_other(site: Site) -> None:
    """Seek in two threads at once: the epoch goes up by two, and what is received begins where the last one put it."""
    log, way = holding(site)
    _, ids = filled(log)
    consumer = subscribed(log)
    way.hold("seek")
    with meanwhile(lambda: consumer.seek(ids[3])):
        way.held("seek")
        with meanwhile(lambda: consumer.seek(ids[6])):
            assert len(way.held("seek")) == 1  # the second one waits for the first one
            way.let_go("seek")
    assert consumer.epoch == 2
    assert mark(log) == ids[6]
    assert take(consumer, 4) == VALUES[6:]


def test_seek_with_an_old_epoch_is_refused(site: Site) -> None:
    """Give the current epoch, and an older one."""
    log = site.connect()
    _, ids = filled(log)
    log.create_subscription("t", "s", initial_position="earliest")
    assert log.seek("t", "s", ids[4], epoch=3).epoch == 3
    for epoch in (3, 2, 0):
        with pytest.raises(StaleEpochError, match=rf"'s' has epoch 3, and the call carries {epoch}\."):
            log.seek("t", "s", "latest", epoch=epoch)
    assert mark(log) == ids[4]
    assert log.seek("t", "s", "earliest").epoch == 4


# A lost connection


def _lose_the_request(way: HoldingWay) -> None:
    way.held("seek")
    way.talks[-1].cut()
    way.lose("seek")


def _lose_the_answer(way: HoldingWay) -> None:
    way.held("receipt")
    way.talks[-1].cut()
    way.lose("receipt")


@pytest.mark.parametrize(("kind", "lose"), [("seek", _lose_the_request), ("receipt", _lose_the_answer)])
def test_seek_survives_a_lost_connection(site: Site, kind: str, lose: Callable[[HoldingWay], None]) -> None:
    """Cut the connection before the seek has reached the service, or before its answer has come back."""
    log, way = holding(site)
    _, ids = filled(log)
    consumer = subscribed(log)
    take(consumer, 2)
    way.hold(kind)
    with meanwhile(lambda: consumer.seek(ids[4])):
        lose(way)
    assert len(way.talks) == 2
    assert mark(log) == ids[4]
    assert take(consumer, 6) == VALUES[4:]
    assert consumer.receive(0.0) is None
    assert [c.name for c in log.subscription("t", "s").consumers] == [consumer._request.consumer_name]


def test_deliveries_of_a_cut_connection_are_not_taken(site: Site) -> None:
    """Let deliveries of the old connection arrive when the consumer has a new one: nothing comes twice."""
    log, way = holding(site)
    filled(log)
    way.hold("delivery")
    consumer = subscribed(log)
    way.held("delivery")
    way.talks[0].cut()
    eventually(lambda: len(way.talks) == 2 and consumer._link.current is not None)
    way.let_go("delivery")
    assert take(consumer, 10) == VALUES
    assert consumer.receive(0.0) is None


def test_redelivery_drops_what_is_on_the_wire_as_a_seek_does(site: Site) -> None:
    """Refuse a message while more are on the wire: each comes once more, in order, and none from before."""
    log, way = holding(site)
    filled(log)
    consumer = subscribed(log, queue_size=2, negative_acknowledge_delay=0.0)
    first, second = (consumer.receive(WAIT_S) for _ in range(2))
    assert first is not None
    assert second is not None
    way.hold("delivery")
    assert consumer.receive(0.0) is None  # asks for more
    way.held("delivery")
    consumer.acknowledge(first)
    consumer.negative_acknowledge(second)
    with meanwhile(lambda: take(consumer, 9)) as taken:
        eventually(lambda: consumer.epoch == 1)
        way.let_go("delivery")
    assert taken.result() == VALUES[1:]
    assert consumer.receive(0.0) is None
