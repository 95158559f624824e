from __future__ import annotations

import random
from typing import Any

import pytest

import txn_source
from tests.selection import mostly_long
from txn_source.cli.tail import tail
from txn_source.client.places import parse_side
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.reading.follow import Follower
from txn_source.reading.request import ReadRequest


def tail_of(log: txn_source.Log, level: IsolationLevel, start: str = EARLIEST) -> Follower[Any]:
    return tail(log, "orders", ReadRequest(level, parse_side(start, EARLIEST)), ["value"])


def values(following: Follower[Any]) -> list[bytes]:
    return [value for batch in following.read() for value in batch.column("value").to_pylist()]


@pytest.mark.parametrize("level", IsolationLevel)
@pytest.mark.parametrize("seed", mostly_long(range(3), 1))
def test_reads_add_up_to_one_scan(level: IsolationLevel, seed: int, log: txn_source.Log) -> None:
    """Nothing twice and nothing left out, in the order of each partition: write at random, reading in between."""
    choose = random.Random(seed)
    log.create_topic("orders", partitions=3, ledger_max_entries=4)
    followed: list[bytes] = []
    ongoing: list[txn_source.Transaction] = []
    following = tail_of(log, level)
    with log.producer("orders") as producer:
        for number in range(60):
            match choose.randrange(6):
                case 0:
                    ongoing.append(log.begin_transaction(600))
                case 1 if ongoing:
                    txn = ongoing.pop(choose.randrange(len(ongoing)))
                    txn.commit() if choose.random() < 0.5 else txn.abort()
                case 2:
                    followed += values(following)
                case 3:
                    log.roll_ledger("orders")
                case _:
                    partition, txn_or_none = choose.randrange(3), choose.choice([None, *ongoing])
                    producer.send(f"{partition}:{number}", partition=partition, txn=txn_or_none)
                    producer.flush()
        for txn in ongoing:
            txn.commit()
    followed += values(following)
    scanned = [v for batch in log.scan("orders", level, ["value"]) for v in batch.column(0).to_pylist()]
    assert scanned
    for partition in (b"0:", b"1:", b"2:"):
        assert [v for v in followed if v.startswith(partition)] == [v for v in scanned if v.startswith(partition)]
    assert values(following) == []


def test_start_at_latest_skips_what_is_there(log: txn_source.Log) -> None:
    """Only what becomes readable from now on: an open transaction's messages do, when it is committed."""
    log.create_topic("orders", partitions=2)
    following = tail_of(log, IsolationLevel.READ_COMMITTED, LATEST)
    with log.producer("orders") as producer, log.begin_transaction() as txn:
        producer.send("old", partition=0)
        producer.send("open", partition=1, txn=txn)
        producer.flush()
        assert values(following) == []
        producer.send("new", partition=0)
        producer.flush()
        assert values(following) == [b"new"]
    assert values(following) == [b"open"]


def test_start_at_a_position_waits_there(log: txn_source.Log) -> None:
    """A position above the bound is where it goes on later: start at the second of two undecided entries."""
    log.create_topic("orders")
    with log.producer("orders") as producer, log.begin_transaction() as txn:
        for value in ("first", "second"):
            producer.send(value, txn=txn)
            producer.flush()
        start = log.stats("orders").partitions[0].log_start.plus(1)
        following = tail_of(log, IsolationLevel.READ_COMMITTED, str(start))
        assert values(following) == []
    assert values(following) == [b"second"]


def test_topic_deleted_while_followed_is_an_error(log: txn_source.Log) -> None:
    """A follower must not wait for ever for what can't come: delete the topic between two reads."""
    log.create_topic("orders")
    following = tail_of(log, IsolationLevel.READ_COMMITTED)
    assert values(following) == []
    log.delete_topic("orders")
    with pytest.raises(txn_source.TopicNotFoundError):
        values(following)
