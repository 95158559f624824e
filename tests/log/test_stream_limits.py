"""How much a batch of a stream takes: limits are soft, count what a reader of the level sees, and cut nothing apart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each
from tests.log.streaming import Follower, numbered, stream_of
from txn_source import Log
from txn_source.model import cut
from txn_source.reading.limits import StreamLimits


def limited(log: Log, level: str = COMMITTED, **limits: Any) -> Follower:
    return Follower(log, stream_of(log, level=level, limits=StreamLimits(**limits)))


def test_batch_ends_at_the_entry_that_fills_it(log: Log) -> None:
    """Limit batches to two messages, of entries of one, three and five: entries are never divided."""
    log.create_topic("t")
    with log.producer("t", batching=BY_HAND) as producer:
        for size in (5, 1, 1, 1, 3, 1):
            for _ in range(size):
                producer.send("x")
            producer.flush()
    assert [len(rows) for rows in limited(log, max_messages=2).drain()] == [5, 2, 4, 1]


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


@pytest.mark.parametrize("near", [0, 256])
def test_rest_of_a_transaction_that_was_trimmed_in_part_stays_whole(
    log: Log, monkeypatch: pytest.MonkeyPatch, near: int
) -> None:
    """Trim the first of a transaction's two entries on one partition, and limit batches so that the second would come
    without the one on the other partition; it is found by what lies near the bound, and by what lies in the batch."""
    monkeypatch.setattr(cut, "_NEAR", near)
    log.create_topic("t", partitions=2, ledger_max_entries=2)
    producer = log.producer("t", batching=BY_HAND)
    with log.begin_transaction() as transaction:
        send_each(producer, ["first"], partition=0, txn=transaction)
        send_each(producer, ["plain"], partition=0)
        send_each(producer, ["rest"], partition=0, txn=transaction)
        send_each(producer, ["plain 1"], partition=1)
        send_each(producer, ["rest"], partition=1, txn=transaction)
    log.trim("t", before={"t": {0: f"{log.stats('t').partitions[0].ledgers[1].ledger_id}:0"}})
    query = Follower(log, stream_of(log, limits=StreamLimits(max_messages=2)))
    batches = [[row["value"] for row in came] for came in query.drain() if came]
    assert batches == [[b"plain 1"], [b"rest", b"rest"]]
