"""How much a batch of a stream takes: limits are soft, count what a reader of the level sees, and cut nothing apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each
from tests.log.streaming import Follower, as_text, numbered, reread, stream_of, transfer
from txn_source import Log
from txn_source.client.reading.own_log import DESCRIPTION
from txn_source.reading.limits import StreamLimits


@pytest.fixture
def stream_log(log: Log) -> Log:
    """A log with an empty topic ``t`` of two partitions."""
    log.create_topic("t", partitions=2)
    return log


def limited(log: Log, clock: Any = lambda: 0.0, level: str = COMMITTED, cut: bool = True, **limits: Any) -> Follower:
    return Follower(log, stream_of(log, level=level, clock=clock, limits=StreamLimits(**limits), consistent_cut=cut))


def test_batch_ends_at_the_entry_that_fills_it(log: Log) -> None:
    """Limit batches to two messages, of entries of one and of three: entries are never divided."""
    log.create_topic("t")
    with log.producer("t", batching=BY_HAND) as producer:
        for size in (1, 1, 1, 3, 1):
            for _ in range(size):
                producer.send("x")
            producer.flush()
    assert [len(rows) for rows in limited(log, max_messages=2).drain()] == [2, 4, 1]


def test_entry_larger_than_the_limits_gets_through(log: Log) -> None:
    """Limit batches to one message, and to one byte: an entry of five messages, or any entry, is a batch."""
    log.create_topic("t")
    with log.producer("t", batching=BY_HAND) as producer:
        for _ in range(2):
            for _ in range(5):
                producer.send("x" * 100)
            producer.flush()
    assert [len(rows) for rows in limited(log, max_messages=1).drain()] == [5, 5]
    assert [len(rows) for rows in limited(log, max_bytes=1).drain()] == [5, 5]


def test_full_batch_leaves_no_batch_without_messages(log: Log) -> None:
    """Limit batches to what a transaction has: the marker and the aborted entries behind it come along."""
    log.create_topic("t")
    producer = log.producer("t")
    with log.begin_transaction() as transaction:
        send_each(producer, numbered(2), txn=transaction)
    aborted = log.begin_transaction()
    send_each(producer, numbered(2), txn=aborted)
    aborted.abort()
    assert [len(rows) for rows in limited(log, max_messages=2).drain()] == [2]


def test_batch_is_limited_by_stored_bytes(log: Log) -> None:
    """Limit batches to the bytes of two entries and a bit, then to those of all: both limits together, the smaller."""
    log.create_topic("t")
    with log.producer("t") as producer:
        send_each(producer, [b"x" * 1000] * 6)
    [stored] = {ledger.bytes // 6 for ledger in log.stats("t").ledgers}
    assert [len(rows) for rows in limited(log, max_bytes=2 * stored + 200).drain()] == [3, 3]
    assert [len(rows) for rows in limited(log, max_bytes=100 * stored).drain()] == [6]
    assert [len(rows) for rows in limited(log, max_bytes=100 * stored, max_messages=4).drain()] == [4, 2]


def test_limits_are_put_aside_for_a_trigger_that_takes_all(log: Log) -> None:
    """Ask as ``Trigger.Once`` does: one batch takes everything."""
    log.create_topic("t")
    with log.producer("t") as producer:
        send_each(producer, numbered(5))
    query = limited(log, max_messages=1)
    end = query.stream.latest(query.at, limited=False)
    assert end.positions == query.stream.newest().positions


def test_messages_are_counted_as_a_reader_of_the_level_sees_them(log: Log) -> None:
    """Put two aborted entries and a marker before each plain one: they use up a limit of read_uncommitted only."""
    log.create_topic("t")
    producer = log.producer("t")
    for number in range(4):
        transaction = log.begin_transaction()
        send_each(producer, ["aborted", "aborted"], txn=transaction)
        transaction.abort()
        send_each(producer, [f"plain {number}"])
    assert [len(rows) for rows in limited(log, max_messages=2).drain()] == [2, 2]
    assert [len(rows) for rows in limited(log, level=UNCOMMITTED, max_messages=2).drain()] == [2] * 6


def test_small_limit_starves_no_partition(log: Log) -> None:
    """Limit batches to one message over five partitions: after five batches each has been read once."""
    log.create_topic("t", partitions=5)
    with log.producer("t") as producer:
        for partition in range(5):
            send_each(producer, numbered(10), partition=partition)
    query = limited(log, max_messages=1)
    assert sorted(row["__partition"] for _ in range(5) for row in query.next() or ()) == [0, 1, 2, 3, 4]
    assert len(query.all_values()) == 45


def test_batch_waits_for_enough_messages_or_until_the_delay_is_over(log: Log) -> None:
    """Ask for at least three, or what is there ten seconds after the last batch; the time is the test's."""
    log.create_topic("t")
    now = [100.0]
    query = limited(log, lambda: now[0], min_messages=3, max_delay_s=10)
    producer = log.producer("t")
    send_each(producer, numbered(2))
    assert query.next() is None
    send_each(producer, ["third"])
    assert len(query.next() or ()) == 3
    send_each(producer, ["fourth"])
    now[0] += 9.5
    assert query.next() is None
    now[0] += 0.5
    assert query.values() == [b"fourth"]
    now[0] += 100
    assert query.next() is None, "a delay that is over makes no batch of nothing"
    send_each(producer, ["fifth"])
    assert query.values() == [b"fifth"]


