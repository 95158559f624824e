"""Acknowledging inside a transaction: it takes effect with the commit or not at all, so the result is exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.consuming import VALUES, WAIT_S, mark, numbered, receive, subscribe, take
from tests.log.holding import holding
from tests.log.meddling import Meddling
from tests.log.reading import BY_HAND, UNCOMMITTED, eventually, values
from tests.log.sites import Site
from tests.selection import mostly_long
from txn_source import (
    AcknowledgedElsewhereError,
    Consumer,
    Log,
    Message,
    Producer,
    StaleEpochError,
    SubscriptionNotFoundError,
    Transaction,
    TransactionEndedError,
    UnavailableError,
)

KINDS = ["exclusive", "failover", "shared"]


def out(log: Log) -> Producer:
    """Make the topic that results go to."""
    log.create_topic("out")
    return log.producer("out", batching=BY_HAND)


def process(log: Log, consumer: Consumer, producer: Producer, count: int) -> tuple[Transaction, list[Message]]:
    """Consume and produce in a transaction, which is left open."""
    transaction, messages = log.begin_transaction(), []
    for _ in range(count):
        messages.append(receive(consumer))
        producer.send(messages[-1].value, txn=transaction)
        transaction.acknowledge(messages[-1])
    return transaction, messages


def backlog(log: Log) -> int:
    return sum(partition.backlog for partition in log.subscription("t", "s").partitions)


@pytest.mark.parametrize("kind", mostly_long(KINDS, "exclusive", "shared"))
def test_acknowledgements_count_with_the_commit(log: Log, kind: str) -> None:
    """Look at the cursor and the results before and after the commit; then consume the rest."""
    _, ids = numbered(log)
    consumer, producer = subscribe(log, type=kind), out(log)
    transaction, _ = process(log, consumer, producer, 4)
    producer.flush()
    assert (mark(log), backlog(log), values(log, "out")) == (ids[0], 10, [])
    transaction.commit()
    assert (mark(log), backlog(log), values(log, "out")) == (ids[4], 6, VALUES[:4])
    consumer.close()
    assert take(subscribe(log, type=kind), 6) == VALUES[4:]


@pytest.mark.parametrize("kind", mostly_long(KINDS, "exclusive", "shared"))
def test_aborted_transaction_delivers_its_messages_again(log: Log, kind: str) -> None:
    """Abort, and process again: each result is there once."""
    numbered(log)
    consumer, producer = subscribe(log, type=kind), out(log)
    transaction, _ = process(log, consumer, producer, 4)
    producer.flush()
    transaction.abort()
    assert (backlog(log), values(log, "out")) == (10, [])
    again, messages = process(log, consumer, producer, 10)
    again.commit()
    assert sorted(message.value for message in messages) == VALUES
    assert sorted(values(log, "out")) == VALUES
    assert backlog(log) == 0
    assert consumer.receive(0.0) is None


@pytest.mark.parametrize("kind", mostly_long(KINDS, "exclusive", "shared"))
@pytest.mark.parametrize("ended", ["time", "operator"])
def test_messages_of_a_transaction_that_ends_by_itself_come_again(site: Site, kind: str, ended: str) -> None:
    """Let a transaction time out, or abort it as an operator: its messages are redelivered without ``abort``."""
    log = site.connect()
    numbered(log, 3)
    consumer = subscribe(log, type=kind)
    other = log.begin_transaction(600.0)  # an older, longer transaction must not delay the redelivery
    other.acknowledge(receive(consumer))
    transaction = log.begin_transaction(0.3 if ended == "time" else 600.0)
    for _ in range(2):
        transaction.acknowledge(receive(consumer))
    if ended == "operator":
        site.connect().abort_transaction(transaction.id)
        with pytest.raises(TransactionEndedError):
            transaction.commit()
    again = [receive(consumer) for _ in range(2 if kind == "shared" else 3)]
    assert sorted(message.value for message in again) == (VALUES[1:3] if kind == "shared" else VALUES[:3])
    if kind == "shared":
        other.commit()
    else:
        other.abort()  # a redelivery in order includes its message
    with log.begin_transaction() as last:
        for message in again:
            last.acknowledge(message)
    assert backlog(log) == 0


def test_commit_may_be_repeated(site: Site) -> None:
    """Commit again, and lose the answer of a commit that counted: nothing happens twice, nothing is refused."""
    log, way = holding(site)
    numbered(log)
    consumer, producer = subscribe(log), out(log)
    transaction, _ = process(log, consumer, producer, 3)
    inner = Meddling(way.inner, times=2)  # the call is sent twice
    way.inner = inner
    transaction.commit()
    inner.times = 1
    transaction.commit()
    assert (backlog(log), values(log, "out")) == (7, VALUES[:3])

    transaction, _ = process(log, consumer, producer, 3)
    lost = UnavailableError("The answer was lost.", "Try again.")
    inner.after["WriteTransaction"] = lambda: (_ for _ in ()).throw(lost)
    with pytest.raises(UnavailableError):
        transaction.commit()
    transaction.commit()
    assert (backlog(log), values(log, "out")) == (4, VALUES[:6])


def test_acknowledging_in_an_ended_transaction_is_refused(log: Log) -> None:
    """Acknowledge with one that is committed, and one that is aborted."""
    numbered(log)
    consumer = subscribe(log)
    message = receive(consumer)
    for end in ("commit", "abort"):
        transaction = log.begin_transaction()
        getattr(transaction, end)()
        with pytest.raises(TransactionEndedError, match="acknowledge more messages"):
            transaction.acknowledge(message)
    assert backlog(log) == 10


def test_several_subscriptions_in_one_transaction(log: Log) -> None:
    """Consume from two topics at two levels, and acknowledge a whole batch and the same message twice."""
    numbered(log)
    log.create_topic("u", 2)
    with log.producer("u", batching=BY_HAND) as producer:
        for number in range(6):
            producer.send(b"%d" % number, partition=number % 2)
    one = subscribe(log)
    two = log.subscribe("u", "s", "shared", UNCOMMITTED, "earliest")
    with log.begin_transaction() as transaction:
        message = receive(one)
        transaction.acknowledge(message)
        transaction.acknowledge(message)
        for _ in range(2):
            batch = two.receive_batch(WAIT_S)
            assert batch is not None
            transaction.acknowledge(batch)
    assert backlog(log) == 9
    assert [p.backlog for p in log.subscription("u", "s").partitions] == [0, 0]


# Refusals


def _seek(log: Log, consumer: Consumer, taken: list[Message]) -> None:
    consumer.seek(taken[0].message_id)


def _operators_seek(log: Log, consumer: Consumer, taken: list[Message]) -> None:
    log.seek("t", "s", "earliest")


def _close(log: Log, consumer: Consumer, taken: list[Message]) -> None:
    consumer.close()


def _delete(log: Log, consumer: Consumer, taken: list[Message]) -> None:
    consumer.unsubscribe()


@pytest.mark.parametrize(
    ("happens", "error", "why"),
    [
        (_seek, StaleEpochError, "its epoch is 1, theirs 0"),
        (_operators_seek, StaleEpochError, "its epoch is 1, theirs 0"),
        (_close, StaleEpochError, "its consumer has lost its connection"),
        (_delete, SubscriptionNotFoundError, "was deleted"),
    ],
)
def test_commit_of_messages_that_come_again_is_refused(
    log: Log, happens: Any, error: type[Exception], why: str
) -> None:
    """Let something happen to the subscription before the commit: it is refused, whole, and can only be aborted."""
    numbered(log)
    consumer, producer = subscribe(log), out(log)
    transaction, taken = process(log, consumer, producer, 4)
    happens(log, consumer, taken)
    for _ in range(2):
        with pytest.raises(error, match=why):
            transaction.commit()
    assert log.transaction(transaction.id).state.value == "open"
    transaction.abort()
    assert values(log, "out") == []


@pytest.mark.parametrize("kind", mostly_long(KINDS, "exclusive", "shared"))
def test_zombies_commit_is_refused(site: Site, kind: str) -> None:
    """Cut a consumer off that doesn't know it yet, and let another one do its work: the results are there once."""
    log, way = holding(site)
    other_log = site.connect()
    numbered(log)
    zombie, producer = subscribe(log, type=kind), out(log)
    transaction, _ = process(log, zombie, producer, 10)
    way.hold("subscribe")
    way.talks[0].cut()
    way.talks[0].end()
    eventually(lambda: not log.subscription("t", "s").consumers)
    heir = subscribe(other_log, type=kind)
    again, _ = process(other_log, heir, other_log.producer("out", batching=BY_HAND), 10)
    with pytest.raises(StaleEpochError, match="lost its connection"):
        transaction.commit()
    again.commit()
    with pytest.raises(StaleEpochError):
        transaction.commit()
    transaction.abort()
    assert sorted(values(log, "out")) == VALUES
    heir.close()
    way.let_go("subscribe")


