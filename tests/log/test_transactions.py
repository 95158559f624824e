"""Transactions: all of it or none, at once, over topics and partitions; and an end that stays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, eventually, send_each, values
from tests.log.sites import Site
from tests.selection import for_each
from txn_source import (
    InvalidArgumentError,
    Log,
    TransactionEndedError,
    TransactionNotFoundError,
    TxnId,
)

pytestmark = [pytest.mark.kinds("embedded", "remote"), pytest.mark.also("objects", "copies")]


def test_reader_never_sees_half_of_a_transaction(site: Site) -> None:
    """Move money between two partitions while readers add it up: every sum they see is zero."""
    writer_log = site.connect()
    writer_log.create_topic("money", partitions=2)
    done = threading.Event()
    sums: list[list[int]] = []

    def read() -> None:
        with site.open() as log:
            while not done.is_set():
                sums.append([int(value) for value in values(log, "money")])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        producer = writer_log.producer("money", batching=BY_HAND)
        for amount in range(1, 61):
            with writer_log.begin_transaction() as transaction:
                producer.send(b"%d" % amount, partition=0, txn=transaction)
                producer.send(b"%d" % -amount, partition=1, txn=transaction)
                if amount % 2:  # the others are written and committed by one call
                    producer.flush()
        eventually(lambda: len(sums) > 1)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert len(values(writer_log, "money")) == 120
    assert [seen for seen in sums if sum(seen)] == []


def test_block_aborts_when_it_raises(log: Log) -> None:
    """Raise inside the block, with one message written and one still held; the error comes out as it is."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    transaction = log.begin_transaction()
    send_each(producer, [b"written"], txn=transaction)
    producer.send(b"held", txn=transaction)
    with pytest.raises(InvalidArgumentError, match="noon"), transaction:
        producer.send(b"bad", txn=transaction, event_time="noon")
    assert log.transaction(transaction.id).state.value == "aborted"
    assert values(log, "orders") == []
    assert producer.flush() == []
    assert values(log, "orders", UNCOMMITTED) == [b"written"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_block_may_be_ended_inside(log: Log, end: str) -> None:
    """End the transaction in its block; leaving the block changes nothing."""
    log.create_topic("orders")
    producer = log.producer("orders")
    with log.begin_transaction() as transaction:
        producer.send(b"x", txn=transaction)
        getattr(transaction, end)()
    assert values(log, "orders") == ([b"x"] if end == "commit" else [])


def test_abort_forgets_what_was_not_written(log: Log) -> None:
    """Abort with messages still held, of this transaction, of another and plain: only its own are dropped."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    dropped, kept = log.begin_transaction(), log.begin_transaction()
    for value, txn in ((b"dropped", dropped), (b"kept", kept), (b"plain", None)):
        producer.send(value, txn=txn)
    dropped.abort()
    kept.commit()
    assert sorted(values(log, "orders", UNCOMMITTED)) == [b"kept", b"plain"]


def test_opposite_end_says_what_happened(log: Log) -> None:
    """Abort what is committed, and commit what is aborted: by its owner, and by an operator."""
    committed, aborted, forced = (log.begin_transaction() for _ in range(3))
    assert [txn.id.least_sig_bits for txn in (committed, aborted, forced)] == [0, 1, 2]
    committed.commit()
    aborted.abort()
    log.abort_transaction(forced.id)
    with pytest.raises(
        TransactionEndedError, match=r"^\[TXNLOG_TXN_ENDED\] .*\(0,0\) is committed and can't be aborted"
    ):
        committed.abort()
    with pytest.raises(TransactionEndedError, match=r"is committed and can't be aborted"):
        log.abort_transaction(str(committed.id))
    with pytest.raises(TransactionEndedError, match=r"was aborted and can't be committed"):
        aborted.commit()
    with pytest.raises(TransactionEndedError, match=r"was aborted by an operator and can't be committed"):
        forced.commit()
    assert [t.state.value for t in log.transactions(state=None)] == ["aborted", "aborted", "committed"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_append_after_the_end_is_refused_at_once_by_its_handle(log: Log, end: str) -> None:
    """Send under the handle of an ended transaction."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    transaction = log.begin_transaction()
    getattr(transaction, end)()
    with pytest.raises(TransactionEndedError, match=f"is {end.rstrip('t')}"):
        producer.send(b"x", txn=transaction)
    assert producer.flush() == []


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_append_after_the_end_is_refused_by_the_service(site: Site, end: str) -> None:
    """Send under the id of a transaction that somebody else has ended, as a value and as text."""
    log = site.connect()
    log.create_topic("orders")
    transaction = log.begin_transaction()
    send_each(log.producer("orders"), [b"in time"], txn=transaction)
    producer = site.connect().producer("orders", batching=BY_HAND)
    producer.send(b"held", txn=transaction.id)
    getattr(transaction, end)()
    for txn in (transaction.id, str(transaction.id)):
        producer.send(b"late", txn=txn)
        producer.send(b"plain")
        with pytest.raises(TransactionEndedError, match="can't take more messages"):
            producer.flush()
    assert sorted(values(log, "orders", UNCOMMITTED)) == [b"in time", b"plain", b"plain"]
    send_each(producer, [b"later"])  # no marker and no trace of the refused ones: it is at the next position
    [ledger] = log.stats("orders").ledgers
    assert ledger.entries == 5


def test_forced_abort_refuses_the_owners_next_call(site: Site) -> None:
    """Abort by force from another connection, by id and by text, while the owner holds messages."""
    log, operator = site.connect(), site.connect()
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    for spell in (TxnId, str):
        transaction = log.begin_transaction()
        send_each(producer, [b"x"], txn=transaction)
        found = operator.transactions()[0].id
        assert found == transaction.id
        operator.abort_transaction(found if spell is TxnId else str(found))
        assert operator.transaction(found).end_reason == "forced"
        producer.send(b"more", txn=transaction)
        with pytest.raises(TransactionEndedError, match="by an operator"):
            transaction.commit()
        transaction.abort()
        assert log.transactions() == []
    assert values(log, "orders") == []
    assert producer.flush() == []


@pytest.mark.parametrize("unknown", ["(0,5)", "(1,0)", "(18446744073709551615,18446744073709551615)"])
def test_unknown_transaction_is_not_found(log: Log, unknown: str) -> None:
    """Name a transaction that never was in each call that takes one; nothing is stored."""
    log.create_topic("orders")
    assert log.begin_transaction().id is not None
    producer = log.producer("orders", batching=BY_HAND)
    producer.send(b"x", txn=unknown)
    for call in (producer.flush, lambda: log.transaction(unknown), lambda: log.abort_transaction(unknown)):
        with pytest.raises(TransactionNotFoundError, match=r"^\[TXNLOG_TXN_NOT_FOUND\] "):
            call()
    assert values(log, "orders", UNCOMMITTED) == []


@for_each("timeout", [0, -1, float("nan"), float("inf"), 901, 1e12, "60", None])
def test_bad_timeout_is_refused(log: Log, timeout: Any) -> None:
    """Begin with a timeout that can't be, or above the service's maximum; no transaction is there."""
    with pytest.raises(InvalidArgumentError, match="timeout"):
        log.begin_transaction(timeout=timeout)
    assert log.transactions(state=None) == []


def test_transaction_of_several_producers_ends_for_all(site: Site) -> None:
    """Write from two connections, the second knowing the id only, and commit at the first."""
    log, other = site.connect(), site.connect()
    log.create_topic("orders")
    transaction = log.begin_transaction()
    send_each(log.producer("orders", name="one"), [b"a"], txn=transaction)
    send_each(other.producer("orders", name="two"), [b"b"], txn=transaction.id)
    assert log.transaction(transaction.id).producers == ("one", "two")
    assert values(other, "orders") == []
    transaction.commit()
    assert values(other, "orders") == [b"a", b"b"]


@pytest.mark.parametrize("spell", [TxnId.parse, str], ids=["id", "text"])
def test_commit_waits_for_messages_that_were_sent_by_its_id(log: Log, spell: Callable[[TxnId], TxnId | str]) -> None:
    """Send under a transaction's id, not its handle, and commit at once, before anything was flushed."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    with log.begin_transaction() as txn:
        producer.send(b"debit", txn=txn)
        producer.send(b"credit", txn=spell(txn.id))
    assert sorted(values(log, "orders")) == [b"credit", b"debit"]
    producer.send(b"late", txn=spell(txn.id))
    with pytest.raises(TransactionEndedError):
        producer.flush()


def test_transaction_spans_one_log(log: Log, tmp_path: Path) -> None:
    """Send with a producer of another log under a transaction, and acknowledge what another log's consumer got."""
    with Site("embedded", tmp_path / "other") as site:
        other = site.connect()
        for each in (log, other):
            each.create_topic("t")
        producer, foreign = log.producer("t", batching=BY_HAND), other.producer("t", batching=BY_HAND)
        foreign.send(b"foreign")
        foreign.flush()
        consumer = other.subscribe("t", "s", initial_position="earliest")
        message = consumer.receive(60)
        assert message is not None
        with log.begin_transaction() as txn:
            producer.send(b"x", txn=txn)
            with pytest.raises(InvalidArgumentError, match="The producer is of another log"):
                foreign.send(b"x", txn=txn)
            with pytest.raises(InvalidArgumentError, match="The message is of another log"):
                txn.acknowledge(message)
        assert values(log, "t") == [b"x"]
        assert values(other, "t", UNCOMMITTED) == [b"foreign"]
