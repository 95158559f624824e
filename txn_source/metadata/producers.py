"""Producers in the database: opening with fencing, and registering what they wrote."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from txn_source.metadata import transactions
from txn_source.metadata.ledgers import Tail
from txn_source.metadata.tables import (
    DATA,
    OPEN,
    entries,
    producers,
    segments,
    transaction_partitions,
    transaction_producers,
)
from txn_source.model.errors import InvalidArgumentError, ProducerFencedError, StaleSegmentError, TopicNotFoundError
from txn_source.model.position import MAX_LEDGER_ID, Position
from txn_source.model.transaction import EndReason


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry whose bytes are written and synced, and that has no position yet."""

    partition_id: int
    base_sequence: int
    messages: int
    segment: str
    offset: int
    length: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class OpenedProducer:
    """A producer's identity: the epoch tells it from an older one of the same transactional id."""

    producer_id: int
    epoch: int
    name: str


def open_producer(
    connection: Connection, topic_id: int, transactional_id: str | None, name: str | None, now_us: int
) -> OpenedProducer:
    """Register a producer of a topic.

    With a transactional id that is known already it gets the next epoch, which fences the older producer, and the
    transactions that the older one left open are aborted. It is a producer of its own: its sequences begin anew, and
    what the older one stored keeps that one's name.
    """
    if transactional_id == "":
        raise InvalidArgumentError("The transactional id is empty.", "Give it a name, or leave it out.")
    name = name or transactional_id or f"producer-{uuid.uuid4().hex[:12]}"
    epoch = 0
    if transactional_id is not None:
        older = _newest(connection, topic_id, transactional_id)
        if older is not None:
            for txn in transactions.open_of_producer(connection, older.producer_id):
                transactions.end(connection, txn, commit=False, reason=EndReason.FENCED, now_us=now_us)
            epoch = older.epoch + 1
    values = {"topic_id": topic_id, "name": name, "transactional_id": transactional_id, "epoch": epoch}
    key = connection.execute(insert(producers).values(values)).inserted_primary_key
    assert key is not None
    return OpenedProducer(int(key[0]), epoch, name)


def append(
    connection: Connection, producer_id: int, epoch: int, txn: int | None, new: Sequence[NewEntry], now_us: int
) -> list[Position]:
    """Give entries their positions, all of them or none; a repeated append returns the first one's positions.

    A transaction is registered on a partition here, in the same step as its first entry.
    """
    producer = _check_producer(connection, producer_id, epoch)
    topic_id = int(producer.topic_id)
    if not new:
        return []
    if (stored := _stored_before(connection, producer, new)) is not None:
        return stored
    if txn is not None:
        transactions.check_open(connection, txn)
    by_partition: dict[int, list[int]] = defaultdict(list)
    for index, entry in enumerate(new):
        by_partition[entry.partition_id].append(index)
    of_path = _segments(connection, topic_id, new)
    positions: dict[int, Position] = {}
    for partition_id in sorted(by_partition):  # always in this order: no deadlocks
        indexes = by_partition[partition_id]
        tail = Tail.load(connection, partition_id, now_us, topic_id)
        for index in indexes:
            entry = new[index]
            positions[index] = tail.place(
                connection,
                DATA,
                entry.messages,
                entry.length,
                txn=txn,
                producer_id=producer_id,
                base_sequence=entry.base_sequence,
                segment_id=of_path[entry.segment].segment_id,
                offset=entry.offset,
                crc32c=entry.crc32c,
            )
        tail.store(connection)
        tail.seal(connection)
        for index in indexes:
            of_path[new[index].segment].reach(connection, positions[index].ledger_id)
        if txn is not None:
            written = [new[i] for i in indexes]
            _trace(connection, txn, partition_id, positions[indexes[0]], positions[indexes[-1]], written)
    if txn is not None:
        _join(connection, txn, producer_id)
    return [positions[i] for i in range(len(new))]


def _check_producer(connection: Connection, producer_id: int, epoch: int) -> Row[Any]:
    row = connection.execute(_PRODUCER, {"producer_id": producer_id}).first()
    if row is None:
        raise TopicNotFoundError(
            "The topic that this producer writes to was deleted.", "Open a new producer on a topic that exists."
        )
    if row.transactional_id is not None:
        newest = _newest(connection, row.topic_id, row.transactional_id)
        if newest is not None and epoch < newest.epoch:
            raise ProducerFencedError(
                f"A newer producer with transactional id {row.transactional_id!r} has taken over"
                f" (its epoch is {newest.epoch}, this one's {epoch}).",
                "Close this producer; only the newest one with that id may write.",
            )
    return row


def _newest(connection: Connection, topic_id: int, transactional_id: str) -> Row[Any] | None:
    """Return the producer that holds a transactional id, locked; ids are per topic."""
    query = select(producers).where(producers.c.topic_id == topic_id, producers.c.transactional_id == transactional_id)
    return connection.execute(query.order_by(producers.c.epoch.desc()).limit(1).with_for_update()).first()


