"""A commit in one call had no answer: whatever is done next finds out whether it counted, and says so."""

from __future__ import annotations

import gc
from itertools import product
from typing import Any

import pytest

from tests.log.consuming import mark, numbered, receive, subscribe
from tests.log.reading import BY_HAND, COMMITTED, values
from tests.log.test_whole_transactions import Calls, both, calls, producers, transfer
from tests.selection import mostly_long
from txn_source import Log, Producer, Transaction, TransactionEndedError, UnavailableError
from txn_source.model.errors import InternalError, TxnLogError

pytestmark = pytest.mark.also("objects", "copies")

__all__ = ["calls", "producers"]  # fixtures

LOST = pytest.mark.parametrize("lost", ["before", "after"])
"""Whether the request was lost, or the answer."""


def unanswered(calls: Calls, producers: list[Producer], lost: str) -> Transaction:
    """Return a transaction whose commit had no answer."""
    txn = transfer(calls.log, producers)
    lose_commit(calls, txn, lost)
    return txn


def lose_commit(calls: Calls, txn: Transaction, lost: str) -> None:
    """Commit in vain."""
    calls.lose(lost)
    with pytest.raises(UnavailableError):
        txn.commit()
    calls.find()


def holding_back(log: Log) -> list[Any]:
    """Return the open transactions that have messages."""
    return [txn for txn in log.transactions() if txn.partitions]


@LOST
def test_its_id_is_not_told_and_begins_nothing(calls: Calls, producers: list[Producer], lost: str) -> None:
    """Ask for the id, as whoever logs the failure does, then commit again: it counts once, under one id."""
    txn = unanswered(calls, producers, lost)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"Call commit\(\) or abort\(\) again"):
            _ = txn.id
    txn.commit()
    assert both(calls.log, COMMITTED) == [[b"x"], [b"x"]]
    assert [each.id for each in calls.log.transactions(None)] == [txn.id]


@pytest.mark.parametrize(
    ("change", "end", "lost"),
    mostly_long(
        product(("fenced", "deleted", "both deleted", "stale"), ("commit", "abort"), ("before", "after")),
        ("deleted", "commit", "after"),
        ("deleted", "abort", "before"),
        ("stale", "commit", "after"),
        ("stale", "abort", "before"),
    ),
)
def test_what_happens_meanwhile_hides_nothing(calls: Calls, lost: str, end: str, change: str) -> None:
    """Fence, delete a topic or trim before the end is repeated: it says what came of the first try."""
    log = calls.log
    producers = [log.producer("debits", "teller", batching=BY_HAND), log.producer("credits", batching=BY_HAND)]
    for producer in producers:
        producer.send(b"old", partition=0)
        producer.flush()
    txn = log.begin_transaction()
    for producer in producers:
        producer.send(b"x", partition=0, txn=txn)
    lose_commit(calls, txn, lost)
    left = _change(log, change)
    told = ""
    try:
        getattr(txn, end)()
    except TxnLogError as error:
        told = str(error)
    seen = {b"x" in values(log, name) for name in left}
    if change == "stale" and lost == "after":  # what was committed is trimmed, and nobody knows it any more
        assert "stored so long ago" in told
    elif change == "stale":  # its producers write to other segments by themselves
        assert not told
        assert seen == {end == "commit"}
    elif lost == "after" and left:
        assert "is committed" in told if end == "abort" else not told
        assert seen == {True}
        txn.commit()
    else:
        assert told or end == "abort" or not left
        assert True not in seen
        txn.abort()
    del txn
    gc.collect()
    for producer in producers:
        producer.close()
    assert holding_back(log) == []


def _change(log: Log, change: str) -> list[str]:
    """Let something happen; return the topics that are left."""
    if change == "fenced":
        log.producer("debits", "teller", batching=BY_HAND)
    elif change == "stale":
        for name in ("debits", "credits"):
            log.roll_ledger(name)
            log.trim(name, keep_bytes=0)
    else:
        for name in ("debits", "credits")[: 2 if change.startswith("both") else 1]:
            log.delete_topic(name)
    return log.topics()


def test_fenced_append_that_is_repeated_is_answered(calls: Calls) -> None:
    """Lose the answer of a plain write, fence, and write again: it was stored, and says so; the next one is refused."""
    producer = calls.log.producer("debits", "teller", batching=BY_HAND)
    producer.send(b"x")
    calls.lose("after", "Append")
    with pytest.raises(UnavailableError):
        producer.flush()
    calls.find()
    calls.log.producer("debits", "teller", batching=BY_HAND)
    assert len(producer.flush()) == 1
    assert values(calls.log, "debits") == [b"x"]
    producer.close()


