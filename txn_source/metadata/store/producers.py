"""Producers in the database: opening with fencing, and registering what they wrote."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from txn_source.metadata.store import transactions
from txn_source.metadata.store.partition_tail import Tail
from txn_source.metadata.store.segments import JOB
from txn_source.metadata.store.segments import register as registered
from txn_source.metadata.store.tables import entries, producers, segments, transaction_partitions, transaction_producers
from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.errors import InvalidArgumentError, ProducerFencedError, TopicNotFoundError
from txn_source.model.kinds import DATA, OPEN
from txn_source.model.position import Position
from txn_source.model.transaction import EndReason
from txn_source.model.units import MAX_TOTAL


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
    connection: Connection,
    producer_id: int,
    epoch: int,
    txn: int | None,
    new: Sequence[NewEntry],
    now_us: int,
    *,
    of_job: bool = False,
) -> list[Position]:
    """Give entries their positions, all of them or none; a repeated append returns the first one's positions.

    A transaction is registered on a partition here, in the same step as its first entry. ``of_job``: the files are
    those of a job, which had no producer yet when it wrote them.
    """
    producer = _check_producer(connection, producer_id, epoch)
    topic_id = int(producer.topic_id)
    if not new:
        return []
    if (stored := _stored_before(connection, producer, new)) is not None:
        _check_same(connection, txn, new, stored, any_txn=of_job)  # a job's is a new one with each commit
        return [Position.from_key(stored[entry.base_sequence].position) for entry in new]
    if txn is not None:
        transactions.check_open(connection, txn)
    by_partition: dict[int, list[int]] = defaultdict(list)
    for index, entry in enumerate(new):
        by_partition[entry.partition_id].append(index)
    of_path = registered(connection, topic_id, JOB if of_job else producer_id, new)
    positions: dict[int, Position] = {}
    for partition_id in sorted(by_partition):  # always in this order: no deadlocks
        indexes = by_partition[partition_id]
        tail = Tail.load(connection, partition_id, now_us, topic_id)
        _check_room(tail, [new[i] for i in indexes])
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
    if epoch != row.epoch:
        raise InvalidArgumentError(
            f"Producer {producer_id} has epoch {row.epoch}, not {epoch}.", "Use the one that it was opened with."
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


def _stored_before(
    connection: Connection, producer: Row[Any], new: Sequence[NewEntry]
) -> Mapping[int, Row[Any]] | None:
    """Return what is stored under the sequences of entries, by sequence; None if nothing is.

    Raises:
        InvalidArgumentError: something is, but not under all of them, or they cut stored entries.
    """
    ordered = sorted(new, key=lambda entry: entry.base_sequence) if len(new) > 1 else new
    twice = next((b for a, b in pairwise(ordered) if a.base_sequence + a.messages > b.base_sequence), None)
    if twice is not None:
        raise InvalidArgumentError(
            f"Sequence {twice.base_sequence} of this producer is in the append more than once.",
            "Let each entry's sequences begin behind those of the one before.",
        )
    lowest, end = ordered[0].base_sequence, ordered[-1].base_sequence + ordered[-1].messages
    of = {"producer_id": producer.producer_id, "lowest": lowest, "end": end, "most": len(new) + 2}
    found = {row.base_sequence: row for row in connection.execute(_STORED, of)}
    first = min(found, default=lowest)
    if first < lowest and first + found.pop(first).messages > lowest:
        raise InvalidArgumentError(
            f"Sequence {lowest} of this producer lies inside a stored entry, which begins at {first}.",
            "Repeat an append with exactly the entries of the first try, or use new sequences.",
        )
    missing = [entry.base_sequence for entry in ordered if entry.base_sequence not in found]
    if missing and missing[0] <= producer.purged_sequence:
        raise InvalidArgumentError(
            f"The sequences {lowest} to {end - 1} of this producer were stored so long ago that neither their"
            " positions nor what they were are known any more.",
            "If this repeats an append that was stored, nothing is lost: don't send it again.",
        )
    if not found:
        return None
    if missing or len(found) != len(new):
        raise InvalidArgumentError(
            f"Only some of the sequences {lowest} to {end - 1} of this producer are stored already.",
            "Repeat an append with exactly the entries of the first try, or use new sequences.",
        )
    return found


def _check_same(
    connection: Connection, txn: int | None, new: Sequence[NewEntry], found: Mapping[int, Row[Any]], *, any_txn: bool
) -> None:
    """Raise INVALID_ARGUMENT unless entries are what is stored under their sequences."""
    ids = {row.segment_id for row in found.values()}
    paths = {row.segment_id: row.path for row in connection.execute(_PATHS, {"ids": list(ids)})}
    for entry in new:
        row = found[entry.base_sequence]
        stored = {
            "transaction": txn if any_txn else row.txn,
            "partition": row.partition_id,
            "segment": paths.get(row.segment_id),
            "offset": row.offset,
            "length": row.length,
            "checksum": row.crc32c,
            "messages": row.messages,
        }
        came = (txn, entry.partition_id, entry.segment, entry.offset, entry.length, entry.crc32c, entry.messages)
        other = [name for name, value in zip(stored, came, strict=True) if stored[name] != value]
        if other:
            raise InvalidArgumentError(
                f"Sequence {entry.base_sequence} of this producer is stored already, with other content: another"
                f" {', '.join(other)}.",
                "Repeat an append with exactly the entries of the first try, or use new sequences.",
            )


def _check_room(tail: Tail, new: Sequence[NewEntry]) -> None:
    """Raise INVALID_ARGUMENT if a partition's totals would leave their bounds; no real one comes near."""
    for name, before, more in (
        ("bytes", tail.bytes_before + tail.bytes, sum(entry.length for entry in new)),
        ("messages", tail.messages_before + tail.messages, sum(entry.messages for entry in new)),
    ):
        if before + more > MAX_TOTAL:
            raise InvalidArgumentError(
                f"Partition id {tail.partition_id} has {before} {name}, and {more} more are too many.",
                f"A partition takes {MAX_TOTAL} at most.",
            )


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
_BEFORE = (
    select(func.max(entries.c.base_sequence))
    .where(entries.c.producer_id == bindparam("producer_id"), entries.c.base_sequence < bindparam("lowest"))
    .scalar_subquery()
)
_STORED = (  # and the one before: it may reach into them
    select(entries)
    .where(
        entries.c.producer_id == bindparam("producer_id"),
        entries.c.base_sequence >= func.coalesce(_BEFORE, bindparam("lowest")),
        entries.c.base_sequence < bindparam("end"),
    )
    .order_by(entries.c.base_sequence)
    .limit(bindparam("most"))
)
_PATHS = select(segments.c.segment_id, segments.c.path).where(
    segments.c.segment_id.in_(bindparam("ids", expanding=True))
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
