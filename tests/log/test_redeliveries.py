"""Redeliveries: of refused messages, and of messages that weren't acknowledged in time."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from tests.log.consuming import VALUES, numbered, receive, session_of, subscribe, take
from tests.log.sites import Site
from txn_source import (
    Consumer,
    Log,
    Message,
)
from txn_source.metadata.delivery import session as sessions

pytestmark = pytest.mark.also("objects", "copies")


def test_refused_message_of_an_exclusive_subscription_comes_again_in_order(log: Log) -> None:
    """Refuse one: all that isn't acknowledged comes again, in a new epoch, and it alone counts as redelivered."""
    numbered(log)
    consumer = subscribe(log, negative_acknowledge_delay=0.0)
    messages = [receive(consumer) for _ in range(10)]
    for number in (0, 2):
        consumer.acknowledge(messages[number])
    consumer.negative_acknowledge(messages[3])
    again = [receive(consumer) for _ in range(8)]
    assert [m.value for m in again] == [b"1", *VALUES[3:]]
    assert [m.redelivery_count for m in again] == [0, 1, 0, 0, 0, 0, 0, 0]


def _one_by_one(log: Log, consumer: Consumer, messages: list[Message]) -> None:
    for message in messages:
        consumer.acknowledge(message)


def _cumulatively(log: Log, consumer: Consumer, messages: list[Message]) -> None:
    consumer.acknowledge_cumulative(messages[-1])


def _in_a_transaction(log: Log, consumer: Consumer, messages: list[Message]) -> None:
    with log.begin_transaction() as transaction:
        for message in messages:
            transaction.acknowledge(message)


@pytest.mark.parametrize(
    ("kind", "how"), [("shared", _one_by_one), ("exclusive", _cumulatively), ("exclusive", _in_a_transaction)]
)
@pytest.mark.parametrize("refused_first", [True, False])
def test_what_is_acknowledged_is_not_delivered_again(log: Log, kind: str, refused_first: bool, how: Any) -> None:
    """Refuse one of ten and acknowledge the first five, in both orders: no message is redelivered."""
    numbered(log)
    consumer = subscribe(log, type=kind, negative_acknowledge_delay=0.02)
    messages = [receive(consumer) for _ in range(10)]
    if refused_first:
        consumer.negative_acknowledge(messages[3])
    how(log, consumer, messages[:5])
    if not refused_first:
        consumer.negative_acknowledge(messages[3])
    assert consumer.receive(0.1) is None
    assert consumer.epoch == 0
    for message in messages[5:]:
        consumer.acknowledge(message)
    consumer.close()
    assert log.subscription("t", "s").partitions[0].backlog == 0


def test_refusing_inside_an_entry_again_and_again_leaves_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse one message of a large entry often: it alone comes again, and counts as one unacknowledged message."""
    monkeypatch.setattr(sessions, "MAX_UNACKNOWLEDGED", 30)
    log = site.connect()
    log.create_topic("t", schema=pa.schema([("n", pa.int64())]))
    with log.producer("t") as producer:
        producer.send_batch(pa.table({"n": range(10)}))
    consumer = subscribe(log, type="shared", negative_acknowledge_delay=0.0, acknowledge_interval=0.0)
    messages = [receive(consumer) for _ in range(10)]
    message = messages[5]
    for number in range(10):
        consumer.negative_acknowledge(message)
        message = receive(consumer)
        assert (message.value["n"], message.redelivery_count) == (5, number + 1)
    assert session_of(site, log, consumer).unacknowledged == 10
    assert log.subscription("t", "s").consumers[0].unacknowledged == 10


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_message_that_is_not_acknowledged_in_time_comes_again(log: Log, kind: str) -> None:
    """Acknowledge some in time, plainly and with a transaction: the one that is left comes again, and it only."""
    numbered(log, 3)
    consumer = subscribe(log, type=kind, acknowledge_timeout=3600.0)
    messages = [receive(consumer) for _ in range(3)]
    consumer.acknowledge(messages[0])
    with log.begin_transaction() as transaction:
        transaction.acknowledge(messages[2])
    waited_for = consumer._state.redeliveries._handed_out
    assert list(waited_for) == [(messages[1]._batch, messages[1]._row)]
    waited_for[messages[1]._batch, messages[1]._row] = now = time.monotonic()  # the hour is over
    consumer._thread.due(now)
    again = receive(consumer)
    assert (again.value, again.redelivery_count) == (b"1", 1)
    assert consumer.receive(0.0) is None
    consumer.acknowledge(again)
    consumer.close()
    assert log.subscription("t", "s").partitions[0].backlog == 0


def test_redeliver_brings_all_that_is_not_acknowledged(log: Log) -> None:
    """Ask for it on both kinds of subscription."""
    numbered(log)
    for kind in ("exclusive", "shared"):
        consumer = subscribe(log, kind, type=kind)
        for number, message in enumerate([receive(consumer) for _ in range(10)]):
            if number % 2:
                consumer.acknowledge(message)
        consumer.redeliver()
        assert take(consumer, 5) == VALUES[::2]
        assert consumer.receive(0.0) is None
