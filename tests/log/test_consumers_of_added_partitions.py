"""Consumers and readers that run while partitions are added take these from their start, in the epoch that they are in.

Values are sent to a partition by its index, each an entry of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.log.consuming import WAIT_S, holder_of, mark, read, receive, subscribe, take
from tests.log.holding import holding
from tests.log.meddling import meddling
from tests.log.reading import BY_HAND, eventually, send_each
from tests.log.sites import Site
from txn_source import DataLossError, Log


def more_partitions(log: Log, values: list[bytes], partitions: int = 3) -> None:
    """Add partitions, and write values to the last one."""
    log.update_topic("t", partitions)
    send_each(log.producer("t", batching=BY_HAND), values, partition=partitions - 1)


@pytest.fixture
def old(log: Log) -> list[bytes]:
    """A topic ``t`` of one partition with these messages."""
    log.create_topic("t")
    values = [b"0", b"1", b"2"]
    send_each(log.producer("t", batching=BY_HAND), values)
    return values


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_consumer_takes_new_partitions_while_it_runs(log: Log, old: list[bytes], kind: str) -> None:
    """Hold messages unacknowledged while partitions are added: all that follows comes once, and they count."""
    with subscribe(log, type=kind) as consumer:
        held = [receive(consumer) for _ in old]
        epoch = consumer.epoch
        more_partitions(log, [b"a", b"b"])
        added = [receive(consumer) for _ in range(2)]
        assert [(m.value, m.partition, m.redelivery_count) for m in added] == [(b"a", 2, 0), (b"b", 2, 0)]
        for message in (*held, *added):
            consumer.acknowledge(message)
        consumer.flush()
        more_partitions(log, [b"c"], 4)
        assert take(consumer, 1, acknowledge=True) == [b"c"]
        assert (consumer.epoch, log.subscription("t", "s").epoch) == (epoch, epoch)
        assert [p.backlog for p in log.subscription("t", "s").partitions] == [0, 0, 0, 0]
        assert log.subscription("t", "s").ignored_acknowledgements == 0
        assert consumer.receive(0.0) is None


def test_waiting_consumer_takes_over_with_the_new_partitions(log: Log, old: list[bytes]) -> None:
    """Add partitions while a second consumer waits; when the first has gone it gets what isn't acknowledged."""
    first = subscribe(log, type="failover")
    with subscribe(log, type="failover") as second:
        more_partitions(log, [b"a", b"b"])
        found = [receive(first) for _ in range(5)]
        for message in found:
            if message.value in (b"0", b"a"):
                first.acknowledge(message)
        first.close()
        assert sorted(take(second, 3)) == [b"1", b"2", b"b"]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_reader_takes_new_partitions_from_their_start(log: Log, old: list[bytes], start: str) -> None:
    """Read from either end, then add partitions: the reader knows that something is there, and reads it."""
    with log.reader("t", start) as reader:
        assert read(reader, 3 if start == "earliest" else 0) == (old if start == "earliest" else [])
        more_partitions(log, [b"a", b"b"])
        eventually(reader.has_message_available)
        assert read(reader, 1) == [b"a"]
        assert reader.has_message_available()
        assert read(reader, 1) == [b"b"]
        assert not reader.has_message_available()


def test_reader_is_told_what_was_trimmed_of_a_partition_that_was_added_while_it_was_away(
    log: Log, old: list[bytes]
) -> None:
    """Add partitions while a reader has no connection, and trim a message of one: that is told as lost, once."""
    with log.reader("t", "latest") as reader:
        assert reader.read_next(0.0) is None
        consumer = reader._consumer
        with consumer._lock:
            link = consumer._link.give_up()
            assert link is not None
            link.close()
            more_partitions(log, [b"a"])
            log.roll_ledger("t", 2)
            log.trim("t", keep_bytes=0)
            send_each(log.producer("t", batching=BY_HAND), [b"b"], partition=2)
        with pytest.raises(DataLossError):
            reader.read_next(WAIT_S)
        assert read(reader, 1) == [b"b"]
        assert reader.read_next(0.0) is None


def test_seek_answers_with_partitions_that_the_consumer_was_not_told_of(site: Site, log: Log, old: list[bytes]) -> None:
    """Keep the news from the consumer, as if its seek were faster: it is told of all partitions, and gets all."""
    held, way = holding(site)
    with subscribe(held) as consumer:
        take(consumer, 3)
        way.hold("partitions_added")
        more_partitions(log, [b"a"])
        assert sorted(consumer.seek("earliest")) == [0, 1, 2]
        assert sorted(take(consumer, 4, acknowledge=True)) == [b"0", b"1", b"2", b"a"]
        assert mark(log, 2).entry_id == 1


def test_operators_seek_answers_with_partitions_that_came_meanwhile(site: Site) -> None:
    """Add a partition between the look at the subscription and the seek: the answer has it, too."""
    log, way = meddling(site)
    log.create_topic("t")
    log.create_subscription("t", "s")
    way.before["SeekSubscription"] = lambda: log.update_topic("t", 2)
    assert sorted(log.seek("t", "s", "earliest")) == [0, 1]


class AddingFirst:
    """The work of a service that adds a partition with a message before its next write."""

    def __init__(self, work: Any, add: Callable[[], None]) -> None:
        self._work = work
        self._add = [add]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def write(self, action: Callable[[Any], Any]) -> Any:
        while self._add:
            self._add.pop()()
        return self._work.write(action)


def test_partition_that_came_during_a_look_is_told_before_its_messages(
    site: Site, log: Log, old: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Add a partition between the look that finds a message and the write that hands it out: both are delivered."""
    other = site.connect()
    with subscribe(log, type="shared") as consumer:
        take(consumer, 3, acknowledge=True)
        dispatch = holder_of(site, log, consumer).hub._dispatch
        adding = AddingFirst(dispatch._work, lambda: more_partitions(other, [b"a"]))
        monkeypatch.setattr(dispatch, "_work", adding)
        send_each(log.producer("t", batching=BY_HAND), [b"3"], partition=0)
        assert sorted(take(consumer, 2, acknowledge=True)) == [b"3", b"a"]
        assert adding._add == []
