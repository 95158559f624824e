"""Exceptions at any point of a consumer's and a reader's calls: nothing is skipped, lost, or acknowledged unreceived.

Each call is struck at its first point, then at a later one, and so on, until it gets through; the same consumer is used
all the time, so that it has to be usable after each of them.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.log.consuming import END, WAIT_S, receive, subscribe, take
from tests.log.reading import BY_HAND, eventually, send_each
from tests.log.sites import Site
from tests.log.striking import Striker, Struck, free, storm
from txn_source import Consumer, Log, Producer, Reader, UnavailableError

VALUES = [b"%d" % number for number in range(12)]
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""A strike at the closing of a generator goes nowhere, as a signal's does: nobody called."""


@pytest.fixture
def striker(request: pytest.FixtureRequest) -> Striker:
    """One that strikes at every point if it has the time."""
    return Striker(1 if request.config.getoption("--long") else 11)


def filled(log: Log, values: list[bytes] = VALUES, each: int = 3) -> Producer:
    """Make the topic, with so many messages in an entry, and an aborted one in between."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    for start in range(0, len(values), each):
        for value in values[start : start + each]:
            producer.send(value)
        producer.flush()
        transaction = log.begin_transaction()
        producer.send(b"aborted", txn=transaction)
        producer.flush()
        transaction.abort()
    return producer


def check(consumer: Consumer) -> None:
    """No lock stays held, and the threads are there."""
    assert free(consumer._lock, consumer._sender.sending, consumer._epochs.seeking)
    assert {"txnlog-due", "txnlog-consumer"} <= {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("queue_size", [1, 100])
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_struck_receive_skips_nothing(site: Site, striker: Striker, kind: str, queue_size: int) -> None:
    """Strike ``receive`` on each message's way: all come once, in order."""
    log = site.connect()
    filled(log)
    consumer = subscribe(log, type=kind, queue_size=queue_size)
    found = []
    while len(found) < len(VALUES):
        message = striker.until_it_passes(lambda: consumer.receive(WAIT_S))
        assert message is not None
        found.append(message.value)
    assert found == VALUES
    assert consumer.receive(0.0) is None
    assert striker.strikes > 2 * len(VALUES)
    check(consumer)


def test_struck_batches_skip_nothing(site: Site, striker: Striker) -> None:
    """Strike ``receive_batch``, after some messages were received one by one."""
    log = site.connect()
    filled(log)
    consumer = subscribe(log, queue_size=3)
    found: list[bytes] = take(consumer, 2)
    while len(found) < len(VALUES):
        batch = striker.until_it_passes(lambda: consumer.receive_batch(WAIT_S))
        assert batch is not None
        found += batch.values
    assert found == VALUES
    check(consumer)


def test_struck_reader_skips_nothing(site: Site, striker: Striker) -> None:
    """Strike a reader's calls: reading, iterating, and asking whether there is more."""
    log = site.connect()
    filled(log)
    with log.reader("t", queue_size=3) as reader:
        messages, found = iter(reader), []
        for number in range(len(VALUES)):
            assert striker.until_it_passes(reader.has_message_available)
            by_iterating = number % 2 == 1
            message = striker.until_it_passes(lambda i=by_iterating: next(messages) if i else reader.read_next(WAIT_S))  # type: ignore[misc]
            assert message is not None
            found.append(message.value)
        assert found == VALUES
        assert not reader.has_message_available()
        check(reader._consumer)


def test_what_was_struck_on_its_way_out_is_not_acknowledged_with_others(site: Site) -> None:
    """Have two threads take neighbours, strike the first one as it returns, and have the second acknowledge both.

    The first message was received by nobody, so it isn't acknowledged, and comes next, or again.
    """
    log = site.connect()
    filled(log)
    consumer = subscribe(log)
    first = receive(consumer)
    second = receive(consumer)
    consumer._queue.values = ()
    consumer._queue.returned.append((first._batch, first._row, first._row + 1))  # what a struck call leaves
    consumer.acknowledge_cumulative(second)
    consumer.flush()
    assert take(consumer, 1) == [b"2"]
    consumer.close()
    assert take(subscribe(log), 3) == [b"0", b"2", b"3"]


def test_what_was_struck_comes_again_beside_other_threads(site: Site) -> None:
    """Give back a message while a later one is with another thread: it comes, once, and a reader stands there."""
    log = site.connect()
    filled(log)
    reader = log.reader("t")
    consumer = reader._consumer
    first, second = receive(consumer), receive(consumer)
    assert (first.value, second.value) == (b"0", b"1")
    consumer._queue.values = ()
    consumer._queue.returned.append((first._batch, first._row, first._row + 1))
    assert reader.has_message_available()
    found = [receive(consumer).value for _ in range(11)]
    assert sorted(found) == sorted([b"0", *VALUES[2:]])
    assert not reader.has_message_available()
    assert reader.read_next(0.0) is None


def test_struck_acknowledgements_are_neither_lost_nor_made_up(site: Site, striker: Striker) -> None:
    """Strike each way to acknowledge, and ``flush``, and repeat: what was received is acknowledged, and only that."""
    log = site.connect()
    filled(log)
    consumer = subscribe(log)
    messages = [receive(consumer) for _ in range(7)]
    for message in messages[:3]:
        striker.until_it_passes(lambda m=message: consumer.acknowledge(m))  # type: ignore[misc]
        striker.until_it_passes(consumer.flush)
    striker.until_it_passes(lambda: consumer.acknowledge_cumulative(messages[6]))
    striker.until_it_passes(consumer.flush)
    check(consumer)
    assert log.subscription("t", "s").partitions[0].backlog == 5
    consumer.close()
    assert take(subscribe(log), 5) == VALUES[7:]


