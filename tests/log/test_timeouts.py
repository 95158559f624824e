"""Timeouts: whoever looks after a transaction's deadline sees it aborted, also if no thread runs in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log.reading import UNCOMMITTED, eventually, send_each, values
from tests.log.sites import ManualClock, Site
from txn_source import Log, Position, Transaction, TransactionTimedOutError
from txn_source.model.position import MAX_LEDGER_ID, PositionRange
from txn_source.model.topic_name import TopicName

_EVERYTHING = PositionRange(Position(1, 0), Position(MAX_LEDGER_ID, 0))


def begun(log: Log, timeout: float) -> Transaction:
    """Begin a transaction that the service knows of from now on."""
    transaction = log.begin_transaction(timeout=timeout)
    assert transaction.id is not None
    return transaction


def left_open(log: Log, timeout: float = 10.0) -> Transaction:
    """Create a topic and leave a transaction open between two plain messages."""
    log.create_topic("orders")
    producer = log.producer("orders", name="left")
    transaction = begun(log, timeout)
    send_each(producer, [b"before"])
    send_each(producer, [b"inside"], txn=transaction)
    send_each(producer, [b"behind"])
    return transaction


def test_bound_moves_at_the_deadline(clocked_log: Log, clock: ManualClock) -> None:
    """Look a second before the deadline, which counts from before it was begun, and at it: bounds, listing, rows and
    the transaction itself agree."""
    transaction = left_open(clocked_log)
    clock.advance(9.0)
    before = clocked_log.stats("orders").partitions[0]
    assert before.last_stable.entry_id == 1
    assert [t.id for t in clocked_log.transactions()] == [transaction.id]
    clock.advance(1.0)
    after = clocked_log.stats("orders").partitions[0]
    assert after.last_stable == after.log_end == Position(before.log_end.ledger_id, before.log_end.entry_id + 1)
    assert after.ongoing_transactions == ()
    assert values(clocked_log, "orders") == [b"before", b"behind"]
    assert values(clocked_log, "orders", UNCOMMITTED) == [b"before", b"inside", b"behind"]
    found = clocked_log.transaction(transaction.id)
    assert (found.state.value, found.end_reason) == ("aborted", "timeout")


_LOOKS: dict[str, Callable[[Log], bool]] = {
    "stats": lambda log: not log.stats("orders").ongoing_transactions,
    "bound": lambda log: log.stats("orders").partitions[0].last_stable.entry_id == 4,
    "scan": lambda log: values(log, "orders") == [b"before", b"behind"],
    "open transactions": lambda log: log.transactions() == [],
    "aborted transactions": lambda log: [t.end_reason for t in log.transactions("aborted")] == ["timeout"],
    "one transaction": lambda log: log.transaction("(0,0)").state.value == "aborted",
    "table": lambda log: [row["end_reason"] for row in log.metadata_table("transactions").to_pylist()] == ["timeout"],
    "a producer's view": lambda log: _view_of_a_new_producer(log) == 4,
}


def _view_of_a_new_producer(log: Log) -> int:
    _, view = log.metadata.open_producer(TopicName.parse("orders"), None, None)
    return view.partitions[0].bounds.last_stable.entry_id


@pytest.mark.parametrize("look", _LOOKS)
def test_first_look_after_the_deadline_sees_the_abort(clocked_site: Site, clock: ManualClock, look: str) -> None:
    """Let nobody look until the deadline has passed; then look once, from a new connection, in one of the ways."""
    left_open(clocked_site.connect())
    reader = clocked_site.connect()
    clock.advance(10)
    assert _LOOKS[look](reader)


def test_commit_after_the_deadline_is_refused(clocked_log: Log, clock: ManualClock) -> None:
    """Commit late, twice; aborting then is what has happened anyway."""
    transaction = left_open(clocked_log)
    clock.advance(10)
    for _ in range(2):
        with pytest.raises(TransactionTimedOutError, match=r"^\[TXNLOG_TXN_TIMED_OUT\] .*\(0,0\).* 10 s .*committed"):
            transaction.commit()
    transaction.abort()
    assert values(clocked_log, "orders") == [b"before", b"behind"]


def test_refused_write_still_aborts_what_is_overdue(clocked_site: Site, clock: ManualClock) -> None:
    """Let the first call after the deadline be one that is refused itself."""
    log = clocked_site.connect()
    transaction = left_open(log)
    clock.advance(10)
    with pytest.raises(TransactionTimedOutError):
        transaction.commit()
    pages = log.metadata.list_entries(1, _EVERYTHING)  # does not look at deadlines
    assert sum(len(page.entries) for page in pages) == 3
    [ledger] = log.metadata.list_ledgers(1, _EVERYTHING).to_pylist()
    assert ledger["entries"] == 4  # the marker is there


def test_longest_timeout_is_accepted(clocked_log: Log, clock: ManualClock) -> None:
    """Begin with the service's maximum, and with the shortest there is."""
    longest, shortest = begun(clocked_log, 900), clocked_log.metadata.begin_transaction(1)
    clock.advance(0.001)
    assert [t.id for t in clocked_log.transactions()] == [longest.id]
    assert clocked_log.transaction(shortest).end_reason == "timeout"


def test_server_aborts_overdue_transactions_by_itself(clock: ManualClock, tmp_path: Path) -> None:
    """Serve a log with an overdue transaction: its marker comes without anybody's call that looks at deadlines."""
    with Site("remote", tmp_path / "log", clock) as site:
        log = site.connect()
        left_open(log)
        clock.advance(10)
        ledgers = log.metadata.list_ledgers
        eventually(lambda: ledgers(1, _EVERYTHING)["entries"].to_pylist() == [4])
