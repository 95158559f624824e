"""What a query reads is pinned when it is planned: growth, ends of transactions and retries change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

import txn_source
from tests.spark.plain import Frame

LEVELS = ("read_committed", "read_uncommitted")


@pytest.fixture
def moving(log: txn_source.Log) -> Callable[[], None]:
    """A topic ``orders`` with messages of every kind, and a function that does all to it that may be done to a log.

    On each of two partitions lie, an entry each: ``plain``, ``committed``, ``aborted``, ``later committed`` and
    ``later aborted``, which are open until the function ends them as their names say, and ``behind``.
    """
    log.create_topic("orders", partitions=2, ledger_max_entries=4)
    producer = log.producer("orders")
    ended = {name: log.begin_transaction() for name in ("committed", "aborted")}
    later = {name: log.begin_transaction() for name in ("later committed", "later aborted")}
    for partition in range(2):
        producer.send("plain", partition=partition)
        for name, transaction in (ended | later).items():
            producer.send(name, txn=transaction, partition=partition)
        producer.flush()
        producer.send("behind", partition=partition)
        producer.flush()
    ended["committed"].commit()
    ended["aborted"].abort()

    def move() -> None:
        later["later committed"].commit()
        later["later aborted"].abort()
        for number in range(10):
            producer.send(f"new {number}", partition=number % 2)
            producer.flush()
        log.roll_ledger("orders")
        producer.close()

    return move


def rows(frame: DataFrame | Frame) -> list[tuple[Any, ...]]:
    """Return a frame's rows in an order of their own."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parametrize("level", LEVELS)
def test_frame_reads_the_same_rows_however_the_log_moves_on(moving, read, level) -> None:
    """Plan and read a frame, end transactions, append and roll, and read it again; a new load sees it all."""
    options = {"topic": "orders", "isolationLevel": level, "metadataColumns": "all"}
    frame = read(**options)
    before, count = rows(frame), frame.count()
    assert before
    moving()
    assert frame.count() == count == len(before)
    assert rows(frame) == before
    statuses = {row["__txn_status"] for row in frame.collect()}
    assert statuses == {None, "committed"} | (set() if level == "read_committed" else {"aborted", "open"})
    after = read(**options)
    # Each partition gained five messages, and read_committed all but the aborted of the six that were there.
    assert after.count() == 2 * (5 + (4 if level == "read_committed" else 6))
    assert {row["__txn_status"] for row in after.collect()} == (
        {None, "committed"} if level == "read_committed" else {None, "committed", "aborted"}
    )


def test_plan_without_partitions_reads_nothing(log, read) -> None:
    """Read what Spark hands to a task where a plan has no partitions at all."""
    log.create_topic("empty")
    frame = read(topic="empty")
    assert frame.tasks() == []
    assert frame.count() == 0