def test_messages_that_nobody_sees_are_not_waited_for(log: Log) -> None:
    """Ask for two messages; aborted ones don't count for read_committed."""
    log.create_topic("t")
    producer = log.producer("t")
    query = limited(log, min_messages=2)
    transaction = log.begin_transaction()
    send_each(producer, numbered(5), txn=transaction)
    transaction.abort()
    send_each(producer, ["one"])
    assert query.next() is None
    send_each(producer, ["two"])
    assert query.values() == [b"one", b"two"]


@pytest.mark.parametrize("limits", [{"max_messages": 10}, {"max_bytes": 1}])
def test_backlog_that_a_limit_cuts_is_not_waited_with(stream_log: Log, limits: dict[str, int]) -> None:
    """Ask for at least ten and limit batches to fewer than that: what is there counts, not what one batch takes."""
    with stream_log.producer("t") as producer:
        send_each(producer, numbered(30), partition=0)
        send_each(producer, ["x"], partition=1)
    query = limited(stream_log, min_messages=10, **limits)
    assert query.next()


def test_limit_cuts_no_transaction_on_one_partition(log: Log) -> None:
    """Limit batches to one message over a single partition: a committed transaction's three entries come at once."""
    log.create_topic("t")
    producer = log.producer("t")
    with log.begin_transaction() as transaction:
        send_each(producer, ["leg", "leg"], txn=transaction)
        send_each(producer, ["between"])
        send_each(producer, ["leg"], txn=transaction)
    send_each(producer, ["behind"])
    batches = [[row["value"] for row in rows] for rows in limited(log, max_messages=1).drain() if rows]
    assert batches == [[b"leg", b"leg", b"between", b"leg"], [b"behind"]]


@pytest.mark.parametrize("limits", [{"max_messages": 1}, {"max_messages": 5}, {"max_bytes": 700}])
def test_ends_follow_from_the_start_and_the_limits_alone(log: Log, limits: dict[str, int]) -> None:
    """Go on from copies of one checkpoint with streams that have planned before and ones that haven't: the same ends,
    also when more was appended to partitions that were read before."""
    log.create_topic("t", partitions=3)
    producer = log.producer("t")
    for number in range(6):
        transfer(log, producer, f"{number}", (number % 3, (number + 1) % 3))
        send_each(producer, [f"plain {number}"], partition=number % 3)
    old = limited(log, **limits)
    for _ in range(4):
        copied = reread(old.at)
        fresh = stream_of(log, limits=StreamLimits(**limits))
        assert fresh.latest(copied) == stream_of(log, limits=StreamLimits(**limits)).latest(copied)
        ends = as_text(fresh.latest(copied))
        for partition in range(3):
            send_each(producer, ["later"], partition=partition)
        assert old.next() is not None
        later, before = reread(old.at), DESCRIPTION.offsets.from_json(json.loads(ends))
        assert (later.positions, later.turn, later.level) == (before.positions, before.turn, before.level)
