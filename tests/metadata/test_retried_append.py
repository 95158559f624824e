"""An append that is repeated, because its answer was lost, stores nothing twice and answers as the first time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.log.reading import UNCOMMITTED, values
from txn_source import InvalidArgumentError, Log, Position, TransactionEndedError, TxnId
from txn_source.model.entry import NewEntry
from txn_source.model.topic_name import TopicName
from txn_source.storage.schema import RAW_SCHEMA
from txn_source.storage.segment import SegmentWriter, segment_path


class Writer:
    """A producer taken apart: ``write`` makes an entry's bytes safe, ``append`` registers entries."""

    def __init__(self, log: Log, topic: str) -> None:
        self.log = log
        self.identity, self.view = log.metadata.open_producer(TopicName.parse(topic), None, None)
        self._segments: dict[int, SegmentWriter] = {}

    def write(self, sequence: int, value: bytes, partition: int = 0) -> NewEntry:
        """Write and sync the bytes of one message."""
        if partition not in self._segments:
            path = segment_path(self.view.topic.topic_id, partition, 0, self.identity.producer_id)
            self._segments[partition] = SegmentWriter(self.log.root, path, RAW_SCHEMA)
        segment = self._segments[partition]
        stored = segment.append(pa.record_batch([pa.array([None], pa.binary()), pa.array([value])], RAW_SCHEMA))
        segment.sync()
        partition_id = self.view.partitions[partition].partition_id
        return NewEntry(partition_id, sequence, 1, segment.path, stored.offset, stored.length, stored.crc32c)

    def append(self, entries: Sequence[NewEntry], txn: TxnId | None = None) -> list[Position]:
        """Register entries, and again if called again."""
        return self.log.metadata.append(self.identity, txn, entries).positions


def test_repeated_append_returns_the_first_positions(log: Log) -> None:
    """Append two entries over two partitions twice, then the next ones."""
    log.create_topic("orders", partitions=2)
    writer = Writer(log, "orders")
    entries = [writer.write(0, b"a", 0), writer.write(1, b"b", 1)]
    first = writer.append(entries)
    before = log.stats("orders")
    assert writer.append(entries) == first
    assert log.stats("orders") == before
    writer.append([writer.write(2, b"c", 0)])
    assert writer.append(entries) == first
    assert values(log, "orders") == [b"a", b"c", b"b"]


def test_repeated_append_in_a_transaction_counts_once(log: Log) -> None:
    """Repeat an append under a transaction: what it holds back is counted once."""
    log.create_topic("orders")
    writer = Writer(log, "orders")
    transaction = log.begin_transaction()
    entries = [writer.write(0, b"a")]
    for _ in range(3):
        writer.append(entries, transaction.id)
    [held] = log.stats("orders").ongoing_transactions
    assert (held.messages_held_back, held.bytes_held_back) == (1, entries[0].length)
    transaction.commit()
    assert values(log, "orders") == [b"a"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_repeated_append_is_answered_after_the_end_of_its_transaction(log: Log, end: str) -> None:
    """Repeat an append late: it is answered, since it was stored, and a new one is refused."""
    log.create_topic("orders")
    writer = Writer(log, "orders")
    transaction = log.begin_transaction()
    entries = [writer.write(0, b"a")]
    first = writer.append(entries, transaction.id)
    getattr(transaction, end)()
    assert writer.append(entries, transaction.id) == first
    with pytest.raises(TransactionEndedError):
        writer.append([writer.write(1, b"b")], transaction.id)
    assert values(log, "orders", UNCOMMITTED) == [b"a"]


def test_refused_append_leaves_no_part(log: Log) -> None:
    """Append to a partition of this topic and one of another: nothing is stored on either, and nothing is held back."""
    log.create_topic("orders")
    log.create_topic("bills")
    orders, bills = Writer(log, "orders"), Writer(log, "bills")
    transaction = log.begin_transaction()
    with pytest.raises(InvalidArgumentError, match=r"producer's own topic"):
        orders.append([orders.write(0, b"a"), bills.write(1, b"b")], transaction.id)
    assert values(log, "orders", UNCOMMITTED) == values(log, "bills", UNCOMMITTED) == []
    assert log.stats("orders").ongoing_transactions == ()
    orders.append([orders.write(0, b"a")])
    assert values(log, "orders") == [b"a"]


def test_append_of_nothing_changes_nothing(log: Log) -> None:
    """Append no entries under a transaction: it stays without a trace."""
    log.create_topic("orders")
    before = log.stats("orders")
    transaction = log.begin_transaction()
    assert Writer(log, "orders").append([], transaction.id) == []
    transaction.commit()
    assert log.stats("orders") == before
    assert log.transaction(transaction.id).partitions == ()