def test_acknowledgement_after_a_struck_one_is_sent_by_itself(site: Site, striker: Striker) -> None:
    """Strike ``acknowledge`` at each point without calling it again for the same message, and wait: it is sent."""
    log = site.connect()
    filled(log, [b"%d" % n for n in range(40)], each=40)
    consumer = subscribe(log, acknowledge_interval=0.01)
    for k in range(39):
        message = receive(consumer)
        try:
            striker.at(k, lambda m=message: consumer.acknowledge(m))  # type: ignore[misc]
        except Struck:
            consumer.acknowledge(message)
    eventually(lambda: log.subscription("t", "s").partitions[0].backlog == 1)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_struck_refusals_are_redelivered(site: Site, striker: Striker, kind: str) -> None:
    """Strike ``negative_acknowledge`` and ``redeliver``, repeat them, and receive all until everything has come."""
    log = site.connect()
    filled(log)
    consumer = subscribe(log, type=kind, negative_acknowledge_delay=0.0)
    for call in (lambda m: consumer.negative_acknowledge(m), lambda _: consumer.redeliver()):
        message = receive(consumer)
        striker.until_it_passes(lambda c=call, m=message: c(m))  # type: ignore[misc]
    found = set()
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and (found != set(VALUES)):
        message = receive(consumer)
        consumer.acknowledge(message)
        found.add(message.value)
    consumer.flush()
    assert found == set(VALUES)
    check(consumer)


@pytest.mark.parametrize("of", ["consumer", "reader"])
def test_struck_seek_can_be_repeated(site: Site, striker: Striker, of: str) -> None:
    """Strike ``seek``, with messages received in between, until it gets through: all comes from there."""
    log = site.connect()
    producer = filled(log)
    who: Any = subscribe(log) if of == "consumer" else log.reader("t")
    consumer: Consumer = who if of == "consumer" else who._consumer
    assert take(consumer, 4) == VALUES[:4]
    after = 0

    def check_now_and_then() -> None:
        nonlocal after
        after += 1
        if after % 8 == 0:
            message = consumer.receive(0.2)  # from before, from there, or nothing while it connects again
            assert message is None or message.value in VALUES

    striker.until_it_passes(lambda: who.seek("earliest"), check_now_and_then)
    assert take(consumer, 12) == VALUES
    send_each(producer, [END])
    assert take(consumer, 1) == [END]
    check(consumer)


def test_struck_seek_leaves_a_consumer_that_goes_on(site: Site, striker: Striker) -> None:
    """Strike ``seek`` at a point and don't repeat it: messages come, from where it stood or from there."""
    log = site.connect()
    filled(log)
    consumer = subscribe(log)
    for k in range(3, 200, 9):
        try:
            striker.at(k, lambda: consumer.seek("earliest"))
        except Struck:
            assert receive(consumer).value in VALUES
        else:
            break
    assert striker.strikes > 5


def test_struck_close_and_subscribe_leave_nothing_behind(site: Site, striker: Striker) -> None:
    """Strike ``subscribe`` and ``close`` of an exclusive subscription, and repeat both: it never stays busy."""
    log = site.connect()
    filled(log)

    for k in range(1, 400, 7):
        with suppress(Struck):
            consumer = striker.at(k, lambda: subscribe(log))
            break
        eventually(lambda: not _connected(log))  # now that no traceback keeps it
    message = receive(consumer)
    consumer.acknowledge(message)
    striker.until_it_passes(consumer.close)
    assert not _connected(log)
    assert take(subscribe(log), 1) == VALUES[1:2]


def _connected(log: Log) -> bool:
    return any(info.consumers for info in log.subscriptions("t"))


def test_storm_of_signals_loses_nothing(site: Site, request: pytest.FixtureRequest) -> None:
    """Interrupt by a timer, at any instruction, while receiving, acknowledging and flushing; then count everything."""
    long = request.config.getoption("--long")
    log = site.connect()
    values = [b"%d" % number for number in range(20_000 if long else 1_500)]
    filled(log, values, each=50)
    consumer = subscribe(log, queue_size=40)
    found, strikes, rng = [], 0, random.Random(1)
    with storm(0.0007) as armed:
        while len(found) < len(values):
            try:
                armed[0] = True
                message = consumer.receive(WAIT_S)
                armed[0] = False
            except (Struck, UnavailableError):  # the database's answer to a signal may be that it was interrupted
                armed[0] = False
                strikes += 1
                continue
            assert message is not None
            found.append(message.value)
            strikes += _struck(armed, lambda m=message: consumer.acknowledge(m))  # type: ignore[misc]
            if rng.random() < 0.03:
                strikes += _struck(armed, consumer.flush, once=True)  # it takes longer than the next strike
    assert found == values
    consumer.flush()
    assert log.subscription("t", "s").partitions[0].backlog == 0
    assert strikes > 0
    print(f"{strikes} strikes, {len(values)} messages")
    check(consumer)


def _struck(armed: list[bool], call: Any, *, once: bool = False) -> int:
    """Call until it gets through, or once; return how often it was struck."""
    strikes = 0
    while True:
        try:
            armed[0] = True
            call()
            armed[0] = False
        except (Struck, UnavailableError):
            armed[0] = False
            strikes += 1
            if not once:
                continue
        return strikes


def test_iteration_goes_on_after_an_error(site: Site, striker: Striker) -> None:
    """Strike the iteration over a consumer: the same iterator goes on with the next message."""
    log = site.connect()
    filled(log)
    reader: Reader = log.reader("t")
    messages = iter(reader)
    assert next(messages).value == b"0"
    with pytest.raises(Struck):
        striker.at(4, lambda: next(messages))
    assert [next(messages).value for _ in range(11)] == VALUES[1:]
