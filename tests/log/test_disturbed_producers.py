"""Producers that are disturbed: by threads, by a value that Arrow can't take, by a service that goes, by Ctrl-C."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, by_partition, eventually, values
from txn_source import (
    Batching,
    FailedError,
    Log,
    TopicNotFoundError,
    UnavailableError,
)
from txn_source.metadata.stub.metadata_stub import MetadataStub

pytestmark = [pytest.mark.kinds("embedded", "remote"), pytest.mark.also("objects", "copies")]

THREADS, ROUNDS = 6, 4


def test_threads_share_a_producer_with_a_transaction_each(log: Log) -> None:
    """Send, send batches, flush, commit and abort over one producer in many threads at once."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders", batching=Batching(linger_s=0.001, max_messages=5))
    failed: list[BaseException] = []

    def write(thread: int) -> None:
        try:
            for number in range(ROUNDS):
                name = b"%d-%d" % (thread, number)
                transaction = log.begin_transaction()
                producer.send(name + b" first", txn=transaction, partition=0)
                producer.send(name + b" plain", partition=thread % 2)
                producer.send_batch(pa.record_batch({"value": [name + b" b0", name + b" b1"]}), txn=transaction)
                if number % 2:
                    producer.flush()
                producer.send(name + b" last", txn=transaction, partition=1)
                if number == ROUNDS - 1:
                    transaction.abort()
                else:
                    transaction.commit()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(each,)) for each in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    producer.close()
    whole = [
        b"%d-%d %s" % (thread, number, what)
        for thread in range(THREADS)
        for number in range(ROUNDS)
        for what in ((b"plain",) if number == ROUNDS - 1 else (b"plain", b"first", b"b0", b"b1", b"last"))
    ]
    assert sorted(values(log, "orders")) == sorted(whole)
    for found in by_partition(log, "orders").values():
        for thread in range(THREADS):
            plain = [value for value in found if value.endswith(b"plain") and value.startswith(b"%d-" % thread)]
            assert plain == sorted(plain)


def test_each_loss_is_told(log: Log) -> None:
    """Lose plain messages and those of a transaction in one flush: two calls say so, and each names how many."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    transaction = log.begin_transaction()
    for _ in range(2):
        producer.send(b"plain")
    producer.send(b"c", txn=transaction)
    log.delete_topic("orders")
    with pytest.raises(TopicNotFoundError) as first:
        producer.flush()
    with pytest.raises(TopicNotFoundError) as second:
        producer.flush()
    assert [told.value.__notes__[0].split(",")[0] for told in (first, second)] == [
        "2 messages are not stored because of this",
        "1 message is not stored because of this",
    ]
    with pytest.raises(TopicNotFoundError):
        transaction.commit()
    assert producer.flush() == []


def _struck(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt  # as a second Ctrl-C does, or an error of Python's


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_transaction_whose_end_was_struck_has_failed(log: Log, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Interrupt a commit or an abort: each later call raises FAILED, and names ``log.transaction``."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    transaction = log.begin_transaction()
    producer.send(b"debit", txn=transaction)
    producer.flush()
    producer.send(b"credit", txn=transaction)
    with monkeypatch.context() as patch:
        patch.setattr(MetadataStub, "end_transaction", _struck)
        with pytest.raises(KeyboardInterrupt):
            getattr(transaction, end)()
    for refused in (transaction.commit, transaction.abort, lambda: producer.send(b"more", txn=transaction)):
        with pytest.raises(FailedError, match=r" failed .*KeyboardInterrupt.*log.transaction"):
            refused()
    assert log.transaction(transaction.id).state.value == "open"
    log.abort_transaction(transaction.id)
    assert values(log, "orders") == []


@pytest.mark.parametrize("call", ["flush", "close", "send that fills a batch", "linger thread"])
def test_producer_that_was_struck_has_failed(log: Log, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Interrupt a write: later calls raise FAILED, acknowledged messages are stored, and another producer works."""
    log.create_topic("orders")
    by_thread = call == "linger thread"
    producer = log.producer("orders", batching=Batching(linger_s=0.01 if by_thread else 1e6, max_messages=3))
    producer.send(b"stored")
    producer.flush()
    calls: dict[str, Any] = {"flush": producer.flush, "close": producer.close}
    with monkeypatch.context() as patch:
        patch.setattr(MetadataStub, "append", _struck)
        producer.send(b"x")
        if call in calls:
            with pytest.raises(KeyboardInterrupt):
                calls[call]()
        elif not by_thread:
            with suppress(KeyboardInterrupt):  # where segments are put in the background, the thread is struck
                for _ in range(2):
                    producer.send(b"y")
        if call != "close":
            eventually(lambda: _has_failed(producer))
    if call != "close":
        for refused in (producer.flush, lambda: producer.send(b"more"), producer.close):
            with pytest.raises(FailedError, match=r" failed .*KeyboardInterrupt.* flush\(\) .*Open another one"):
                refused()
    producer.close()
    with log.producer("orders") as other:
        other.send(b"of another one")
    assert values(log, "orders") == [b"stored", b"of another one"]


def _has_failed(producer: Any) -> bool:
    try:
        producer.flush()
    except FailedError:
        return True
    except KeyboardInterrupt:
        return False
    return False


def test_error_of_a_block_is_what_its_caller_sees(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise inside of a transaction whose abort fails, too: the first error comes, with a note of the second."""

    def interrupted_block() -> None:
        with monkeypatch.context() as patch, log.begin_transaction() as transaction:
            assert transaction.id is not None  # the service knows of it
            patch.setattr(MetadataStub, "end_transaction", _unavailable)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as told:
        interrupted_block()
    assert "failed too: [TXNLOG_UNAVAILABLE]" in told.value.__notes__[0]


def _unavailable(*_: Any, **__: Any) -> None:
    raise UnavailableError("It is gone.", "Wait.")
