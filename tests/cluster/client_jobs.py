"""What producers, consumers and administrators do on their hosts; the environment says where the log is."""

from __future__ import annotations

import functools
import os
from collections import Counter
from typing import Any

import pyarrow as pa

from txn_source import Log, connect


@functools.cache
def log() -> Log:
    """The log of this host's surroundings."""
    return connect(endpoint=os.environ["TXNLOG_ENDPOINT"], timeout=10)


def produce(topic: str, first: int, transfers: int, each: int = 5) -> list[int]:
    """Write transfers, two messages each, ``each`` to a transaction; every fourth transaction is aborted.

    Returns those that were committed.
    """
    committed = []
    with log().producer(topic) as producer:
        for at in range(first, first + transfers, each):
            numbers = list(range(at, at + each))
            txn = log().begin_transaction()
            for leg in ("debit", "credit"):
                producer.send_batch(pa.record_batch({"transfer": numbers, "leg": [leg] * each}), txn=txn)
            producer.flush()
            if at // each % 4 == 3:
                txn.abort()
            else:
                txn.commit()
                committed += numbers
    return committed


def read(topic: str, level: str = "read_committed") -> list[list[Any]]:
    """Return each message as a list, sorted."""
    rows = log().scan(topic, level, columns=["transfer", "leg"]).read_all().to_pylist()
    return sorted([row["transfer"], row["leg"]] for row in rows)


def consume(topic: str, subscription: str, most: int) -> list[list[Any]]:
    """Receive and acknowledge messages until there are none, or ``most``; the same one twice would be in it twice."""
    received: Counter[tuple[int, str]] = Counter()
    with log().subscribe(topic, subscription, "shared", initial_position="earliest") as consumer:
        while received.total() < most and (message := consumer.receive(timeout=5)) is not None:
            value = message.value
            received[value["transfer"], value["leg"]] += 1
            consumer.acknowledge(message)
    return sorted([*key, count] for key, count in received.items())


def run(code: str) -> None:
    """Run the document's code."""
    exec(compile(code, "cluster.md", "exec"), {})


def make(topic: str) -> None:
    """Make a topic for transfers."""
    log().create_topic(topic, partitions=2, schema=pa.schema({"transfer": pa.int64(), "leg": pa.string()}))


def call(endpoint: str) -> int:
    """Call one of the services; return how many topics it has told."""
    return len(_at(endpoint).topics())


@functools.cache
def _at(endpoint: str) -> Log:
    return connect(endpoint=endpoint, timeout=20)


def current() -> str:
    """Return the host of the service that calls go to."""
    transport: Any = log().metadata._transport
    return str(transport._services[transport._current].address.rpartition(":")[0])
