"""Delivery counts: a received message counts, a queued one doesn't, and none that ends its process is forgotten."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from itertools import product
from typing import NoReturn

import pytest

from tests.log.consuming import VALUES, WAIT_S, numbered, receive, subscribe
from tests.log.holding import holding
from tests.log.reading import eventually, values
from tests.log.sites import Site
from tests.selection import mostly_long
from txn_source import Log, UnavailableError

KINDS = ["shared", "exclusive", "failover"]
DYING = """
import json, os, sys
from txn_source import connect

log = connect(**json.loads(sys.argv[1]))
consumer = log.subscribe("t", "s", type=sys.argv[2], max_redeliveries=int(sys.argv[3]))
while True:
    if sys.argv[4] == "receive":
        found = consumer.receive(timeout=60)
        values, count = [found.value], found.redelivery_count
    else:
        found = consumer.receive_batch(timeout=60)
        values, count = found.values, found.delivery.redeliveries
    for value in values:
        print(value.decode(), count, flush=True)
        if value == b"3":
            os.kill(os.getpid(), 9)
    consumer.acknowledge(found)
    consumer.flush()
"""


def dying(site: Site, kind: str, limit: int, how: str = "receive") -> list[tuple[str, int]]:
    """Run a process that is killed by message 3; return the values that it received, with their counts."""
    target = json.dumps({"endpoint": site.endpoint} if site.kind == "remote" else {"path": str(site.root)})
    command = [sys.executable, "-c", DYING, target, kind, str(limit), how]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert found.returncode == -signal.SIGKILL, found.stderr
    lines = [line.split() for line in found.stdout.splitlines()]
    return [(value, int(count)) for value, count in lines]


@pytest.mark.parametrize(("kind", "limit"), mostly_long(product(KINDS, [0, 2]), ("shared", 0)))
def test_message_that_kills_its_process_becomes_a_dead_letter(site: Site, kind: str, limit: int) -> None:
    """A message kills each process that receives it: it becomes a dead letter after ``limit + 1`` deliveries, two at
    least. The messages behind it, which waited in the same queues, are received and become no dead letters."""
    log = site.connect()
    numbered(log)
    log.create_subscription("t", "s", kind, initial_position="earliest")
    before = dying(site, kind, limit)
    assert before == [("0", 0), ("1", 0), ("2", 0), ("3", 0)]
    for count in range(1, max(2, limit + 1)):
        assert dying(site, kind, limit) == [("3", count)]
    with subscribe(log, type=kind, max_redeliveries=limit) as consumer:
        left = [receive(consumer) for _ in range(6)]
        assert [(m.value, m.redelivery_count) for m in left] == [(value, 1) for value in VALUES[4:]]
        assert consumer.receive(0.0) is None
        for message in left:
            consumer.acknowledge(message)
    assert values(log, "t-s-DLQ") == [b"3"]
    assert log.subscription("t", "s").partitions[0].backlog == 0


@pytest.mark.long
@pytest.mark.parametrize("kind", mostly_long(KINDS, "exclusive"))
def test_batch_that_comes_again_counts_before_it_is_received(log: Log, site: Site, kind: str) -> None:
    """Let the fourth message of a batch kill who receives it, twice: the whole batch counts each time."""
    log.create_topic("t")
    with log.producer("t") as producer:
        for value in VALUES:
            producer.send(value)
    log.create_subscription("t", "s", kind, initial_position="earliest")
    for count in range(2):
        assert dying(site, kind, 5, "receive_batch") == [(str(number), count) for number in range(4)]
    with subscribe(log, type=kind, max_redeliveries=5) as consumer:
        assert [(m.value, m.redelivery_count) for m in (receive(consumer) for _ in VALUES)] == [(v, 2) for v in VALUES]


@pytest.mark.parametrize("kind", mostly_long(KINDS, "exclusive", "shared"))
def test_queued_messages_keep_their_counts(log: Log, kind: str) -> None:
    """Receive two of ten and close, refuse the third, ask for a redelivery: each message counts what ``receive`` has
    returned of it."""
    numbered(log)
    with subscribe(log, type=kind, max_redeliveries=9) as consumer:
        assert [receive(consumer).redelivery_count for _ in range(2)] == [0, 0]
    with subscribe(log, type=kind, max_redeliveries=9, negative_acknowledge_delay=0.0) as consumer:
        first = [receive(consumer) for _ in range(3)]
        assert [(m.value, m.redelivery_count) for m in first] == [(b"0", 1), (b"1", 1), (b"2", 0)]
        for message in first[:2]:
            consumer.acknowledge(message)
        consumer.negative_acknowledge(first[2])
        counts = {m.value: m.redelivery_count for m in (receive(consumer) for _ in range(8))}
        assert counts == {b"2": 1} | dict.fromkeys(VALUES[3:], 0)
        consumer.redeliver()
        counts = {m.value: m.redelivery_count for m in (receive(consumer) for _ in range(8))}
        assert counts == {b"2": 2} | dict.fromkeys(VALUES[3:], 1)


def test_what_was_received_before_a_seek_is_not_counted_behind_it(log: Log) -> None:
    """Receive all of two partitions, have it redelivered, and move the subscription to the start: then only what is
    received from there on counts, though the consumer stood further in the other partition."""
    log.create_topic("t", partitions=2)
    with log.producer("t") as producer:
        for partition in (0, 1):
            producer.send(b"v", partition=partition)
    with subscribe(log, type="exclusive", max_redeliveries=9) as consumer:
        assert {receive(consumer).partition for _ in range(2)} == {0, 1}
        consumer.redeliver()
        receive(consumer)
        log.seek("t", "s", "earliest")
        eventually(lambda: consumer.epoch == log.subscription("t", "s").epoch)
        again = receive(consumer).partition
    with subscribe(log, type="exclusive", max_redeliveries=9) as consumer:
        counts = {m.partition: m.redelivery_count for m in (receive(consumer) for _ in range(2))}
        assert counts == {again: 1, 1 - again: 0}


def test_order_is_kept_under_redeliveries(log: Log) -> None:
    """Refuse a message in the middle of three partitions again and again: what comes is in order each time, and
    nothing is handled twice."""
    log.create_topic("t", partitions=3)
    with log.producer("t") as producer:
        for number in range(60):
            producer.send(str(number).encode(), key=str(number % 7).encode())
            if number % 4 == 0:
                producer.flush()
    with subscribe(log, type="exclusive", max_redeliveries=1, queue_size=5, negative_acknowledge_delay=0.0) as consumer:
        done: dict[int, list[int]] = {0: [], 1: [], 2: []}
        refused: set[bytes] = set()
        while sum(map(len, done.values())) < 60:
            message = receive(consumer)
            if int(message.value) % 5 == 2 and message.value not in refused:
                refused.add(message.value)
                consumer.negative_acknowledge(message)
            else:
                assert message.redelivery_count == (message.value in refused)
                done[message.partition].append(int(message.value))
                consumer.acknowledge(message)
    assert all(of == sorted(set(of)) for of in done.values())
    assert len(refused) == 12
    assert "t-s-DLQ" not in log.topics()


def test_consumers_that_count_and_others_take_turns(log: Log) -> None:
    """Consume an ordered subscription by turns with and without a limit, cumulatively and singly: nothing is passed
    over, and nothing that was acknowledged comes again."""
    numbered(log, 10)
    seen: list[bytes] = []
    for number, limit in enumerate([None, 3, None, 3, 3]):
        with subscribe(log, type="exclusive", max_redeliveries=limit) as consumer:
            found = [receive(consumer) for _ in range(4 if number < 4 else 2)]
            if number % 2:
                consumer.acknowledge_cumulative(found[1])
            else:
                for message in found[:2]:
                    consumer.acknowledge(message)
            seen += [message.value for message in found[:2]]
    assert seen == VALUES
    assert log.subscription("t", "s").backlog == 0
    assert log.subscription("t", "s").redeliverable == 0


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


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
def test_redelivery_waits_until_it_can_be_counted(site: Site, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the service with a redelivered message in the queue: a call ends with its timeout, and at Ctrl-C, and the
    message comes when the service is back, counted right."""
    log, how = holding(site)
    numbered(log, 2)
    with subscribe(log, type=kind, max_redeliveries=5) as consumer:
        assert [receive(consumer).redelivery_count for _ in range(2)] == [0, 0]
    consumer = subscribe(log, type=kind, max_redeliveries=5)
    assert receive(consumer).redelivery_count == 1

    def away(*_: object) -> NoReturn:
        raise UnavailableError("The service is away.", "Wait.")

    with monkeypatch.context() as patch:
        patch.setattr(how, "converse", away)
        how.talks[-1].cut()
        eventually(lambda: consumer._link.current is None)
        assert consumer.receive(0.05) is None
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            consumer.receive()
        timer.join()
    found = {message.value: message.redelivery_count for message in (receive(consumer) for _ in range(2))}
    assert found == {b"0": 2, b"1": 1}
