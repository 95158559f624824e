"""Whole transactions over several partitions and topics: read_committed never shows one half of a transfer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.history import PARTITIONS, STEPS, History, Place
from tests.log.reading import COMMITTED, UNCOMMITTED, by_partition, send_each, values
from tests.selection import examples
from txn_source import Log, Position, Producer, Transaction, connect
from txn_source.client.reading.source import resolve
from txn_source.model import cut
from txn_source.model.topic import PartitionView


def transfer(producer: Producer, log: Log, name: str, partitions: tuple[int, ...] = (0, 1)) -> None:
    """Commit a transaction with a leg on each partition."""
    with log.begin_transaction() as transaction:
        for partition in partitions:
            producer.send(name, partition=partition, txn=transaction)


def hang(producer: Producer, log: Log, partition: int) -> Transaction:
    """Leave a transaction open on a partition."""
    transaction = log.begin_transaction()
    send_each(producer, [b"open"], partition=partition, txn=transaction)
    return transaction


def test_half_behind_an_open_transaction_hides_the_other_half(log: Log) -> None:
    """Hold one partition back: the transfer behind it, and what follows its other leg, wait until it has ended."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders")
    transfer(producer, log, "first")
    hanging = hang(producer, log, 0)
    send_each(producer, [b"before"], partition=1)
    transfer(producer, log, "second")
    send_each(producer, [b"after"], partition=1)
    assert by_partition(log, "orders") == {0: [b"first"], 1: [b"first", b"before"]}
    assert values(log, "orders", consistent_cut=False) == [b"first", b"first", b"before", b"second", b"after"]
    assert len(values(log, "orders", UNCOMMITTED)) == 7
    hanging.abort()
    assert by_partition(log, "orders") == {0: [b"first", b"second"], 1: [b"first", b"before", b"second", b"after"]}


def test_chain_of_transfers_is_held_back_together(log: Log) -> None:
    """Hold back the first of three partitions that transfers link: the cut reaches the last of them."""
    log.create_topic("orders", partitions=3)
    producer = log.producer("orders")
    hanging = hang(producer, log, 0)
    transfer(producer, log, "one", (0, 1))
    transfer(producer, log, "two", (1, 2))
    send_each(producer, [b"behind"], partition=2)
    assert values(log, "orders") == []
    hanging.commit()
    assert len(values(log, "orders")) == 6


def test_cut_holds_over_topics(log: Log) -> None:
    """Put the legs on two topics, one of them held back; either topic alone is read to its own bound."""
    for topic in ("debits", "credits"):
        log.create_topic(topic)
    debits, credits = log.producer("debits"), log.producer("credits")
    hanging = hang(debits, log, 0)
    with log.begin_transaction() as transaction:
        debits.send("debit", txn=transaction)
        credits.send("credit", txn=transaction)
    assert values(log, ["debits", "credits"]) == []
    assert values(log, "credits") == [b"credit"]
    hanging.abort()
    assert values(log, ["debits", "credits"]) == [b"debit", b"credit"]


def test_ends_that_were_asked_for_are_lowered_too(log: Log) -> None:
    """End a read between the legs of a transfer: on the other partition it ends before the other leg."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders")
    send_each(producer, [b"plain"], partition=1)
    transfer(producer, log, "legs")
    start = log.stats("orders").partitions[0].log_start
    end = {"orders": {0: str(start)}}
    assert values(log, "orders", end=end) == [b"plain"]
    assert values(log, "orders", end=end, consistent_cut=False) == [b"plain", b"legs"]


def test_read_never_ends_before_it_starts(log: Log) -> None:
    """Start behind one leg of a transfer whose other leg is held back: nothing is read, and nothing is wrong."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders")
    hang(producer, log, 0)
    transfer(producer, log, "legs")
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
    transfer(producer, log, "alone", (1,))
    assert values(log, "orders") == [b"alone"]


def test_transaction_whose_entries_were_trimmed_on_one_partition_holds_nothing_there(log: Log) -> None:
    """Trim one leg of a transfer and hold the other back: what follows the trimmed leg stays visible."""
    log.create_topic("orders", partitions=2, ledger_max_entries=2)
    producer = log.producer("orders")
    send_each(producer, [b"x"], partition=1)
    hang(producer, log, 0)
    transfer(producer, log, "legs")  # its marker lies in the next ledger
    send_each(producer, [b"a", b"b"], partition=1)
    second = log.stats("orders").partitions[1].ledgers[1].ledger_id
    log.trim("orders", before={"orders": {1: f"{second}:0"}})
    assert values(log, "orders") == [b"a", b"b"]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["transfer", "hang", "end", "plain", "abort"]),
        st.sets(st.integers(0, 2), min_size=1, max_size=3),
    ),
    max_size=12,
)


@given(_STEPS)
@settings(max_examples=examples(6), deadline=None)
@pytest.mark.filterwarnings("ignore")
def test_every_transfer_is_whole_at_any_moment(tmp_path_factory: Any, steps: list[tuple[str, set[int]]]) -> None:
    """Do anything with transfers over three partitions; after each step each one is there with all legs or none."""
    with connect(tmp_path_factory.mktemp("cut") / "log") as log:
        log.create_topic("t", partitions=3, ledger_max_entries=3)
        producer = log.producer("t")
        hanging: list[Transaction] = []
        legs: dict[bytes, int] = {}
        for number, (step, where) in enumerate(steps):
            name = f"{number}".encode()
            if step == "transfer":
                transfer(producer, log, name.decode(), tuple(where))
                legs[name] = len(where)
            elif step == "hang":
                hanging.append(hang(producer, log, min(where)))
            elif step == "end" and hanging:
                hanging.pop(0).abort()
            elif step == "plain":
                send_each(producer, [b"plain"], partition=min(where))
            elif step == "abort":
                transaction = log.begin_transaction()
                for partition in where:
                    send_each(producer, [b"aborted"], partition=partition, txn=transaction)
                transaction.abort()
            seen = values(log, "t", COMMITTED)
            assert b"aborted" not in seen
            assert {name: seen.count(name) for name in set(seen) - {b"plain"}} == {
                name: legs[name] for name in set(seen) - {b"plain"}
            }
        for transaction in hanging:
            transaction.abort()
        assert sum(legs.values()) == len([value for value in values(log, "t") if value != b"plain"])


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
        views = [p.view for p in resolve(log.metadata, ["t"]).partitions]
        spans = [
            [(v, min(places), max(places)) for v in views if (places := kept(transaction, v))]
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
