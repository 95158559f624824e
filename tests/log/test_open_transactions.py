"""What operators see of transactions: which are open, since when, and what each holds back."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, rows, send_each, values
from txn_source import InvalidArgumentError, Log, Position, TopicNotFoundError, TxnId
from txn_source.model.position import PositionRange
from txn_source.model.topic_name import TopicName


def test_what_each_transaction_holds_back_is_what_a_count_finds(log: Log) -> None:
    """Write at random to two topics, under five transactions and plain, over rolls; then count entry by entry."""
    random_source = random.Random(7)
    topics = {"orders": 2, "bills": 3}
    for topic, partitions in topics.items():
        log.create_topic(topic, partitions=partitions, ledger_max_entries=4)
    producers = {topic: log.producer(topic) for topic in topics}
    transactions = [log.begin_transaction() for _ in range(5)]
    for step in range(60):
        topic = random_source.choice(list(topics))
        messages = [b"x" * random_source.randrange(50)] * random_source.randrange(1, 4)
        partition = random_source.randrange(topics[topic])
        txn = random_source.choice([None, *transactions])
        for message in messages:
            producers[topic].send(message, partition=partition, txn=txn)
        producers[topic].flush()
        if step == 30:
            transactions.pop(1).commit()
            transactions.pop(0).abort()
    assert {t.id for t in log.transactions()} == {t.id for t in transactions}

    for topic in topics:
        messages = rows(log, topic, UNCOMMITTED, ["__partition", "__ledger_id", "__entry_id", "__txn_id"])
        for partition in log.stats(topic).partitions:
            here = [(Position(r["__ledger_id"], r["__entry_id"]), r["__txn_id"]) for r in messages
                    if r["__partition"] == partition.partition]  # fmt: skip
            open_here = {str(t.id) for t in transactions} & {txn for _, txn in here}
            assert {str(t.id) for t in partition.ongoing_transactions} == open_here
            assert open_here
            for ongoing in partition.ongoing_transactions:
                first = min(at for at, txn in here if txn == str(ongoing.id))
                assert ongoing.first_position == first
                assert ongoing.messages_held_back == sum(at >= first for at, _ in here)
                assert ongoing.bytes_held_back == stored_bytes(log, topic, partition.partition, first)


def stored_bytes(log: Log, topic: str, partition: int, first: Position) -> int:
    """Add up the lengths of all entries at or above a position."""
    [view] = log.metadata.get_view([TopicName.parse(topic)]).topics
    of = PositionRange(first, view.partitions[partition].bounds.log_end)
    pages = log.metadata.list_entries(view.partitions[partition].partition_id, of)
    return sum(sum(page.entries["length"].to_pylist()) for page in pages)


def test_append_of_several_entries_holds_back_from_the_first_of_them(log: Log) -> None:
    """Flush three entries of one transaction at once, behind a plain one."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    send_each(producer, [b"plain"])
    properties = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
    transaction = log.begin_transaction()
    producer.send(b"x", txn=transaction)
    producer.send_batch(pa.record_batch({"value": [b"y"], "__properties": properties}), txn=transaction)
    producer.send(b"z", txn=transaction)
    first, _, last = producer.flush()
    assert last.entry_id == first.entry_id + 2
    [ongoing] = log.stats("orders").ongoing_transactions
    assert (ongoing.first_position, ongoing.messages_held_back) == (first.position, 3)
    assert values(log, "orders") == [b"plain"]
    transaction.abort()
    assert values(log, "orders") == [b"plain"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_ended_transaction_holds_nothing_back(log: Log, end: str) -> None:
    """End a transaction and look at what is left of it: where it wrote, how much, and its marker."""
    log.create_topic("orders")
    producer = log.producer("orders")
    transaction = log.begin_transaction()
    send_each(producer, [b"a", b"b"], txn=transaction)
    send_each(producer, [b"plain"])
    getattr(transaction, end)()
    found = log.transaction(transaction.id)
    assert (found.held_back_messages, found.held_back_bytes) == (0, 0)
    [place] = found.partitions
    assert (place.messages, place.first_position.entry_id, place.marker_position.entry_id) == (2, 0, 3)
    assert log.stats("orders").ongoing_transactions == ()


def test_transactions_are_listed_by_state_and_topic_newest_first(log: Log) -> None:
    """Leave transactions in each state on two topics and one on none."""
    ids = []
    for topic in ("orders", "bills"):
        log.create_topic(topic)
        producer = log.producer(topic)
        for end in ("commit", "abort", None):
            transaction = log.begin_transaction()
            send_each(producer, [b"x"], txn=transaction)
            if end:
                getattr(transaction, end)()
            ids.append(transaction.id)
    ids.append(log.begin_transaction().id)

    def listed(**which: Any) -> list[TxnId]:
        return [t.id for t in log.transactions(**which)]

    assert listed(state=None) == ids[::-1]
    assert listed() == [ids[6], ids[5], ids[2]]
    assert listed(state="Committed") == [ids[3], ids[0]]
    assert listed(state="aborted", topic="orders") == [ids[1]]
    assert listed(state=None, topic="bills") == [ids[5], ids[4], ids[3]]
    with pytest.raises(InvalidArgumentError, match="open, committed or aborted"):
        listed(state="dirty")
    with pytest.raises(TopicNotFoundError):
        listed(topic="none")
