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
from txn_source.model.errors import InvalidArgumentError, ProducerFencedError, TopicNotFoundError
from txn_source.model.position import Position
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
    topic_id = _check_producer(connection, producer_id, epoch)
    if not new:
        return []
    if (stored := _stored_before(connection, producer_id, new)) is not None:
        return stored
    if txn is not None:
        transactions.check_open(connection, txn)
    by_partition: dict[int, list[int]] = defaultdict(list)
    for index, entry in enumerate(new):
        by_partition[entry.partition_id].append(index)
    segment_ids = _segment_ids(connection, topic_id, {entry.segment for entry in new})
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
                segment_id=segment_ids[entry.segment],
                offset=entry.offset,
                crc32c=entry.crc32c,
            )
        tail.store(connection)
        tail.seal(connection)
        if txn is not None:
            written = [new[i] for i in indexes]
            _trace(connection, txn, partition_id, positions[indexes[0]], written)
    if txn is not None:
        _join(connection, txn, producer_id)
    return [positions[i] for i in range(len(new))]


def _check_producer(connection: Connection, producer_id: int, epoch: int) -> int:
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
    return int(row.topic_id)


def _newest(connection: Connection, topic_id: int, transactional_id: str) -> Row[Any] | None:
    """Return the producer that holds a transactional id, locked; ids are per topic."""
    query = select(producers).where(producers.c.topic_id == topic_id, producers.c.transactional_id == transactional_id)
    return connection.execute(query.order_by(producers.c.epoch.desc()).limit(1).with_for_update()).first()


def _stored_before(connection: Connection, producer_id: int, new: Sequence[NewEntry]) -> list[Position] | None:
    sequences = [entry.base_sequence for entry in new]
    found = connection.execute(
        _STORED, {"producer_id": producer_id, "lowest": min(sequences), "highest": max(sequences)}
    ).all()
    if not found:
        return None
    known: dict[int, int] = {row.base_sequence: row.position for row in found}
    if not all(sequence in known for sequence in sequences):
        raise InvalidArgumentError(
            f"Only some of the sequences {min(sequences)} to {max(sequences)} of this producer are stored already.",
            "Repeat an append with exactly the entries of the first try, or use new sequences.",
        )
    return [Position.from_key(known[sequence]) for sequence in sequences]


def _segment_ids(connection: Connection, topic_id: int, paths: set[str]) -> dict[str, int]:
    found = connection.execute(_SEGMENTS, {"paths": sorted(paths)})
    known: dict[str, int] = {row.path: row.segment_id for row in found}
    for path in sorted(paths - known.keys()):
        key = connection.execute(insert(segments).values(topic_id=topic_id, path=path)).inserted_primary_key
        assert key is not None
        known[path] = int(key[0])
    return known


def _trace(connection: Connection, txn: int, partition_id: int, first: Position, written: list[NewEntry]) -> None:
    messages = sum(entry.messages for entry in written)
    size = sum(entry.length for entry in written)
    key = {"of_txn": txn, "of_partition": partition_id}
    if connection.execute(_ADD_TO_TRACE, key | {"more_messages": messages, "more_bytes": size}).rowcount == 0:
        row = {"txn": txn, "partition_id": partition_id, "state": OPEN, "first_position": first.key}
        connection.execute(insert(transaction_partitions), row | {"messages": messages, "bytes": size})


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
_SEGMENTS = select(segments.c.path, segments.c.segment_id).where(
    segments.c.path.in_(bindparam("paths", expanding=True))
)
_ADD_TO_TRACE = (
    update(transaction_partitions)
    .where(
        transaction_partitions.c.txn == bindparam("of_txn"),
        transaction_partitions.c.partition_id == bindparam("of_partition"),
    )
    .values(
        messages=transaction_partitions.c.messages + bindparam("more_messages"),
        bytes=transaction_partitions.c.bytes + bindparam("more_bytes"),
    )
)
_JOINED = select(transaction_producers.c.txn).where(
    transaction_producers.c.txn == bindparam("txn"), transaction_producers.c.producer_id == bindparam("producer_id")
)