def test_write_that_is_answered_by_an_unforeseen_error_is_repeated(calls: Calls, producers: list[Producer]) -> None:
    """Let the service fail once after it has stored plain messages: they have ids, and nobody is told of a loss."""
    producers[0].send(b"x")

    def fail() -> None:
        raise InternalError("The service failed.", "Please report it.")

    calls.between.after["Append"] = fail
    assert len(producers[0].flush()) == 1
    assert values(calls.log, "debits") == [b"x"]


def test_numbers_of_other_messages_in_between_are_no_repetition(calls: Calls, producers: list[Producer]) -> None:
    """Write parts of a transaction with plain messages in between, in vain, and commit when the service is back."""
    txn = calls.log.begin_transaction()
    producers[0].send(b"one", txn=txn, partition=0)
    producers[0].send(b"plain", partition=0)
    calls.lose("before", "BeginTransaction")
    with pytest.raises(UnavailableError):
        producers[0].flush()
    calls.find()
    producers[0].send(b"two", txn=txn, partition=0)
    txn.commit()
    assert values(calls.log, "debits") == [b"plain", b"one", b"two"]


@LOST
def test_producer_that_waits_for_it_says_so_when_it_is_closed(
    calls: Calls, producers: list[Producer], lost: str
) -> None:
    """Close a producer, and again after the commit was repeated; the other one goes on meanwhile."""
    txn = unanswered(calls, producers, lost)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"had no answer.*Call commit\(\) or abort\(\) of that transaction"):
            producers[0].close()
    producers[0].send(b"plain", partition=0)
    assert len(producers[0].flush()) == 1
    txn.commit()
    for producer in producers:
        producer.close()
        with pytest.raises(TxnLogError, match="is closed"):
            producer.send(b"more")
    assert sorted(values(calls.log, "debits")) == [b"plain", b"x"]


@LOST
def test_producer_closes_when_nobody_has_the_transaction(calls: Calls, producers: list[Producer], lost: str) -> None:
    """Drop the transaction, too: nobody can repeat its commit any more, and it counts wholly or not at all."""
    unanswered(calls, producers, lost)
    producers[0].send(b"plain")
    for producer in producers:
        producer.close()
        with pytest.raises(TxnLogError, match="is closed"):
            producer.send(b"more")
    came = [b"x"] * (lost == "after")
    assert [sorted(rows) for rows in both(calls.log, COMMITTED)] == [[b"plain", *came], came]


@pytest.mark.kinds("embedded", "remote")
def test_loss_that_was_noted_keeps_no_transaction(calls: Calls, producers: list[Producer]) -> None:
    """Lose messages of one transaction in the commit of another one, which has no answer, and drop that: it goes."""
    ended = calls.log.begin_transaction()
    calls.log.abort_transaction(ended.id)
    producers[0].send(b"lost", txn=ended)
    unanswered(calls, producers, "before")
    with pytest.raises(TransactionEndedError, match="by an operator"):
        producers[0].close()
    for producer in producers:
        producer.close()
    with pytest.raises(TransactionEndedError, match="by an operator"):
        ended.commit()


def test_refused_commit_lets_nothing_go(calls: Calls, producers: list[Producer]) -> None:
    """Lose the commit's request, then have it refused: the transaction lives on, and its messages count."""
    numbered(calls.log)
    consumer = subscribe(calls.log)
    txn = transfer(calls.log, producers)
    txn.acknowledge(receive(consumer))
    lose_commit(calls, txn, "before")
    consumer.seek("earliest")
    with pytest.raises(TxnLogError, match="delivered again"):
        txn.commit()
    txn.abort()
    assert both(calls.log, COMMITTED) == [[], []]
    for producer in producers:
        producer.close()


def test_abort_that_comes_too_late_leaves_acknowledgements(calls: Calls, producers: list[Producer]) -> None:
    """Lose the answer of a commit that acknowledges, and abort: nothing is delivered again."""
    _, ids = numbered(calls.log)
    consumer = subscribe(calls.log)
    txn = transfer(calls.log, producers)
    txn.acknowledge(receive(consumer))
    lose_commit(calls, txn, "after")
    with pytest.raises(TransactionEndedError, match="is committed"):
        txn.abort()
    assert mark(calls.log) == ids[1]
    assert (receive(consumer).message_id, consumer.epoch) == (ids[1], 0)
