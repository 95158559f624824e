"""What the console changes: an abort, a seek; each says what it does before and afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.asked import Asked
from tests.selection import for_each
from txn_source import Log, TransactionEndedError


def test_an_abort_releases_what_waited(asked: Asked) -> None:
    """Abort a transaction whose producer goes on: what waited can be read, its owner is refused, again is no error."""
    log = asked.log
    log.create_topic("t", partitions=2)
    with log.producer("t") as producer:
        txn = log.begin_transaction()
        for partition in (0, 1):
            producer.send(b"own", partition=partition, txn=txn)
            producer.flush()
            for _ in range(3 + partition):
                producer.send(b"waits", partition=partition)
        producer.flush()
        answer = asked.post("transactions/abort", {"txn": str(txn.id)}).json
        assert (answer["txn"], answer["state"]) == (str(txn.id), "aborted")
        assert answer["released"] == [
            {"topic": "t", "partition": 0, "messages": 3},
            {"topic": "t", "partition": 1, "messages": 4},
        ]
        assert log.count("t") == 7
        with pytest.raises(TransactionEndedError):
            txn.commit()
        producer.send(b"goes on")
    again = asked.post("transactions/abort", {"txn": str(txn.id)})
    assert (again.status, again.json["state"], again.json["released"]) == (200, "aborted", [])
    assert asked.get("blockers").rows == []


def test_what_was_committed_is_not_aborted(asked: Asked) -> None:
    """Let the owner be faster."""
    asked.log.create_topic("t")
    with asked.log.producer("t") as producer, asked.log.begin_transaction() as txn:
        producer.send(b"m", txn=txn)
    answer = asked.post("transactions/abort", {"txn": str(txn.id)})
    assert (answer.status, answer.code) == (409, "TXN_ENDED")
    assert asked.log.count("t") == 1
    assert asked.post("transactions/abort", {"txn": "(0,99)"}).status == 404
    assert asked.post("transactions/abort", {"txn": "(7,99)"}).status == 404


def consumed(log: Log) -> list[str]:
    """Make a topic of two partitions whose subscription has acknowledged some of it; return the ids of partition 0."""
    log.create_topic("t", partitions=2)
    log.create_subscription("t", "s", "shared", initial_position="earliest")
    with log.producer("t") as producer:
        for number in range(20):
            producer.send(f"{number}".encode(), partition=number % 2)
            if number % 4 == 3:
                producer.flush()
        aborted = log.begin_transaction()
        producer.send(b"aborted", partition=0, txn=aborted)
        producer.flush()
        aborted.abort()
        for number in range(20, 30):
            producer.send(f"{number}".encode(), partition=number % 2)
    with log.subscribe("t", "s", "shared") as consumer:
        for _ in range(30):
            message = consumer.receive(timeout=30)
            if int(message.value) < 20 and message.value not in (b"4", b"5", b"12"):
                consumer.acknowledge(message)
    rows = log.scan("t-partition-0", columns=["__ledger_id", "__entry_id", "__batch_index"]).read_all().to_pylist()
    return [":".join(str(part) for part in row.values()) for row in rows]


PLACES: list[Any] = [
    {"at": "latest"},
    {"positions": {"0": "latest", "1": "earliest"}},
    3,
    4,  # inside of what was acknowledged above the mark
]


@pytest.mark.parametrize("to", PLACES, ids=str)
def test_a_preview_says_what_a_seek_does(asked: Asked, to: Any) -> None:
    """Preview a seek, do it, and compare: the backlog grows by what is repeated, and shrinks by what is skipped."""
    ids = consumed(asked.log)
    place = {"positions": {"0": ids[to]}} if isinstance(to, int) else to
    of = {"topic": "t", "name": "s", "to": place}
    before = asked.log.subscription("t", "s")
    found = asked.post("subscriptions/preview", of).json
    assert asked.log.subscription("t", "s") == before
    sought = asked.post("subscriptions/seek", of | {"epoch": found["epoch"]}).json
    after = asked.log.subscription("t", "s")
    assert sought["epoch"] == after.epoch == before.epoch + 1
    assert after.backlog - before.backlog == found["repeated_messages"] - found["skipped_messages"]
    assert found["repeated_messages"] == sum(part["repeated"] for part in found["partitions"])
    for part, was, now in zip(found["partitions"], before.partitions, after.partitions, strict=True):
        assert now.backlog - was.backlog == part["repeated"] - part["skipped"]
        assert part["repeated"] >= 0 <= part["skipped"]
    counts = {"{'at': 'latest'}": (0, 13), "3": (6, 1), "4": (5, 1)}
    if str(to) in counts:
        assert (found["repeated_messages"], found["skipped_messages"]) == counts[str(to)]


def test_a_seek_is_refused_if_somebody_was_faster(asked: Asked) -> None:
    """Seek with the epoch of a preview after others have moved the subscription, or made it anew."""
    asked.log.create_topic("t")
    asked.log.create_subscription("t", "s")
    of = {"topic": "t", "name": "s", "to": {"at": "earliest"}}
    epoch = asked.post("subscriptions/preview", of).json["epoch"]
    asked.log.seek("t", "s", "latest")
    answer = asked.post("subscriptions/seek", of | {"epoch": epoch})
    assert (answer.status, answer.code) == (409, "STALE_EPOCH")
    epoch = asked.post("subscriptions/preview", of).json["epoch"]
    asked.log.delete_subscription("t", "s")
    asked.log.create_subscription("t", "s")
    assert asked.post("subscriptions/seek", of | {"epoch": epoch}).status == 409
    assert asked.log.subscription("t", "s").epoch == 0


def test_a_seek_with_consumers_warns_and_moves_them(asked: Asked) -> None:
    """Seek while a consumer is connected: it is told of before, and goes on from the new place."""
    asked.log.create_topic("t")
    with asked.log.producer("t") as producer:
        producer.send(b"first")
        producer.send(b"second")
    with asked.log.subscribe("t", "s", initial_position="earliest", consumer_name="reader") as consumer:
        for _ in range(2):
            consumer.acknowledge(consumer.receive(timeout=30))
        shown = asked.get("subscription", topic="t", name="s").json
        assert [c["name"] for c in shown["connected"]] == ["reader"]
        of = {"topic": "t", "name": "s", "to": {"at": "earliest"}}
        found = asked.post("subscriptions/preview", of).json
        assert found["consumers"] == 1
        assert "connected" in found["warnings"][0]
        assert asked.post("subscriptions/seek", of | {"epoch": found["epoch"]}).status == 200
        assert consumer.receive(timeout=30).value == b"first"


@for_each(
    "to",
    [
        None,
        {},
        "earliest",
        {"at": "nowhere"},
        {"time_ms": -1},
        {"time_ms": 1e3},
        {"time_ms": 1 << 62},
        {"positions": {}},
        {"positions": {"7": "earliest"}},
        {"positions": {"0": "x"}},
        {"positions": {"0": [1]}},
        {"at": "earliest", "time_ms": 0},
    ],
)
def test_places_that_can_not_be_are_refused(shared: Asked, to: Any) -> None:
    """Seek to what is no place."""
    if not shared.log.subscriptions("shared"):
        shared.log.create_subscription("shared", "s")
    for path, more in (("preview", {}), ("seek", {"epoch": 0})):
        answer = shared.post(f"subscriptions/{path}", {"topic": "shared", "name": "s", "to": to} | more)
        assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")


def test_a_place_of_another_partition_is_told(asked: Asked) -> None:
    """Name a position that is another partition's: the preview says where the subscription would be instead."""
    ids = consumed(asked.log)
    found = asked.post("subscriptions/preview", {"topic": "t", "name": "s", "to": {"positions": {"1": ids[0]}}}).json
    assert len(found["warnings"]) == 1
    assert "Partition 1" in found["warnings"][0]