def _stored_before(connection: Connection, producer: Row[Any], new: Sequence[NewEntry]) -> list[Position] | None:
    sequences = [entry.base_sequence for entry in new]
    found = connection.execute(
        _STORED, {"producer_id": producer.producer_id, "lowest": min(sequences), "highest": max(sequences)}
    ).all()
    if not found:
        if min(sequences) <= producer.purged_sequence:
            raise InvalidArgumentError(
                f"The sequences {min(sequences)} to {max(sequences)} of this producer were stored so long ago that"
                " their positions are no longer known.",
                "Nothing is lost: don't send them again.",
            )
        return None
    known: dict[int, int] = {row.base_sequence: row.position for row in found}
    if not all(sequence in known for sequence in sequences):
        raise InvalidArgumentError(
            f"Only some of the sequences {min(sequences)} to {max(sequences)} of this producer are stored already.",
            "Repeat an append with exactly the entries of the first try, or use new sequences.",
        )
    return [Position.from_key(known[sequence]) for sequence in sequences]


@dataclass(slots=True)
class _Segment:
    """A registered segment, and the ledgers that its entries lie in."""

    segment_id: int
    first_ledger_id: int
    last_ledger_id: int

    def reach(self, connection: Connection, ledger_id: int) -> None:
        """Note that an entry lies in a ledger; a partition's ledgers only go up."""
        if ledger_id != self.last_ledger_id:
            self.first_ledger_id = min(self.first_ledger_id, ledger_id)
            self.last_ledger_id = ledger_id
            row = {"id": self.segment_id, "first": self.first_ledger_id, "last": self.last_ledger_id}
            connection.execute(_REACH, row)


def _segments(connection: Connection, topic_id: int, new: Sequence[NewEntry]) -> dict[str, _Segment]:
    first_of = {entry.segment: entry for entry in reversed(new)}
    found: dict[str, _Segment] = {}
    for row in connection.execute(_SEGMENTS, {"paths": sorted(first_of)}):
        if row.deleted:
            raise StaleSegmentError(
                f"Segment {row.path} was deleted after its ledgers had been offloaded or trimmed.",
                "Write the messages to a new segment; none of them was registered.",
            )
        found[row.path] = _Segment(row.segment_id, row.first_ledger_id, row.last_ledger_id)
    for path in sorted(first_of.keys() - found.keys()):
        values = {"topic_id": topic_id, "path": path, "partition_id": first_of[path].partition_id}
        values |= {"first_ledger_id": MAX_LEDGER_ID, "last_ledger_id": 0}  # until its first entry has a place
        key = connection.execute(insert(segments).values(values)).inserted_primary_key
        assert key is not None
        found[path] = _Segment(int(key[0]), MAX_LEDGER_ID, 0)
    return found


def _trace(
    connection: Connection, txn: int, partition_id: int, first: Position, last: Position, written: list[NewEntry]
) -> None:
    messages = sum(entry.messages for entry in written)
    size = sum(entry.length for entry in written)
    key = {"of_txn": txn, "of_partition": partition_id}
    more = {"last": last.key, "more_messages": messages, "more_bytes": size}
    if connection.execute(_ADD_TO_TRACE, key | more).rowcount == 0:
        row = {"txn": txn, "partition_id": partition_id, "state": OPEN, "first_position": first.key}
        row |= {"last_position": last.key, "messages": messages, "bytes": size}
        connection.execute(insert(transaction_partitions), row)


def _join(connection: Connection, txn: int, producer_id: int) -> None:
    row = {"txn": txn, "producer_id": producer_id}
    if connection.execute(_JOINED, row).first() is None:
        connection.execute(insert(transaction_producers), row)


# Built once: for statements as short as these, building one costs as much as running it.
_PRODUCER = select(producers).where(producers.c.producer_id == bindparam("producer_id"))
_STORED = select(entries.c.base_sequence, entries.c.position).where(
    entries.c.producer_id == bindparam("producer_id"),
    entries.c.base_sequence.between(bindparam("lowest"), bindparam("highest")),
)
_SEGMENTS = select(segments).where(segments.c.path.in_(bindparam("paths", expanding=True)))
_REACH = (
    update(segments)
    .where(segments.c.segment_id == bindparam("id"))
    .values(first_ledger_id=bindparam("first"), last_ledger_id=bindparam("last"))
)
_ADD_TO_TRACE = (
    update(transaction_partitions)
    .where(
        transaction_partitions.c.txn == bindparam("of_txn"),
        transaction_partitions.c.partition_id == bindparam("of_partition"),
    )
    .values(
        last_position=bindparam("last"),
        messages=transaction_partitions.c.messages + bindparam("more_messages"),
        bytes=transaction_partitions.c.bytes + bindparam("more_bytes"),
    )
)
_JOINED = select(transaction_producers.c.txn).where(
    transaction_producers.c.txn == bindparam("txn"), transaction_producers.c.producer_id == bindparam("producer_id")
)
