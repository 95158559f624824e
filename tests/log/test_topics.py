"""Topics: creating, listing, deleting, and who wins when many want the same one."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import rows, values
from tests.log.sites import Site
from txn_source import InvalidArgumentError, Log, SchemaMismatchError, TopicExistsError, TopicNotFoundError

pytestmark = pytest.mark.also("objects", "copies")

CREATOR = Path(__file__).with_name("create_when_told.py")


def test_created_topic_is_listed_with_its_partitions(log: Log) -> None:
    """Create topics and ask for the list and for stats."""
    log.create_topic("orders", partitions=3)
    log.create_topic("bills")
    assert log.topics() == ["bills", "orders"]
    assert [p.partition for p in log.stats("orders").partitions] == [0, 1, 2]
    assert len(log.stats("bills").partitions) == 1


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


def test_producer_of_a_deleted_topic_is_refused(log: Log) -> None:
    """Delete the topic under a producer, make it again, and send: the new topic gets nothing from the old producer."""
    log.create_topic("orders")
    producer = log.producer("orders")
    producer.send(b"old")
    producer.flush()
    log.delete_topic("orders")
    log.create_topic("orders")
    producer.send(b"late")
    with pytest.raises(TopicNotFoundError, match="deleted"):
        producer.flush()
    assert rows(log, "orders") == []


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "a/b/c/d", "..", "a/../b", "é", "x" * 256, "orders-partition-3", "a\nb", 5, None]
)
def test_bad_topic_name_is_refused(log: Log, name: Any) -> None:
    """Create a topic under a name that can't be; nothing is created."""
    with pytest.raises(InvalidArgumentError, match=r"^\[TXNLOG_INVALID_ARGUMENT\] "):
        log.create_topic(name)
    assert log.topics() == []


@pytest.mark.parametrize("partitions", [0, -1, 10_001, 2**40, True, 2.0, "2", None])
def test_bad_number_of_partitions_is_refused(log: Log, partitions: Any) -> None:
    """Create a topic with a number of partitions that can't be; nothing is created."""
    with pytest.raises(InvalidArgumentError, match=r"partitions"):
        log.create_topic("orders", partitions=partitions)
    assert log.topics() == []


@pytest.mark.parametrize(
    "policy",
    [
        {"ledger_max_entries": 0},
        {"ledger_max_entries": 2**70},
        {"ledger_max_bytes": -1},
        {"ledger_max_bytes": "5"},
        {"ledger_max_age": True},
        {"ledger_max_age": float("nan")},
        {"ledger_max_age": float("inf")},
        {"ledger_max_ages": 5},
    ],
    ids=str,
)
def test_bad_policy_is_refused_by_its_name(log: Log, policy: dict[str, Any]) -> None:
    """Create a topic with a policy that can't be; the error names it and nothing is created."""
    with pytest.raises(InvalidArgumentError, match=next(iter(policy))):
        log.create_topic("orders", **policy)
    assert log.topics() == []


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([("__a", pa.int64())]),
        pa.schema([("", pa.int64())]),
        pa.schema([("a", pa.uint8())]),
        pa.schema([("a", pa.int64()), ("A", pa.int64())]),
        pa.schema([("a", pa.list_(pa.time32("s")))]),
        "a nonsense",
    ],
    ids=["empty", "reserved", "nameless", "unsigned", "case", "nested", "text"],
)
def test_bad_schema_is_refused(log: Log, schema: Any) -> None:
    """Create a topic with a schema that no reader could use; nothing is created."""
    with pytest.raises((InvalidArgumentError, SchemaMismatchError)):
        log.create_topic("orders", schema=schema)
    assert log.topics() == []


def test_partition_that_does_not_exist_is_refused(log: Log) -> None:
    """Name a partition beyond the last one in each call that takes one."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders")
    for partition in (-1, 2, 2**40):
        with pytest.raises(TopicNotFoundError, match=f"no partition {partition}"):
            log.roll_ledger("orders", partition)
        with pytest.raises(TopicNotFoundError, match=f"no partition {partition}"):
            producer.send(b"x", partition=partition)
    with pytest.raises(TopicNotFoundError, match="no partition 2"):
        log.scan("orders-partition-2")


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


def test_one_process_wins_a_new_topic(site: Site) -> None:
    """Let three processes, told to go at once, create one topic."""
    target = site.endpoint if site.kind == "remote" else str(site.root)
    command = [sys.executable, str(CREATOR), site.kind, target, "orders"]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    outcomes = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        outcomes.append(child.communicate()[0])
        assert child.returncode == 0
    assert sorted(outcomes) == ["TOPIC_EXISTS\n", "TOPIC_EXISTS\n", "created\n"]
