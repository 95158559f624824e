"""Consuming a topic in two ways at once: plainly, at least once, and in transactions into another one, exactly once.

As a script it does so in a process of its own until it is killed, and prints a line of JSON for each step.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

from txn_source import (
    AcknowledgedElsewhereError,
    Batching,
    Consumer,
    Log,
    Message,
    Producer,
    StaleEpochError,
    SubscriptionBusyError,
    TransactionEndedError,
    connect,
)

PARTITIONS = 2
Insist = Callable[[Callable[[], Any]], Any]


def prepare(log: Log) -> None:
    """Make the topics and the subscriptions."""
    log.create_topic("t", PARTITIONS, ledger_max_entries=20)
    log.create_topic("out")
    log.create_subscription("t", "plain", "shared", initial_position="earliest")
    log.create_subscription("t", "exact", "exclusive", initial_position="earliest")


def write(log: Log, producer: Producer, source: random.Random, first: int, insist: Insist) -> list[str]:
    """Write some messages, plain and in transactions; return those that are committed, which are numbered."""
    written: list[str] = []
    for number in range(first, first + 20):
        kind = source.choice(["plain", "commit", "abort"])
        value = f"{kind} {number}"
        if kind == "plain":
            producer.send(value, partition=number % PARTITIONS)
            insist(producer.flush)
        else:
            transaction = insist(log.begin_transaction)
            for partition in range(PARTITIONS):
                producer.send(f"{value} {partition}", partition=partition, txn=transaction)
            insist(getattr(transaction, kind))
        written += {"plain": [value], "commit": [f"{value} {p}" for p in range(PARTITIONS)], "abort": []}[kind]
    return written


def consume(log: Log, source: random.Random, insist: Insist = lambda call: call()) -> Generator[list[Any], None, None]:
    """Consume both ways without end; yield ``["got" | "acknowledged" | "committed" | "nothing", value...]``."""
    batching = Batching(linger_s=1e6)
    with (
        _patiently(log, "plain", "shared") as plain,
        _patiently(log, "exact", "exclusive") as exact,
        log.producer("out", batching=batching) as producer,
    ):
        while True:
            got = _some(plain, source, insist)
            yield ["got", *_values(got)]
            for message in got:
                plain.acknowledge(message)
            insist(plain.flush)
            yield ["acknowledged", *_values(got)]
            taken = _some(exact, source, insist)
            if not taken:
                yield ["nothing"]
                continue
            transaction = insist(log.begin_transaction)
            for message in taken:
                producer.send(message.value, txn=transaction)
                transaction.acknowledge(message)
            if source.random() < 0.3:
                insist(producer.flush)
            try:
                insist(transaction.commit)
                yield ["committed", *_values(taken)]
            except (StaleEpochError, AcknowledgedElsewhereError, TransactionEndedError):
                with suppress(TransactionEndedError):
                    insist(transaction.abort)


def _patiently(log: Log, name: str, kind: str) -> Consumer:
    """Subscribe as soon as the place of a consumer that was killed is free."""
    while True:
        with suppress(SubscriptionBusyError):
            return log.subscribe("t", name, kind, None, acknowledge_interval=1000.0)


def _some(consumer: Consumer, source: random.Random, insist: Insist) -> list[Message]:
    found = (insist(lambda: consumer.receive(0.02)) for _ in range(source.randrange(1, 6)))
    return [message for message in found if message is not None]


def _values(messages: list[Message]) -> list[str]:
    return [message.value.decode() for message in messages]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    of_kind, target, seed = sys.argv[1:]
    with connect(endpoint=target) if of_kind == "remote" else connect(target) as opened:
        for step in consume(opened, random.Random(seed)):
            print(json.dumps(step), flush=True)
