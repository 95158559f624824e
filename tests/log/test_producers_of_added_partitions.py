"""Producers that are open while partitions are added: they learn of these with their next write.

From then on they route keys anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.log.meddling import meddling
from tests.log.reading import BY_HAND, by_partition, send_each
from tests.log.sites import Site
from tests.selection import mostly_long
from txn_source import Log, Producer, TopicNotFoundError, UnavailableError
from txn_source.model.routing import partition_of

KEYS = [b"key-%d" % number for number in range(40)]


def send_keys(producer: Producer, **options: Any) -> None:
    """Send a message for each key, which is its value, too."""
    for key in KEYS:
        producer.send(key, key=key, **options)


def routed(partitions: int) -> dict[int, list[bytes]]:
    """Return the keys that belong to each of so many partitions."""
    found: dict[int, list[bytes]] = {}
    for key in KEYS:
        found.setdefault(partition_of(key, partitions), []).append(key)
    return dict(sorted(found.items()))


def send_one_by_one(producer: Producer) -> None:
    send_keys(producer)


def send_together(producer: Producer) -> None:
    producer.send_batch(pa.record_batch({"key": KEYS, "value": KEYS}))


def plain(log: Log, producer: Producer, partition: int) -> None:
    producer.send(b"first", partition=partition)
    producer.flush()


def in_one_call(log: Log, producer: Producer, partition: int) -> None:
    with log.begin_transaction() as txn:
        producer.send(b"first", partition=partition, txn=txn)


def in_a_known_transaction(log: Log, producer: Producer, partition: int) -> None:
    with log.begin_transaction() as txn:
        assert txn.id
        producer.send(b"first", partition=partition, txn=txn)


@pytest.mark.parametrize("send", mostly_long([send_one_by_one, send_together], send_one_by_one))
@pytest.mark.parametrize("write", [plain, in_one_call, in_a_known_transaction])
def test_keys_are_routed_anew_from_the_next_write_on(
    log: Log, write: Callable[[Log, Producer, int], None], send: Callable[[Producer], None]
) -> None:
    """Add partitions to a topic of two: what is sent before the next write goes by two, what follows by five."""
    log.create_topic("t", partitions=2)
    producer = log.producer("t", batching=BY_HAND)
    log.update_topic("t", 5)
    send(producer)
    producer.flush()
    assert by_partition(log, "t") == routed(2)
    log.delete_topic("t")
    log.create_topic("t", partitions=2)
    producer = log.producer("t", batching=BY_HAND)
    log.update_topic("t", 5)
    write(log, producer, 0)
    send(producer)
    producer.flush()
    found = by_partition(log, "t")
    found[0].remove(b"first")
    assert found == routed(5)


def test_messages_without_a_key_go_to_new_partitions_in_turn(log: Log) -> None:
    """Write message after message: once the producer knows of more partitions, each has its turn."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    log.update_topic("t", 3)
    send_each(producer, [b"%d" % number for number in range(7)])
    assert [len(found) for found in by_partition(log, "t").values()] == [3, 2, 2]


def test_new_partition_can_be_named_at_once(log: Log) -> None:
    """Name partitions that a producer doesn't know: one that is there is taken, one that isn't is refused."""
    log.create_topic("t")
    producer = log.producer("t")
    with pytest.raises(TopicNotFoundError, match=r"has no partition 2.*Its partitions are 0 to 0"):
        producer.send(b"x", partition=2)
    log.update_topic("t", 3)
    producer.send(b"x", partition=2)
    producer.send_batch(pa.record_batch({"value": [b"y"]}), partition=1)
    with pytest.raises(TopicNotFoundError, match=r"has no partition 3.*Its partitions are 0 to 2"):
        producer.send(b"z", partition=3)
    producer.flush()
    assert by_partition(log, "t") == {1: [b"y"], 2: [b"x"]}


def test_partitions_of_a_topic_that_was_made_anew_are_not_taken(log: Log) -> None:
    """Delete the topic of an open producer and make it again with more partitions: those aren't the producer's."""
    log.create_topic("t")
    producer = log.producer("t")
    log.delete_topic("t")
    log.create_topic("t", partitions=3)
    with pytest.raises(TopicNotFoundError, match=r"has no partition 2.*Its partitions are 0 to 0"):
        producer.send(b"x", partition=2)


def test_producer_goes_on_if_the_new_partitions_can_not_be_looked_up(site: Site) -> None:
    """Let the look-up fail once: messages are routed as before, and the write after that tells of them again."""
    log, way = meddling(site)
    log.create_topic("t", partitions=2)
    producer = log.producer("t", batching=BY_HAND)
    log.update_topic("t", 5)

    def fail() -> None:
        raise UnavailableError("The service is away.", "Wait.")

    plain(log, producer, 0)
    way.before["GetView"] = fail
    send_keys(producer)
    assert "GetView" not in way.before
    producer.flush()
    found = by_partition(log, "t")
    found[0].remove(b"first")
    assert found == routed(2)

    def fail_twice() -> None:
        way.before["GetView"] = fail
        fail()

    way.before["GetView"] = fail_twice
    with pytest.raises(UnavailableError, match="away"):
        producer.send(b"x", partition=4)
    plain(log, producer, 0)
    send_keys(producer)
    producer.flush()
    found = by_partition(log, "t")
    assert {partition: found[partition] for partition in (2, 3, 4)} == {n: routed(5)[n] for n in (2, 3, 4)}
