"""Writes that storage or the service refuses: whoever sent is told, nothing is stored twice, nothing half."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, by_id, by_partition, eventually, send_each, values
from tests.log.sites import Site
from txn_source import (
    Batching,
    InternalError,
    Log,
    PermissionDeniedError,
    StorageWriteError,
    TransactionEndedError,
    TxnLogError,
    UnavailableError,
)
from txn_source.metadata.stub.metadata_stub import MetadataStub

pytestmark = [pytest.mark.kinds("embedded", "remote"), pytest.mark.also("objects", "copies")]


@contextmanager
def unwritable(log: Log) -> Iterator[None]:
    """Put a file where new segments would go."""
    segments, aside = log.root / "segments", Path(f"{log.root}-aside")
    segments.mkdir(exist_ok=True)
    segments.rename(aside)
    segments.touch()
    yield
    segments.unlink()
    aside.rename(segments)


@pytest.mark.files
def test_what_storage_refuses_waits_for_the_next_flush(log: Log) -> None:
    """Flush twice while storage refuses writes, and once afterwards: all messages are stored once, in order."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    with unwritable(log):
        producer.send(b"a")
        for _ in range(2):
            with pytest.raises(StorageWriteError, match=r"segments/.* can't be written: .*not registered"):
                producer.flush()
        producer.send(b"b")
    assert len(send_each(producer, [b"c"])) == 3
    assert values(log, "orders", UNCOMMITTED) == [b"a", b"b", b"c"]


@pytest.mark.files
def test_refused_write_in_the_background_is_reported_by_the_next_call(log: Log) -> None:
    """Let the linger time pass while storage refuses; the next send fails and takes nothing."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=Batching(linger_s=0.001))
    with unwritable(log):
        producer.send(b"a")
        with pytest.raises(StorageWriteError):
            eventually(lambda: producer.send(b"b") is not None)
    producer.flush()
    stored = values(log, "orders", UNCOMMITTED)
    assert stored[0] == b"a"
    assert set(stored[1:]) <= {b"b"}  # those of before the thread had tried


def test_what_the_service_refuses_for_now_waits_for_the_next_flush(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the service refuse for reasons that pass: a full disk, an expired token, a standby. The flush or commit after
    that stores the waiting messages."""
    log.create_topic("orders")
    producer, transaction = log.producer("orders", batching=BY_HAND), log.begin_transaction()
    assert transaction.id is not None
    reasons: list[TxnLogError] = [
        StorageWriteError("The metadata database can't be written: the disk is full.", "Free some space."),
        PermissionDeniedError("The token has expired.", "Get another one."),
        InternalError("The database is a standby.", "Promote it."),
    ]

    def append(*_: Any, **__: Any) -> Any:
        raise type(reasons[0])(reasons[0].fact, reasons[0].remedy)

    producer.send(b"plain")
    producer.send(b"of a transaction", txn=transaction)
    with monkeypatch.context() as patch:
        patch.setattr(MetadataStub, "append", append)
        while reasons:
            for call in (producer.flush, transaction.commit):
                with pytest.raises(type(reasons[0])):
                    call()
            del reasons[0]
    transaction.commit()
    assert len(producer.flush()) == 2
    assert values(log, "orders") == [b"plain", b"of a transaction"]


@pytest.mark.files
def test_producer_that_can_store_nothing_takes_no_more_for_ever(log: Log) -> None:
    """Send on while storage refuses writes, and ignore the errors: the producer keeps four full batches, no more."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=Batching(linger_s=1e6, max_messages=10))
    taken = 0
    with unwritable(log):
        for number in range(100):
            with suppress(StorageWriteError):
                producer.send(b"%d" % number)
                taken += 1
        with pytest.raises(StorageWriteError):
            producer.send(b"more")
    assert 40 <= taken <= 50
    assert len(producer.flush()) == taken
    producer.send(b"again")
    producer.flush()
    assert len(values(log, "orders", UNCOMMITTED)) == taken + 1


@pytest.mark.parametrize("told", ["by the commit", "by flush", "by another send"])
@pytest.mark.files
def test_transaction_whose_messages_wait_is_committed_later(log: Log, told: str) -> None:
    """Refuse to write the second of two messages: the commit fails, whichever call raised first, and succeeds later."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=Batching(linger_s=1e6, max_messages=2))
    transaction = log.begin_transaction()
    send_each(producer, [b"first"], txn=transaction)
    with unwritable(log):
        producer.send(b"second", txn=transaction, properties={"a": "needs a new segment"})
        if told == "by flush":
            with pytest.raises(StorageWriteError):
                producer.flush()
        elif told == "by another send":
            producer.send(b"third", txn=transaction)  # fills the batch, which is written
            with pytest.raises(StorageWriteError):
                producer.send(b"plain")
        for _ in range(2):
            with pytest.raises(StorageWriteError):
                transaction.commit()
    assert values(log, "orders") == []
    transaction.commit()
    assert values(log, "orders") == [b"first", b"second", *([b"third"] if told == "by another send" else [])]


@pytest.mark.files
def test_block_whose_commit_is_refused_leaves_no_open_transaction(log: Log) -> None:
    """Leave the block of a transaction that loses a message: it is aborted, and nothing waits for its timeout."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    transaction = log.begin_transaction()
    assert transaction.id is not None  # the service knows of it
    with unwritable(log), pytest.raises(StorageWriteError), transaction:
        producer.send(b"lost", txn=transaction)
    assert log.transaction(transaction.id).end_reason == "client"
    with unwritable(log), pytest.raises(StorageWriteError), log.begin_transaction() as unknown:
        producer.send(b"lost", txn=unknown)
    with pytest.raises(TransactionEndedError, match="has no id"):
        _ = unknown.id
    assert log.transactions() == []


def test_failed_close_of_a_producer_keeps_no_other_from_being_flushed(site: Site) -> None:
    """Close a log with three producers of which one has a topic no more."""
    log = site.open()
    for topic in ("a", "b", "c"):
        log.create_topic(topic)
    producers = {topic: log.producer(topic, batching=BY_HAND) for topic in ("a", "b", "c")}
    for producer in producers.values():
        producer.send(b"x")
    site.connect().delete_topic("b")
    with pytest.raises(Exception, match="deleted"):
        log.close()
    reader = site.connect()
    assert values(reader, "a") == values(reader, "c") == [b"x"]


@pytest.mark.usefixtures("impatient")
def test_flush_is_repeated_until_the_service_is_back(remote_site: Site) -> None:
    """Stop the server, flush and close a producer in vain, start it again and flush: all is stored once, in order."""
    log = remote_site.connect()
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders", batching=BY_HAND)
    transaction = log.begin_transaction()
    before = send_each(producer, [b"0"], partition=0)
    port = remote_site.server.port
    remote_site.stop_server()
    producer.send(b"1", partition=1)
    for call in (producer.flush, producer.close):  # after which it still takes messages
        with pytest.raises(UnavailableError, match=f"127.0.0.1:{port}"):
            call()
    producer.send(b"2", partition=0)
    producer.send(b"3", partition=1, txn=transaction)
    with pytest.raises(UnavailableError):
        transaction.commit()
    remote_site.start_server(port)
    eventually(lambda: _reaches(log))
    transaction.commit()
    ids = producer.flush()
    stored = by_id(log, "orders")
    assert [stored[i] for i in [*before, *ids]] == [b"0", b"1", b"2", b"3"]
    assert by_partition(log, "orders") == {0: [b"0", b"2"], 1: [b"1", b"3"]}


def _reaches(log: Log) -> bool:
    try:
        log.topics()
    except UnavailableError:
        return False
    return True
