"""Threads that share a transaction: what one of them adds, or ends, while another one ends it."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import patch

import pytest

from tests.log.consuming import WAIT_S, mark, meanwhile, numbered, receive, subscribe
from tests.log.reading import BY_HAND, values
from txn_source import Log, TransactionEndedError, UnavailableError
from txn_source.client.writing import transaction as transactions
from txn_source.client.writing.producer import Producer
from txn_source.metadata.stub.metadata_stub import MetadataStub


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


def test_commit_that_an_abort_overtakes_commits_nothing(log: Log) -> None:
    """Abort when a commit has begun: what the abort has dropped is missing, so the commit must not succeed."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    txn = log.begin_transaction()
    assert not log.transaction(txn.id).partitions  # the service knows of it
    producer.send(b"debit", txn=txn)
    drain, end = Producer._drain_for, MetadataStub.end_transaction
    began, dropped, over = threading.Event(), threading.Event(), threading.Event()

    def end_transaction(stub: MetadataStub, *arguments: Any, commit: bool, **more: Any) -> None:
        if not commit:
            dropped.set()
            assert over.wait(WAIT_S)
        end(stub, *arguments, commit=commit, **more)

    def drain_for(of: Producer, *arguments: Any) -> None:
        began.set()
        assert dropped.wait(WAIT_S)
        drain(of, *arguments)

    def commit() -> None:
        try:
            txn.commit()
        finally:
            over.set()

    with (
        patch.object(MetadataStub, "end_transaction", end_transaction),
        patch.object(Producer, "_drain_for", drain_for),
        meanwhile(lambda: began.wait(WAIT_S) and txn.abort()),
        pytest.raises(TransactionEndedError),
    ):
        commit()
    assert values(log, "t", "read_uncommitted") == []
    with pytest.raises(TransactionEndedError):
        txn.commit()


def test_commit_that_fails_while_another_one_goes_on_takes_no_more(log: Log) -> None:
    """Commit in two threads; one can't reach the service when the other has written all: nothing is sent in between."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    txn = log.begin_transaction()
    assert not log.transaction(txn.id).partitions  # the service knows of it
    producer.send(b"in time", txn=txn)
    drain = Producer._drain_for
    written, over = threading.Event(), threading.Event()

    def drain_for(of: Producer, *arguments: Any) -> None:
        if written.is_set():
            raise UnavailableError("It is gone.", "Wait.")
        drain(of, *arguments)
        written.set()
        assert over.wait(WAIT_S)

    with patch.object(Producer, "_drain_for", drain_for), meanwhile(txn.commit):
        try:
            assert written.wait(WAIT_S)
            with pytest.raises(UnavailableError):
                txn.commit()
            with pytest.raises(TransactionEndedError, match="is being committed"):
                producer.send(b"too late", txn=txn)
        finally:
            over.set()
    txn.commit()
    assert values(log, "t") == [b"in time"]


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
        with patch.object(Producer, "_discard", discard):
            txn.abort()

    inner = Producer._discard

    def discard(of: Producer, *arguments: Any) -> None:
        aborting.set()
        inner(of, *arguments)

    with patch.object(MetadataStub, "begin_transaction", begin_transaction), meanwhile(abort):
        producer.flush()
    assert [each.state.value for each in log.transactions(None)] == ["aborted"]
    assert values(log, "t") == []
