"""Topics: creating, listing, deleting, and who wins when many want the same one."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import values
from tests.log.sites import Site
from tests.selection import for_each
from txn_source import InvalidArgumentError, Log, SchemaMismatchError, TopicExistsError, TopicNotFoundError

pytestmark = pytest.mark.also("objects", "copies")


def test_short_and_full_name_are_one_topic(log: Log) -> None:
    """Create by one spelling and use the others."""
    log.create_topic("persistent://public/default/orders")
    with log.producer("public/default/orders") as producer:
        producer.send(b"one")
    assert values(log, "orders") == [b"one"]
    assert log.topics() == ["orders"]
    with pytest.raises(TopicExistsError, match="orders"):
        log.create_topic("orders")


def test_topics_are_listed_by_namespace(log: Log) -> None:
    """Create topics in three namespaces and list each alone."""
    for name in ("orders", "shop/eu/orders", "shop/us/orders", "public/eu/orders"):
        log.create_topic(name)
    assert log.topics("public/default") == ["orders"]
    assert log.topics("default") == ["orders"]
    assert log.topics("shop/eu") == ["persistent://shop/eu/orders"]
    assert log.topics("shop/none") == []
    assert len(log.topics()) == 4
    with pytest.raises(InvalidArgumentError, match="not a namespace"):
        log.topics("a/b/c")


def test_topic_that_exists_is_refused_and_left_as_it_was(log: Log) -> None:
    """Create one name twice, the second time with other partitions and a schema."""
    log.create_topic("orders", partitions=2)
    with pytest.raises(TopicExistsError, match=r"^\[TXNLOG_TOPIC_EXISTS\] .*'orders'"):
        log.create_topic("orders", partitions=5, schema=pa.schema([("a", pa.int64())]))
    assert len(log.stats("orders").partitions) == 2
    assert log.schema("orders").names == ["key", "value"]


def test_deleted_topic_is_gone_for_every_call(log: Log) -> None:
    """Delete a topic with messages and open transactions, then name it in each call."""
    log.create_topic("orders")
    log.create_topic("other")
    producer, other = log.producer("orders"), log.producer("other")
    transaction = log.begin_transaction()
    for each in (producer, other):
        each.send(b"x", txn=transaction)
        each.flush()
    log.delete_topic("orders")
    assert log.topics() == ["other"]
    for call in (log.scan, log.stats, log.producer, log.delete_topic, log.roll_ledger, log.schema):
        with pytest.raises(TopicNotFoundError, match=r"^\[TXNLOG_TOPIC_NOT_FOUND\] .*'orders'"):
            call("orders")
    transaction.commit()
    assert values(log, "other") == [b"x"]


@for_each(
    ("wrong", "said"),
    [
        *(
            ({"name": name}, "INVALID_ARGUMENT")
            for name in ("", "a b", "a/b", "..", "x" * 256, "orders-partition-3", 5, None)
        ),
        *(({"partitions": count}, "partitions") for count in (0, -1, 10_001, 2**40, True, 2.0, "2", None)),
        ({"ledger_max_entries": 0}, "ledger_max_entries"),
        ({"ledger_max_bytes": "5"}, "ledger_max_bytes"),
        ({"ledger_max_age": float("nan")}, "ledger_max_age"),
        ({"ledger_max_ages": 5}, "ledger_max_ages"),
        ({"schema": pa.schema([("a", pa.uint8())])}, "uint8"),
        ({"schema": "a nonsense"}, "schema"),
    ],
)
def test_topic_that_can_not_be_is_refused(log: Log, wrong: dict[str, Any], said: str) -> None:
    """Create one with a name, a number of partitions, a policy or a schema that can't be; nothing is created."""
    with pytest.raises((InvalidArgumentError, SchemaMismatchError), match=said):
        log.create_topic(**{"name": "orders"} | wrong)
    assert log.topics() == []


def test_one_thread_wins_a_new_topic(site: Site) -> None:
    """Let eight threads, each with its own connection, create one topic at once."""
    barrier = threading.Barrier(8)
    logs = [site.connect() for _ in range(8)]
    outcomes: list[str] = []

    def create(log: Log) -> None:
        barrier.wait()
        try:
            log.create_topic("orders", partitions=2)
            outcomes.append("created")
        except TopicExistsError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=create, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["TOPIC_EXISTS"] * 7 + ["created"]
    assert len(logs[0].stats("orders").partitions) == 2
