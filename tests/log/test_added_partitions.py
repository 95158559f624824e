"""Partitions that are added to a topic: readers take them from their start, and producers write to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.consuming import mark, message_id, subscribe
from tests.log.reading import BY_HAND, by_partition, send_each, values
from txn_source import InvalidArgumentError, Log, TopicNotFoundError
from txn_source.metadata.store.topic_changes import MAX_PARTITIONS


def test_partitions_are_added_behind_those_that_are_there(log: Log) -> None:
    """Go from two to five: the new ones are numbered on and empty, and the old ones keep what they have."""
    log.create_topic("t", partitions=2)
    send_each(log.producer("t"), [b"old"], partition=1)
    before = log.stats("t").partitions
    assert log.update_topic("t", 5) == 3
    after = log.stats("t").partitions
    assert after[:2] == before
    assert [(p.partition, p.messages) for p in after] == [(0, 0), (1, 1), (2, 0), (3, 0), (4, 0)]
    assert by_partition(log, "t") == {1: [b"old"]}


def test_as_many_partitions_change_nothing(log: Log) -> None:
    """Ask for as many as there are, twice."""
    log.create_topic("t", partitions=2)
    before = log.stats("t")
    assert log.update_topic("persistent://public/default/t", 2) == 0
    assert log.update_topic("t", 2) == 0
    assert log.stats("t").partitions == before.partitions


@pytest.mark.parametrize(
    ("partitions", "error"),
    [
        (
            1,
            r"^\[TXNLOG_INVALID_ARGUMENT\] Topic 't' has 2 partitions and can't have 1: none can be taken away\. Use 2",
        ),
        (0, "0 is not a number of partitions"),
        (True, "True is not a number of partitions"),
        ("4", "'4' is not a number of partitions"),
        (MAX_PARTITIONS + 1, f"A topic can't have {MAX_PARTITIONS + 1} partitions"),
    ],
)
def test_number_that_can_not_be_is_refused(log: Log, partitions: int, error: str) -> None:
    """Ask for fewer, for none, for too many, and for what is no number: nothing changes."""
    log.create_topic("t", partitions=2)
    with pytest.raises(InvalidArgumentError, match=error):
        log.update_topic("t", partitions)
    assert len(log.stats("t").partitions) == 2
    with pytest.raises(TopicNotFoundError, match="There is no topic 'none'"):
        log.update_topic("none", 4)


@pytest.mark.parametrize("position", ["earliest", "latest"])
def test_subscription_stands_at_the_start_of_new_partitions(log: Log, position: str) -> None:
    """Make subscriptions that begin at either end, then add a partition and write: all of it is their backlog."""
    log.create_topic("t")
    log.create_topic("other", partitions=3)
    log.create_subscription("t", "s", initial_position=position)
    log.create_subscription("other", "s")
    log.update_topic("t", 2)
    send_each(log.producer("t"), [b"a", b"b"], partition=1)
    [ledger] = log.stats("t").partitions[1].ledgers
    assert mark(log, 1) == message_id(log.subscription("t", "s").partitions[1].mark)
    assert (mark(log, 1).ledger_id, mark(log, 1).entry_id) == (ledger.ledger_id, 0)
    assert [p.backlog for p in log.subscription("t", "s").partitions] == [0, 2]
    assert len(log.subscription("other", "s").partitions) == 3
    with subscribe(log) as consumer:
        assert [message.value for _ in range(2) if (message := consumer.receive(30.0))] == [b"a", b"b"]


def test_policies_tiers_and_trimming_hold_for_new_partitions(log: Log, tmp_path: Path) -> None:
    """Let a new partition's ledger be rolled by the topic's limit, offload it, delete the hot copy, read, and trim."""
    log.create_topic("t", ledger_max_entries=2, offload_uri=(tmp_path / "tiered").as_uri())
    log.update_topic("t", 3)
    send_each(log.producer("t", batching=BY_HAND), [b"a", b"b", b"c"], partition=2)
    assert [ledger.entries for ledger in log.stats("t").partitions[2].ledgers] == [2, 1]
    [segment] = (log.root / "segments").glob("*/2/*.arrow")
    assert segment.is_file()
    assert len(log.offload("t").ledger_ids) == 1
    assert log.delete_hot("t") == 1
    assert values(log, "t") == [b"a", b"b", b"c"]
    assert log.roll_ledger("t", 2) != []
    assert [(t.partition, t.ledgers) for t in log.trim("t", keep_bytes=0)] == [(0, 0), (1, 0), (2, 2)]
    assert values(log, "t") == []
