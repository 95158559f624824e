"""Whole transactions over several partitions and topics: read_committed never shows one half of a transfer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.history import PARTITIONS, STEPS, History, Place
from tests.log.reading import UNCOMMITTED, by_partition, send_each, values
from tests.log.streaming import transfer
from tests.selection import examples
from txn_source import Log, Position, Producer, Transaction, connect
from txn_source.client.reading.source import resolve
from txn_source.model import cut
from txn_source.model.topic import PartitionView
from txn_source.reading.request import Selection


def hang(producer: Producer, log: Log, partition: int) -> Transaction:
    """Leave a transaction open on a partition."""
    transaction = log.begin_transaction()
    send_each(producer, [b"open"], partition=partition, txn=transaction)
    return transaction


def test_half_behind_an_open_transaction_hides_the_other_half(log: Log) -> None:
    """Hold one partition back: the transfer behind it, and what follows its other leg, wait until it has ended."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders")
    transfer(log, producer, "first")
    hanging = hang(producer, log, 0)
    send_each(producer, [b"before"], partition=1)
    transfer(log, producer, "second")
    send_each(producer, [b"after"], partition=1)
    assert by_partition(log, "orders") == {0: [b"first"], 1: [b"first", b"before"]}
    assert values(log, "orders", consistent_cut=False) == [b"first", b"first", b"before", b"second", b"after"]
    assert len(values(log, "orders", UNCOMMITTED)) == 7
    hanging.abort()
    assert by_partition(log, "orders") == {0: [b"first", b"second"], 1: [b"first", b"before", b"second", b"after"]}


def test_ends_that_were_asked_for_are_lowered_too(log: Log) -> None:
    """End a read between the legs of a transfer: on the other partition it ends before the other leg."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders")
    send_each(producer, [b"plain"], partition=1)
    transfer(log, producer, "legs")
    start = log.stats("orders").partitions[0].log_start
    end = {"orders": {0: str(start)}}
    assert values(log, "orders", end=end) == [b"plain"]
    assert values(log, "orders", end=end, consistent_cut=False) == [b"plain", b"legs"]


def test_read_never_ends_before_it_starts(log: Log) -> None:
    """Start behind one leg of a transfer whose other leg is held back: nothing is read, and nothing is wrong."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders")
    hang(producer, log, 0)
    transfer(log, producer, "legs")
    end = log.stats("orders").partitions[1].log_end
    assert values(log, "orders", start={"orders": {1: str(end)}}) == []


def test_aborted_and_single_transactions_cut_nothing(log: Log) -> None:
    """Abort a transaction over both partitions behind an open one, and commit one on a single partition."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders")
    hang(producer, log, 0)
    with log.begin_transaction() as transaction:
        producer.send("gone", partition=0, txn=transaction)
        producer.send("gone", partition=1, txn=transaction)
        producer.flush()
        transaction.abort()
    transfer(log, producer, "alone", (1,))
    assert values(log, "orders") == [b"alone"]


@given(
    STEPS,
    st.lists(st.integers(0, 3), min_size=PARTITIONS, max_size=PARTITIONS),
    st.lists(st.integers(0, 40), min_size=PARTITIONS, max_size=PARTITIONS),
    st.lists(st.integers(0, 40), min_size=PARTITIONS, max_size=PARTITIONS),
    st.sampled_from([0, 256]),
)
@settings(max_examples=examples(6), deadline=None)
def test_database_finds_the_cut_that_the_definition_gives(
    tmp_path_factory: Any, steps: Any, trimmed: list[int], at: list[int], begin: list[int], near: int
) -> None:
    """Let transactions overlap, trim, and ask for cuts from any bounds: compare with the definition carried out over
    what was written. ``near`` is how far is looked before counts of transactions tell which need not be looked at."""
    with pytest.MonkeyPatch.context() as patch, connect(tmp_path_factory.mktemp("cut") / "log") as log:
        patch.setattr(cut, "_NEAR", near)
        history = History(log)
        for step in steps:
            history.do(*step)
        for partition, ledgers in enumerate(trimmed):
            history.trim(partition, ledgers)
        views = [p.view for p in resolve(log.metadata, Selection.of("t")).partitions]
        spans = [
            [(v, first(transaction, v), max(places)) for v in views if (places := kept(transaction, v))]
            for transaction in history.entries.values()
        ]
        everything = [place for places in history.entries.values() for place in places]
        known = [sorted({v.bounds.log_start, v.bounds.log_end, *kept(everything, v)}) for v in views]
        bounds = {v.partition_id: known[v.index][at[v.index] % len(known[v.index])] for v in views}
        lowered = log.metadata.find_cut(bounds)
        assert lowered == naive(bounds, spans)
        starts = naive({v.partition_id: known[v.index][begin[v.index] % len(known[v.index])] for v in views}, spans)
        above = {p: max(starts[p], bounds[p]) for p in bounds}
        assert log.metadata.find_cut(above, starts) == naive(above, spans)
        raised = log.metadata.find_cut(above, starts, upward=True)
        assert naive(raised, spans) == raised
        for other in itertools.product(*known):  # no smaller cut lies above the bounds
            smaller = {v.partition_id: other[v.index] for v in views}
            if all(above[p] <= smaller[p] for p in above) and naive(smaller, spans) == smaller:
                assert all(raised[p] <= smaller[p] for p in above)


def kept(places: list[Place], view: PartitionView) -> list[Position]:
    return [x for p, x in places if p == view.index and x >= view.bounds.log_start]


def first(places: list[Place], view: PartitionView) -> Position:
    """Return where a transaction begins; one whose beginning was trimmed begins with the log."""
    return max(min(x for p, x in places if p == view.index), view.bounds.log_start)


def naive(bounds: dict[int, Position], spans: Any) -> dict[int, Position]:
    """Do what the definition says until nothing changes."""
    bounds, changed = dict(bounds), True
    while changed:
        changed = False
        for of_txn in spans:
            if any(last >= bounds[v.partition_id] for v, _, last in of_txn):
                for v, first, _ in of_txn:
                    if first < bounds[v.partition_id]:
                        bounds[v.partition_id], changed = first, True
    return bounds
