"""The last readable position, inclusive, as people see it: derived from the exclusive bound."""

from __future__ import annotations

from tests.log.reading import send_each
from txn_source import Log, Position


def last_readable(log: Log) -> Position:
    return log.stats("orders").partitions[0].max_read_position


def test_nothing_is_readable_in_an_empty_log(log: Log) -> None:
    """Look before the first message: the entry id is -1, as Pulsar shows it."""
    log.create_topic("orders")
    first = log.stats("orders").partitions[0].log_start
    assert last_readable(log) == Position(first.ledger_id, -1)


def test_message_before_an_open_transaction_is_the_last_readable(log: Log) -> None:
    """Append plain, transactional and plain messages; commit moves it to the marker."""
    log.create_topic("orders")
    producer = log.producer("orders")
    transaction = log.begin_transaction()
    [before] = send_each(producer, [b"a"])
    [inside] = send_each(producer, [b"b"], txn=transaction)
    [after] = send_each(producer, [b"c"])
    assert last_readable(log) == before.position
    transaction.commit()
    assert after.entry_id == inside.entry_id + 1
    assert last_readable(log) == after.position.plus(1)


def test_border_of_ledgers_leads_back_to_the_ledger_before(log: Log) -> None:
    """Let the bound be entry 0 of a ledger, at the log's end and before an open transaction."""
    log.create_topic("orders", ledger_max_entries=2)
    producer = log.producer("orders")
    ids = send_each(producer, [b"a", b"b"])
    assert log.stats("orders").partitions[0].last_stable.entry_id == 0
    assert last_readable(log) == ids[-1].position

    transaction = log.begin_transaction()
    [first] = send_each(producer, [b"c"], txn=transaction)
    assert first.entry_id == 0
    send_each(producer, [b"d", b"e"])
    assert last_readable(log) == ids[-1].position
    transaction.abort()
    assert last_readable(log) == Position(first.ledger_id + 1, 1)  # the marker, behind "e"
