"""Threads that share a transaction: what one of them adds, or ends, while another one ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

import pytest

from tests.log.consuming import WAIT_S, mark, meanwhile, numbered, receive, subscribe
from tests.log.reading import BY_HAND, values
from txn_source import Log, TransactionEndedError
from txn_source.client.writing import transaction as transactions
from txn_source.client.writing.pipeline import Pipeline
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.process.rim import Rim


def test_acknowledgement_during_a_commit_is_refused_or_counts(log: Log) -> None:
    """Commit between the moment when an acknowledgement is found allowed and the one when it is taken."""
    _, ids = numbered(log)
    consumer = subscribe(log)
    message = receive(consumer)
    txn = log.begin_transaction()
    inner, ended = transactions.rows_of, []

    def rows_of(of: Any) -> Any:
        if not ended:
            ended.append(of)
            with meanwhile(txn.commit):
                pass
        return inner(of)

    with patch.object(transactions, "rows_of", rows_of), pytest.raises(TransactionEndedError):
        txn.acknowledge(message)
    assert ended
    assert mark(log) == ids[0]


@pytest.mark.parametrize("begun", ["in one call", "before"])
def test_abort_waits_for_the_commit_of_another_thread(log: Log, begun: str) -> None:
    """Abort during another thread's commit: the abort waits, and raises that the transaction is committed."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    txn = log.begin_transaction()
    if begun == "before":
        assert txn.id is not None
    producer.send(b"debit", txn=txn)
    name = "write_transaction" if begun == "in one call" else "end_transaction"
    inner, told = getattr(MetadataStub, name), []
    committing = threading.Event()

    def held(*arguments: Any, **more: Any) -> Any:
        committing.set()
        assert aborting.wait(WAIT_S)
        return inner(*arguments, **more)

    def abort() -> None:
        assert committing.wait(WAIT_S)
        aborting.set()
        try:
            txn.abort()
        except TransactionEndedError as error:
            told.append(str(error))

    aborting = threading.Event()
    with patch.object(MetadataStub, name, held), meanwhile(abort):
        txn.commit()
    assert values(log, "t") == [b"debit"]
    assert ["committed" in each for each in told] == [True]


def test_abort_ends_what_is_begun_meanwhile(log: Log) -> None:
    """Abort while a flush has asked the service to begin the transaction, and has no answer yet: it isn't left open."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    txn = log.begin_transaction()
    producer.send(b"x", txn=txn)
    begin = MetadataStub.begin_transaction
    asked, aborting = threading.Event(), threading.Event()

    def begin_transaction(stub: MetadataStub, *arguments: Any) -> Any:
        asked.set()
        assert aborting.wait(WAIT_S)
        return begin(stub, *arguments)

    def abort() -> None:
        assert asked.wait(WAIT_S)
        with patch.object(Pipeline, "discard", discard):
            txn.abort()

    inner = Pipeline.discard

    def discard(of: Pipeline, *arguments: Any) -> None:
        aborting.set()
        inner(of, *arguments)

    with patch.object(MetadataStub, "begin_transaction", begin_transaction), meanwhile(abort):
        producer.flush()
    assert [each.state.value for each in log.transactions(None)] == ["aborted"]
    assert values(log, "t") == []


def test_two_transactions_of_the_same_producers_never_wait_for_each_other(log: Log) -> None:
    """Commit two whose messages went to the same two producers in opposite order, each when the other one has begun."""
    producers = []
    for topic in ("debits", "credits"):
        log.create_topic(topic)
        producers.append(log.producer(topic, batching=BY_HAND))
    pairs = [(log.begin_transaction(), of) for of in (producers, producers[::-1])]
    for txn, of in pairs:
        for producer in of:
            producer.send(b"x", txn=txn)
    both = threading.Barrier(2)
    inner = Rim.changes

    @contextmanager
    def changes(rim: Rim) -> Iterator[None]:
        with inner(rim):
            if rim.what.startswith("Producer"):
                with suppress(threading.BrokenBarrierError):
                    both.wait(0.3)  # the other one, if it can get there, has its first lock, too
            yield

    with patch.object(Rim, "changes", changes):
        threads = [threading.Thread(target=txn.commit, daemon=True) for txn, _ in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert values(log, "debits") == values(log, "credits") == [b"x", b"x"]
