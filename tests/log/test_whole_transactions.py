"""A small transaction is begun, written and committed in one call; whatever comes between, it counts once or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from tests.log.holding import holding
from tests.log.meddling import Meddling
from tests.log.reading import BY_HAND, UNCOMMITTED, values
from tests.log.sites import Site
from txn_source import (
    Log,
    Producer,
    ProducerFencedError,
    Transaction,
    TransactionEndedError,
    TransactionTimedOutError,
    UnavailableError,
)
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import TxnLogError

pytestmark = pytest.mark.also("objects", "copies")

WAIT_S = 120.0
LOST = UnavailableError("The answer was lost.", "Try again.")


class Calls:
    """A log whose calls are counted, and can be lost on their way there or back."""

    def __init__(self, site: Site) -> None:
        self.log, way = holding(site)
        self.between = Meddling(way.inner)
        way.inner = self.between
        self.names: list[str] = []
        call = self.between.call

        def counted(method: str, request: Any) -> Any:
            self.names.append(method)
            return call(method, request)

        self.between.call = counted  # type: ignore[method-assign]

    def lose(self, which: str, method: str = "WriteTransaction") -> None:
        """Lose the requests of a call (``before``), or its answers (``after``)."""

        def fail() -> None:
            raise UnavailableError("The answer was lost.", "Try again.")

        getattr(self.between, which)[method] = fail

    def find(self) -> None:
        """Lose nothing any more."""
        self.between.before.clear()
        self.between.after.clear()


@pytest.fixture
def calls(site: Site) -> Calls:
    calls = Calls(site)
    for name in ("debits", "credits"):
        calls.log.create_topic(name, partitions=2)
    return calls


@pytest.fixture
def producers(calls: Calls) -> Iterator[list[Producer]]:
    with (
        calls.log.producer("debits", batching=BY_HAND) as debits,
        calls.log.producer("credits", batching=BY_HAND) as credits,
    ):
        yield [debits, credits]


def transfer(log: Log, producers: list[Producer], value: bytes = b"x") -> Transaction:
    txn = log.begin_transaction()
    for producer in producers:
        producer.send(value, txn=txn)
    return txn


def both(log: Log, level: str = UNCOMMITTED) -> list[list[bytes]]:
    return [values(log, name, level) for name in ("debits", "credits")]


def test_small_transaction_is_one_call(calls: Calls, producers: list[Producer]) -> None:
    """Send to two topics and commit: the service hears of it once, and ids come with the next flush."""
    calls.names.clear()
    txn = transfer(calls.log, producers)
    txn.commit()
    assert calls.names == ["WriteTransaction"]
    assert both(calls.log, "read_committed") == [[b"x"], [b"x"]]
    assert [len(producer.flush()) for producer in producers] == [1, 1]
    found = calls.log.transaction(txn.id)
    assert (found.state.value, [p.messages for p in found.partitions]) == ("committed", [1, 1])
    txn.commit()  # harmless


def test_abort_of_what_nobody_knows_is_no_call(calls: Calls, producers: list[Producer]) -> None:
    """Abort before anything was written: the service never hears of it."""
    calls.names.clear()
    txn = transfer(calls.log, producers)
    txn.abort()
    txn.abort()
    with pytest.raises(TransactionEndedError, match="was aborted and can't be committed"):
        txn.commit()
    assert calls.names == []
    assert both(calls.log) == [[], []]


@pytest.mark.parametrize("lost", ["before", "after"])
@pytest.mark.kinds("embedded", "objects")
@pytest.mark.usefixtures("s3")
def test_commit_whose_answer_was_lost_can_be_repeated(calls: Calls, producers: list[Producer], lost: str) -> None:
    """Lose the request or the answer, write something else, and commit again: it counts once."""
    txn = transfer(calls.log, producers)
    calls.lose(lost)
    with pytest.raises(UnavailableError):
        txn.commit()
    calls.find()
    for producer in producers:
        producer.send(b"plain")
        producer.flush()
    txn.commit()
    assert [sorted(rows) for rows in both(calls.log, "read_committed")] == [[b"plain", b"x"]] * 2
    assert [t.state.value for t in calls.log.transactions(None)] == ["committed"]
    assert [len(producer.flush()) for producer in producers] == [1, 1]


def test_abort_after_a_commit_that_was_lost(calls: Calls, producers: list[Producer]) -> None:
    """Lose the request of a commit and abort: nothing counts, also when the request arrives late."""
    txn = transfer(calls.log, producers)
    late: list[Any] = []
    write = MetadataStub.write_transaction

    def lose(stub: MetadataStub, *arguments: Any) -> Any:
        late.append(lambda: write(stub, *arguments))
        raise LOST

    with patch.object(MetadataStub, "write_transaction", lose), pytest.raises(UnavailableError):
        txn.commit()
    txn.abort()
    with pytest.raises(TxnLogError):
        late[0]()
    assert both(calls.log, "read_committed") == [[], []]
    assert [t.state.value for t in calls.log.transactions(None)] == ["aborted"]
    transfer(calls.log, producers, b"next").commit()
    assert both(calls.log, "read_committed") == [[b"next"], [b"next"]]


def test_abort_after_a_commit_that_counted(calls: Calls, producers: list[Producer]) -> None:
    """Lose the answer of a commit and abort: it says that it is too late, and all ids are known."""
    txn = transfer(calls.log, producers)
    calls.lose("after")
    with pytest.raises(UnavailableError):
        txn.commit()
    calls.find()
    for _ in range(2):
        with pytest.raises(TransactionEndedError, match="is committed and can't be aborted"):
            txn.abort()
    txn.commit()
    assert both(calls.log, "read_committed") == [[b"x"], [b"x"]]
    assert [len(producer.flush()) for producer in producers] == [1, 1]


def test_refused_commit_leaves_nothing(calls: Calls) -> None:
    """Fence one of two producers: the commit is refused, and neither topic has anything."""
    old = calls.log.producer("debits", "teller", batching=BY_HAND)
    other = calls.log.producer("credits", batching=BY_HAND)
    txn = transfer(calls.log, [old, other])
    calls.log.producer("debits", "teller", batching=BY_HAND)
    with pytest.raises(ProducerFencedError):
        txn.commit()
    txn.abort()
    assert both(calls.log) == [[], []]
    transfer(calls.log, [other]).commit()
    assert both(calls.log, "read_committed") == [[], [b"x"]]
    other.close()


def test_time_out_counts_from_the_beginning(site: Site) -> None:
    """Let a transaction's time pass before it writes anything: it is refused, in one call or in several."""
    log = site.connect()
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    now = [0.0]
    for begins in (False, True):
        txn = Transaction(log.metadata, 10.0, lambda: now[0])
        producer.send(b"late", txn=txn)
        now[0] += 10
        with pytest.raises(TransactionTimedOutError, match="of 10 s had passed"):
            _ = txn.id if begins else txn.commit()
        txn.abort()
    txn = Transaction(log.metadata, 10.0, lambda: now[0])
    now[0] += 4
    found = log.transaction(txn.id)
    assert found.timeout == 10.0
    assert found.age >= 4
    producer.close()
    assert values(log, "orders", UNCOMMITTED) == []


def test_producers_that_write_at_once_begin_one_transaction(calls: Calls, producers: list[Producer]) -> None:
    """Flush two producers of one transaction in two threads, the first held while it begins: nothing is in another."""
    txn = transfer(calls.log, producers)
    begin = MetadataStub.begin_transaction
    second, begun = threading.Event(), []

    def held(stub: MetadataStub, *arguments: Any) -> Any:
        begun.append(begin(stub, *arguments))
        if len(begun) == 1:
            second.wait(0.3)  # which comes only if two may begin
        else:
            second.set()
        return begun[-1]

    with patch.object(MetadataStub, "begin_transaction", held):
        threads = [threading.Thread(target=producer.flush) for producer in producers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert begun == [txn.id]
    txn.commit()
    assert both(calls.log, "read_committed") == [[b"x"], [b"x"]]
