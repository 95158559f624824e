"""Consumers whose calls are interrupted or struck: nothing is lost, and what can't go on says so."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from tests.log.consuming import VALUES, numbered, receive, subscribe
from txn_source import FailedError, Log
from txn_source.client.consuming import consumer as consumers
from txn_source.client.consuming.consumer import Consumer

KINDS = pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Have Ctrl-C be Python's."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def gets(consumer: Consumer, values: list[bytes]) -> bool:
    """True if the consumer gets these values from here on, and nothing else."""
    return [receive(consumer).value for _ in values] == values and consumer.receive(0.05) is None


@KINDS
def test_interrupt_while_nothing_comes_changes_nothing(log: Log, kind: str) -> None:
    """Press Ctrl-C while a call waits: the next one gets what comes then."""
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
@pytest.mark.parametrize("call", ["receive", "receive_batch"])
def test_interrupt_while_messages_are_read_loses_none(log: Log, kind: str, call: str) -> None:
    """Press Ctrl-C while bytes are read: the call ends when that is done, and the next one gets the first message."""
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
@pytest.mark.parametrize("call", ["receive", "receive_batch"])
def test_struck_consumer_has_failed_and_the_next_one_goes_on(log: Log, kind: str, call: str) -> None:
    """Run out of memory amid a read: each later call says so, acknowledgements count, and the rest comes again."""
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
        with pytest.raises(FailedError, match=r"Consumer .* has failed .*MemoryError.* Close it: ack"):
            refused()
    consumer.close()
    assert gets(subscribe(log, type=kind), VALUES[1:])
