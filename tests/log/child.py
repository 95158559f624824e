"""What child processes of the tests do; the first argument picks it. They print what came of it as one line of JSON."""

from __future__ import annotations

import json
import pickle
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from txn_source import Batching, Log, StorageWriteError, connect
from txn_source.client.streaming.stream_subscription import StreamSubscription
from txn_source.model.topic_name import TopicName


def opened(kind: str, target: str) -> Log:
    return connect(endpoint=target) if kind == "remote" else connect(target)


def open_and_list(kind: str, target: str) -> Any:
    """Open the log, which may make a new root, and list its topics."""
    with opened(kind, target) as log:
        return log.topics()


def append(kind: str, target: str, name: str, count: str) -> Any:
    """Append numbered messages to two partitions of ``orders``, every other one in a transaction of its own."""
    with opened(kind, target) as log, log.producer("orders", name=name) as producer:
        for index in range(int(count)):
            value, partition = f"{name} {index}", index // 2 % 2
            if index % 2:
                with log.begin_transaction() as transaction:
                    producer.send(value, txn=transaction, partition=partition)
            else:
                producer.send(value, partition=partition)
                producer.flush()
    return "done"


def hold_subscription(kind: str, target: str, topic: str, name: str) -> Any:
    """Hold a subscription as a stream does, until stdin ends."""
    with opened(kind, target) as log:
        subscription = StreamSubscription(log.metadata, TopicName.parse(topic), name, None)
        assert subscription.is_there
        print("held", flush=True)
        sys.stdin.read()


def use_pickled() -> Any:
    """Use a log that comes pickled on stdin: read, write, and read again."""
    return _use(pickle.load(sys.stdin.buffer))


def write_to_a_full_disk(kind: str, target: str) -> Any:
    """Let files grow no more: first those of segments, then, if it is in this process, the database; then mend it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    refused = []
    with opened(kind, target) as log, log.producer("orders", batching=Batching(linger_s=1e6)) as producer:
        producer.send("before")
        producer.flush()
        for limit, message in ((100_000, "x" * 200_000), (1, "small")):
            producer.send(message)
            with files_up_to(limit):
                try:
                    producer.flush()
                except StorageWriteError as error:
                    refused.append(error.fact)
        with files_up_to(1):
            try:
                assert log.begin_transaction().id is not None
            except StorageWriteError as error:
                refused.append(error.fact)
        producer.send("after")
        producer.flush()
    return refused


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _use(log: Log) -> list[str]:
    with log.producer("orders") as producer, log.begin_transaction() as transaction:
        producer.send("x", txn=transaction)
    return [row["value"].decode() for row in log.scan("orders", columns=["value"]).read_all().to_pylist()]


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
