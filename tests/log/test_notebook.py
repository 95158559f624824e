"""What a log and what it returns show of themselves: short in a terminal, a table in a notebook."""

from __future__ import annotations

import pickle
from pathlib import Path
from xml.etree import ElementTree

import pytest

import txn_source
from txn_source import Log, MessageId, Position, TxnId


def cells(shown: str) -> list[list[str]]:
    """Return the rows of all tables; fails if a text isn't escaped."""
    page = ElementTree.fromstring(f"<div>{shown}</div>")
    return [["".join(cell.itertext()) for cell in row] for row in page.iter("tr")]


@pytest.fixture
def held(log: Log) -> Log:
    """A log with an open transaction, a subscription, and names that HTML has to escape."""
    log.create_topic("orders")
    log.create_subscription("orders", "a&b", "shared", initial_position="earliest")
    with log.producer("orders", name="<b>") as producer:
        producer.send(b"1")
        producer.send(b"2", txn=log.begin_transaction())
        producer.flush()
    return log


def test_positions_and_ids_are_short() -> None:
    assert repr([Position(12, 40), MessageId(12, 40, 3), TxnId(0, 7)]) == "[12:40, 12:40:3, (0,7)]"


def test_what_is_returned_is_short_in_a_terminal(held: Log) -> None:
    stats = held.stats("orders")
    assert repr(stats) == (
        f"<TopicStats of orders: 1 partition, 2 messages, {stats.bytes:,} bytes, 1 open transaction>"
    )
    assert "log_start=1:0, last_stable=1:1" in repr(stats.partitions[0])
    [txn] = held.transactions()
    assert repr(txn) == f"<TransactionInfo (0,0): open, began {txn.age:.1f} s ago, holds back 1 message>"
    [booking] = held.subscriptions("orders")
    assert repr(booking) == "<SubscriptionInfo a&b: shared, read_committed, epoch 0, backlog 1, 0 consumers>"
    assert repr(held.cut("orders")) == "<Cut of 1 partition at read_committed>"


def test_a_notebook_shows_tables(held: Log) -> None:
    [_, topic] = cells(held._repr_html_())
    assert topic[:3] == ["orders", "1", "2"]
    [_, partition, _, open_one] = cells(held.stats("orders")._repr_html_())
    assert partition[:6] == ["0", "1:0", "1:1", "1:2", "1:2", "2"]
    assert [open_one[0], *open_one[2:4]] == ["(0,0)", "1:1", "1"]
    [_, txn] = cells(held.transactions()._repr_html_())  # type: ignore[attr-defined]
    assert [txn[0], txn[1], *txn[3:]] == ["(0,0)", "open", "1", "<b>", "1"]
    [_, subscription] = cells(held.subscriptions("orders")._repr_html_())  # type: ignore[attr-defined]
    assert subscription == ["a&b", "shared", "read_committed", "0", "1", "0", "(0,0)"]


def test_what_is_shown_is_a_list_all_the_same(held: Log) -> None:
    found = held.transactions()
    assert pickle.loads(pickle.dumps(found)) == found == list(found)


def test_a_notebook_says_that_there_is_more(held: Log) -> None:
    for number in range(50):
        held.create_topic(f"t{number}")
    shown = held._repr_html_()
    assert len(cells(shown)) == 51
    assert "The first 50 of 51." in shown


def test_a_log_that_cannot_be_reached_is_shown_with_the_reason(tmp_path: Path) -> None:
    log = txn_source.connect(tmp_path / "log")
    log.close()
    for path in sorted((tmp_path / "log").glob("metadata*")):
        path.unlink()
    assert "[TXNLOG_" in log._repr_html_()
