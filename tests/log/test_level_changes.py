"""Changing a subscription's level: taken where no transaction is torn, and refused with the ways out where one is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.consuming import receive, subscribe, take
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each
from tests.selection import mostly_long
from txn_source import InvalidArgumentError, Log, Transaction


def written(log: Log, *, partitions: int = 1) -> Transaction:
    """Write plain ``a``, ``t1`` of a transaction, plain ``b``, ``t2`` of it (on the last partition), plain ``c``."""
    log.create_topic("t", partitions)
    producer = log.producer("t", batching=BY_HAND)
    transaction = log.begin_transaction()
    last = {"partition": partitions - 1}
    send_each(producer, [b"a"], partition=0)
    send_each(producer, [b"t1"], partition=0, txn=transaction)
    send_each(producer, [b"b"], partition=0)
    send_each(producer, [b"t2"], txn=transaction, **last)
    send_each(producer, [b"c"], **last)
    return transaction


def acknowledge(log: Log, level: str, values: set[bytes], kind: str = "exclusive") -> None:
    """Acknowledge messages at a level, and go."""
    with subscribe(log, type=kind, isolation_level=level) as consumer:
        left = set(values)
        while left:
            message = receive(consumer)
            if message.value in left:
                consumer.acknowledge(message)
                left.remove(message.value)


def end(transaction: Transaction, how: str) -> None:
    if how != "open":
        getattr(transaction, how)()


T_SEEN, T_NOT = {b"a", b"t1"}, {b"a"}
ALL = {b"a", b"t1", b"b", b"t2", b"c"}


@pytest.mark.parametrize("partitions", mostly_long([1, 2], 2))
@pytest.mark.parametrize(
    ("seen", "how", "taken"),
    [
        (T_NOT, "open", True),
        (T_NOT, "commit", True),
        (T_NOT, "abort", True),
        (T_SEEN, "open", False),
        (T_SEEN, "commit", False),
        (T_SEEN, "abort", True),
        ({b"t2"}, "commit", False),
        ({b"b", b"c"}, "open", True),
        (ALL, "open", False),
        (ALL, "commit", True),
        (ALL, "abort", True),
    ],
)
def test_to_read_committed(log: Log, seen: set[bytes], how: str, taken: bool, partitions: int) -> None:
    """Acknowledge messages as read_uncommitted, end the transaction or don't, and raise the level."""
    transaction = written(log, partitions=partitions)
    acknowledge(log, UNCOMMITTED, seen)
    end(transaction, how)
    if not taken:
        state = {"open": "open", "commit": "committed"}[how]
        with pytest.raises(
            InvalidArgumentError, match=rf"the {state} transaction .* was seen and acknowledged"
        ) as refused:
            log.set_subscription_isolation_level("t", "s", COMMITTED)
        assert str(transaction.id) in str(refused.value)
        assert "Seek first" in str(refused.value)
        assert log.subscription("t", "s").isolation_level.value == UNCOMMITTED
        log.seek("t", "s", "earliest")
    log.set_subscription_isolation_level("t", "s", COMMITTED)
    if how == "open":
        transaction.commit()
    shown = ALL - ({b"t1", b"t2"} if how == "abort" else set())
    left = shown - (seen if taken else set())
    with subscribe(log) as consumer:
        assert set(take(consumer, len(left))) == left


@pytest.mark.parametrize("partitions", mostly_long([1, 2], 2))
@pytest.mark.parametrize(
    ("seen", "how", "taken"),
    [
        ({b"a"}, "open", True),
        ({b"a", b"b"}, "commit", True),
        ({b"a", b"t1"}, "commit", True),
        ({b"a", b"b", b"c"}, "abort", True),
    ],
)
def test_to_read_uncommitted(log: Log, seen: set[bytes], how: str, taken: bool, partitions: int) -> None:
    """Acknowledge messages as read_committed, and lower the level: what was decided and seen stays so."""
    transaction = written(log, partitions=partitions)
    if how != "open":
        end(transaction, how)
    acknowledge(log, COMMITTED, seen)
    log.set_subscription_isolation_level("t", "s", UNCOMMITTED)
    with subscribe(log) as consumer:
        assert consumer.isolation_level.value == UNCOMMITTED
        left = ALL - seen - ({b"t1", b"t2"} if how == "abort" else set())
        found = set(take(consumer, len(left)))
        assert found >= left - {b"t2"}


def test_what_a_shared_subscription_handed_out_is_handed_out_anew(log: Log) -> None:
    """Hand out an open transaction's messages as read_uncommitted, raise the level: they wait until it has ended."""
    transaction = written(log)
    with subscribe(log, type="shared", isolation_level=UNCOMMITTED) as consumer:
        take(consumer, 5)
    log.set_subscription_isolation_level("t", "s", COMMITTED)
    with subscribe(log, type="shared") as consumer:
        assert take(consumer, 1) == [b"a"]
        assert consumer.receive(0.1) is None
        transaction.abort()
        assert sorted(take(consumer, 2)) == [b"b", b"c"]


def test_subscribe_without_a_level_takes_the_stored_one(log: Log) -> None:
    """Leave the level out: a new subscription is read_committed, one that is there keeps its own."""
    log.create_topic("t")
    assert subscribe(log, "new").isolation_level.value == COMMITTED
    log.create_subscription("t", "other", isolation_level=UNCOMMITTED)
    consumer: Any = log.subscribe("t", "other")
    assert consumer.isolation_level.value == UNCOMMITTED