def test_message_that_another_consumer_has_acknowledged_stops_the_commit(log: Log) -> None:
    """Refuse a message of a shared subscription, let another consumer process it, and commit it all the same."""
    numbered(log)
    first = subscribe(log, type="shared", negative_acknowledge_delay=0.0)
    transaction, taken = log.begin_transaction(), [receive(first) for _ in range(10)]
    second = subscribe(log, type="shared")
    first.negative_acknowledge(taken[3])
    message = receive_of_any(first, second)
    message._batch.consumer.acknowledge(message)
    first.flush()
    second.flush()
    for each in taken:
        transaction.acknowledge(each)
    with pytest.raises(AcknowledgedElsewhereError, match="of subscription 's', which it consumed"):
        transaction.commit()
    transaction.abort()
    with log.begin_transaction() as again:
        found = [receive_of_any(first, second) for _ in range(9)]
        for each in found:
            again.acknowledge(each)
    assert sorted(each.value for each in found) == [*VALUES[:3], *VALUES[4:]]
    assert backlog(log) == 0


def receive_of_any(*consumers: Consumer) -> Message:
    found: list[Message] = []
    eventually(lambda: any((message := c.receive(0.0)) and not found.append(message) for c in consumers))  # type: ignore[func-returns-value]
    return found[0]


def test_messages_of_two_consumers_are_acknowledged_together_or_not_at_all(log: Log) -> None:
    """Let one of two subscriptions have moved: nothing of the other one is acknowledged either."""
    numbered(log)
    one, two = subscribe(log, "s"), subscribe(log, "two")
    transaction = log.begin_transaction()
    for consumer in (one, two):
        transaction.acknowledge(receive(consumer))
    log.seek("t", "two", "latest")
    with pytest.raises(StaleEpochError, match="'two'"):
        transaction.commit()
    transaction.abort()
    assert backlog(log) == 10
