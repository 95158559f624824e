"""Big answers come in pages, those of closed ledgers sealed as Arrow; pages of any kind make the same answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.reading import COMMITTED, UNCOMMITTED, registered, rows, send_each, values
from tests.selection import mostly_long
from txn_source import Log
from txn_source.metadata.store import pages, sealing, views
from txn_source.model.position import PositionRange
from txn_source.model.topic_name import TopicName

_COLUMNS = ["value", "__ledger_id", "__entry_id", "__producer_name", "__txn_id", "__txn_status"]


@pytest.fixture(params=mostly_long([1, 3, 10**9], 3), ids=["all sealed", "large ones sealed", "none sealed"])
def sealed_from(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From how many rows on a closed ledger is sealed."""
    monkeypatch.setattr(sealing, "_SEAL_FROM_ROWS", request.param)


def page_size(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for module in (pages, views):
        monkeypatch.setattr(module, "PAGE_ROWS", rows)


@pytest.mark.usefixtures("sealed_from")
def test_answers_in_small_pages_are_the_same(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write many ledgers, transactions and segments; read all of it in one page and in pages of a few rows."""
    log.create_topic("orders", ledger_max_entries=5)
    committed, sent = [], []
    for name in ("one", "two"):
        producer = log.producer("orders", name=name)
        left, open_ = log.begin_transaction(), log.begin_transaction()
        send_each(producer, [b"left"], txn=left)
        sent += [(b"left", "aborted", name)]
        for index in range(8):
            transaction = log.begin_transaction()
            send_each(producer, [b"%d" % index], txn=transaction)
            transaction.commit() if index % 2 else transaction.abort()
            sent += [(b"%d" % index, "committed" if index % 2 else "aborted", name)]
            committed += [b"%d" % index] * (index % 2)
        left.abort()
        if name == "two":
            send_each(producer, [b"open"], txn=open_)
            sent += [(b"open", "open", name)]

    def everything() -> tuple[Any, ...]:
        found = [rows(log, "orders", level, _COLUMNS) for level in (COMMITTED, UNCOMMITTED)]
        return found, log.stats("orders").ledgers, registered(log)

    whole = everything()
    assert values(log, "orders") == committed
    assert [(r["value"], r["__txn_status"], r["__producer_name"]) for r in whole[0][1]] == sent
    assert len(whole[1]) > 6
    assert len(whole[2]) > 6
    for size in (1, 2, 5):
        page_size(monkeypatch, size)
        assert everything() == whole


@pytest.mark.parametrize("times", [False, True])
def test_ledgers_of_many_ranges_are_those_of_each(log: Log, monkeypatch: pytest.MonkeyPatch, times: bool) -> None:
    """Ask for the ledgers of several partitions at once, with pages that hold fewer than one, one, or all of them."""
    log.create_topic("orders", partitions=4, ledger_max_entries=2)
    with log.producer("orders") as producer:
        for partition, messages in enumerate((0, 7, 1, 5)):
            for _ in range(messages):
                producer.send(b"x", partition=partition)
                producer.flush()
    [topic] = log.metadata.get_view([TopicName.parse("orders")]).topics
    ranges = [(p.partition_id, PositionRange(p.bounds.log_start, p.bounds.log_end)) for p in topic.partitions]
    ranges += [(99, ranges[0][1]), (ranges[1][0], PositionRange(ranges[1][1].end, ranges[1][1].end))]
    expected = [log.metadata.list_ledgers(*of, times=times) for of in ranges]
    assert [len(table) for table in expected] == [1, 4, 1, 3, 0, 1]
    for size in (1, 3, 4, 50):
        page_size(monkeypatch, size)
        assert log.metadata.list_ledgers_of(ranges, times=times) == expected
    assert log.metadata.list_ledgers_of([]) == []
