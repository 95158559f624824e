"""Ledgers: when they are rolled, and how positions stay in order over them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, by_id, rows, send_each
from tests.log.sites import ManualClock
from txn_source import Log, TopicNotFoundError

_SIXTY_BYTES = b"x" * 60


def entries_of(log: Log, topic: str, partition: int = 0) -> list[int]:
    """Return how many entries each ledger of a partition has; the last one is the open one."""
    ledgers = log.stats(topic).partitions[partition].ledgers
    assert [ledger.closed for ledger in ledgers] == [True] * (len(ledgers) - 1) + [False]
    return [ledger.entries for ledger in ledgers]


def test_entries_of_one_append_are_spread_over_ledgers(log: Log) -> None:
    """Let one flush write more entries than a ledger takes."""
    log.create_topic("orders", ledger_max_entries=2)
    producer = log.producer("orders", batching=BY_HAND)
    properties = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
    with_property = pa.record_batch({"value": pa.array([b"x"]), "__properties": properties})
    for _ in range(5):  # two neighbours have different columns, so they can't be one entry
        producer.send(b"x")
        producer.send_batch(with_property)
    ids = producer.flush()
    assert entries_of(log, "orders") == [2] * 5 + [0]
    assert list(ids) == sorted(ids)
    assert list(ids) == list(by_id(log, "orders"))


def test_ledger_is_rolled_when_it_has_its_bytes(log: Log) -> None:
    """Append entries, whose notes differ by some bytes, to ledgers that take a little more than two of them."""
    log.create_topic("measured", ledger_max_entries=1)
    send_each(log.producer("measured"), [_SIXTY_BYTES] * 7)
    sizes = [ledger.bytes for ledger in log.stats("measured").ledgers if ledger.entries]
    limit = 2 * max(sizes) + 50
    log.create_topic("orders", ledger_max_bytes=limit)
    send_each(log.producer("orders"), [_SIXTY_BYTES] * 7)
    assert entries_of(log, "orders") == [3, 3, 1]
    assert [ledger.bytes >= limit for ledger in log.stats("orders").ledgers] == [True, True, False]


def test_ledger_is_rolled_when_it_is_old(clocked_log: Log, clock: ManualClock) -> None:
    """Append just before and just at the age, by the service's clock."""
    clocked_log.create_topic("orders", ledger_max_age=60)
    producer = clocked_log.producer("orders")
    send_each(producer, [b"a"])
    clock.advance(59.999)
    send_each(producer, [b"b"])
    assert entries_of(clocked_log, "orders") == [2]
    clock.advance(0.001)
    send_each(producer, [b"c"])
    assert entries_of(clocked_log, "orders") == [2, 1]


def test_ledger_is_rolled_by_hand(log: Log) -> None:
    """Roll one partition, then all, then again when nothing has come."""
    log.create_topic("orders", partitions=3)
    producer = log.producer("orders")
    first = [send_each(producer, [b"x"], partition=p)[0].ledger_id for p in (0, 1)]
    assert log.roll_ledger("orders", 1) == [first[1]]
    assert [entries_of(log, "orders", p) for p in range(3)] == [[1], [1, 0], [0]]
    assert log.roll_ledger("orders") == [first[0]]
    assert log.roll_ledger("orders") == []
    with pytest.raises(TopicNotFoundError, match="no partition 3"):
        log.roll_ledger("orders", 3)


def test_ledger_ids_are_never_used_again(log: Log) -> None:
    """Delete the topic with the largest ledger ids and make it again."""
    seen: set[int] = set()
    for _ in range(3):
        log.create_topic("orders", ledger_max_entries=1)
        send_each(log.producer("orders"), [b"x"] * 3)
        ids = {ledger.ledger_id for ledger in log.stats("orders").ledgers}
        assert not seen or min(ids) > max(seen)
        seen |= ids
        log.delete_topic("orders")


def test_publish_times_never_go_back(clocked_log: Log, clock: ManualClock) -> None:
    """Set the service's clock back between appends."""
    clocked_log.create_topic("orders", ledger_max_entries=2)
    producer = clocked_log.producer("orders")
    start = clock.now_us
    for seconds in (0, 10, -60, 30, 60):
        clock.advance(seconds)
        send_each(producer, [b"x"])
    times = [row["__publish_time"] for row in rows(clocked_log, "orders", UNCOMMITTED, ["__publish_time"])]
    since = [round(time.timestamp() * 1_000_000) - start for time in times]
    assert since == [0, 10_000_000, 10_000_000, 10_000_000, 40_000_000]
