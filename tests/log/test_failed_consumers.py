"""Interrupted consumers: no message is lost, and a failed consumer raises FAILED."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.log.consuming import VALUES, numbered, receive, subscribe
from tests.selection import mostly_long
from txn_source import FailedError, Log, connect
from txn_source.client.consuming import consumer as consumers
from txn_source.client.consuming.consumer import Consumer

KINDS = pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Install Python's own handler of Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def gets(consumer: Consumer, values: list[bytes]) -> bool:
    """True if the consumer's next messages have exactly these values."""
    return [receive(consumer).value for _ in values] == values and consumer.receive(0.05) is None


@KINDS
def test_interrupt_while_nothing_comes_changes_nothing(log: Log, kind: str) -> None:
    """Press Ctrl-C while a call waits: the next call receives the next message."""
    log.create_topic("t")
    consumer = subscribe(log, type=kind)
    timer = threading.Timer(0.2, press)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        consumer.receive()
    timer.join()
    with log.producer("t") as producer:
        producer.send(b"x")
    assert receive(consumer).value == b"x"


@KINDS
@pytest.mark.parametrize("call", mostly_long(["receive", "receive_batch"], "receive_batch"))
def test_interrupt_while_messages_are_read_loses_none(log: Log, kind: str, call: str) -> None:
    """Press Ctrl-C during a read: the call ends after the read, and the next call returns the first message."""
    numbered(log)
    consumer = subscribe(log, type=kind)
    inner = consumers.batches_of
    pressed: list[bool] = []

    def read(*arguments: Any) -> Any:
        if not pressed:
            pressed.append(True)
            press()
        return inner(*arguments)

    with patch.object(consumers, "batches_of", read), pytest.raises(KeyboardInterrupt):
        getattr(consumer, call)(60)
    assert gets(consumer, VALUES)


@KINDS
@pytest.mark.parametrize("call", mostly_long(["receive", "receive_batch"], "receive_batch"))
def test_struck_consumer_has_failed_and_the_next_one_goes_on(log: Log, kind: str, call: str) -> None:
    """Raise MemoryError in a read: later calls raise FAILED, ``close`` acknowledges, and the rest is redelivered."""
    numbered(log)
    consumer = subscribe(log, type=kind, queue_size=4)
    consumer.acknowledge(receive(consumer))

    def read(*_: Any) -> Any:
        raise MemoryError

    def take_all() -> None:
        while getattr(consumer, call)(60):
            pass

    with patch.object(consumers, "batches_of", read), pytest.raises(MemoryError):
        take_all()
    for refused in (consumer.receive, consumer.receive_batch, consumer.flush, lambda: consumer.seek("earliest")):
        with pytest.raises(FailedError, match=r"Consumer .* failed .*MemoryError.* Close it: close"):
            refused()
    consumer.close()
    assert gets(subscribe(log, type=kind), VALUES[1:])


RECEIVING = """
import json, os, random, signal, sys, threading
from txn_source import FailedError, connect

log, order, number = connect(sys.argv[1]), random.Random(3), int(sys.argv[2])
armed, over, got, told = [], threading.Event(), [], {"failures": 0, "interrupts": 0}

def interrupt(number, frame):
    if armed:
        armed.clear()
        raise KeyboardInterrupt

def press():
    while not over.wait(order.uniform(0.0001, 0.001)):
        os.kill(os.getpid(), signal.SIGINT)

def called(call):
    armed.append(True)
    try:
        found = call()
        armed.clear()
        return found
    except KeyboardInterrupt:
        told["interrupts"] += 1
        return KeyboardInterrupt
    finally:
        armed.clear()

signal.signal(signal.SIGINT, interrupt)
thread = threading.Thread(target=press)
thread.start()
consumer = log.subscribe("t", "s")
while not got or got[-1] < number - 1:
    try:
        message = called(lambda: consumer.receive(0.2))
        if message is None or message is KeyboardInterrupt:
            continue
        got.append(int(message.value))
        while called(lambda: consumer.acknowledge_cumulative(message)) is KeyboardInterrupt:
            pass
    except FailedError:
        told["failures"] += 1
        consumer.close()
        consumer = log.subscribe("t", "s")
over.set()
thread.join()
log.close()
print(json.dumps({**told, "got": got}))
"""


def test_no_message_is_passed_over_under_interrupts(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Press Ctrl-C every half millisecond during receive and acknowledge; subscribe again after FAILED: no gap."""
    number = 500_000 if request.config.getoption("--all") else 20_000
    with connect(tmp_path / "log") as log:
        log.create_topic("t")
        log.create_subscription("t", "s")
        with log.producer("t") as producer:
            producer.send_batch(pa.record_batch({"value": [b"%d" % each for each in range(number)]}))
        command = [sys.executable, "-W", "ignore", "-c", RECEIVING, str(tmp_path / "log"), str(number)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert found.returncode == 0, found.stderr
        told = json.loads(found.stdout)
        got = told["got"]
        assert told["interrupts"] > 10
        assert got[0] == 0
        assert [pair for pair in pairwise(got) if pair[1] > pair[0] + 1] == []
        assert log.subscription("t", "s").backlog == 0
