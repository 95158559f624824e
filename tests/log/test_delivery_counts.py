"""Delivery counts of shared subscriptions: a received message counts, a queued one doesn't."""

from __future__ import annotations

import pytest

from tests.log.consuming import VALUES, WAIT_S, numbered, receive, subscribe
from tests.log.holding import holding
from tests.log.reading import eventually, values
from tests.log.sites import Site
from txn_source import Log


def test_consumers_that_take_one_each_and_close_make_no_dead_letters(log: Log) -> None:
    """Six consumers, one after another, receive a message, acknowledge it and close: the messages in their queues keep
    a count of 0."""
    numbered(log)
    for number in range(6):
        with subscribe(log, type="shared", max_redeliveries=0) as consumer:
            message = receive(consumer)
            assert (message.value, message.redelivery_count) == (VALUES[number], 0)
            consumer.acknowledge(message)
    with subscribe(log, type="shared", max_redeliveries=0) as consumer:
        left = [receive(consumer) for _ in range(4)]
    assert [(message.value, message.redelivery_count) for message in left] == [(value, 0) for value in VALUES[6:]]
    assert "t-s-DLQ" not in log.topics()


def test_what_was_received_and_not_acknowledged_counts(log: Log) -> None:
    """Receive four of ten and close, twice: their count grows by one each time, until they are dead letters; the other
    six keep 0."""
    numbered(log)
    for times in range(2):
        with subscribe(log, type="shared", max_redeliveries=1) as consumer:
            found = [receive(consumer) for _ in range(4)]
        assert [(m.value, m.redelivery_count) for m in found] == [(value, times) for value in VALUES[:4]]
    with subscribe(log, type="shared", max_redeliveries=1) as consumer:
        found = [receive(consumer) for _ in range(6)]
        for message in found:
            consumer.acknowledge(message)
    assert [(m.value, m.redelivery_count) for m in found] == [(value, 0) for value in VALUES[4:]]
    assert log.subscription("t", "s").partitions[0].backlog == 0
    assert sorted(values(log, "t-s-DLQ")) == VALUES[:4]


def test_part_of_a_batch_counts(log: Log) -> None:
    """Acknowledge three of ten messages of one entry, received as a message and a batch: the other seven count one."""
    log.create_topic("t")
    with log.producer("t") as producer:
        for value in VALUES:
            producer.send(value)
    with subscribe(log, type="shared") as consumer:
        consumer.acknowledge(receive(consumer))
        batch = consumer.receive_batch(WAIT_S)
        assert batch is not None
        assert len(batch) == 9
        consumer.acknowledge(batch.head(2))
    with subscribe(log, type="shared") as consumer:
        found = [receive(consumer) for _ in range(7)]
    assert [(m.value, m.redelivery_count) for m in found] == [(value, 1) for value in VALUES[3:]]


def test_a_refused_message_and_one_of_an_aborted_transaction_count_once(log: Log) -> None:
    """Refuse one message, abort the transaction of a second one, and close: each of three messages counts one."""
    numbered(log, 3)
    consumer = subscribe(log, type="shared", negative_acknowledge_delay=0.0)
    first, second, _ = (receive(consumer) for _ in range(3))
    consumer.negative_acknowledge(first)
    transaction = log.begin_transaction()
    transaction.acknowledge(second)
    transaction.abort()
    consumer.close()
    with subscribe(log, type="shared") as other:
        counts = {message.value: message.redelivery_count for message in (receive(other) for _ in range(3))}
    assert counts == {b"0": 1, b"1": 1, b"2": 1}


@pytest.mark.parametrize("way", ["redeliver", "lost"])
def test_who_comes_back_says_what_it_had_received(site: Site, way: str) -> None:
    """Receive two of ten, acknowledge one, and reconnect, by ``redeliver`` or a cut: only the other one counts."""
    log, how = holding(site)
    numbered(log)
    consumer = subscribe(log, type="shared")
    first, _ = receive(consumer), receive(consumer)
    consumer.acknowledge(first)
    consumer.flush()
    if way == "redeliver":
        consumer.redeliver()
    else:
        how.talks[-1].cut()
        eventually(lambda: len(how.talks) == 2 and consumer._link.current is not None)
    found = [receive(consumer) for _ in range(9)]
    assert sorted((m.value, m.redelivery_count) for m in found) == [(b"1", 1), *((value, 0) for value in VALUES[2:])]
