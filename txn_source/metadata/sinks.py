"""What jobs wrote: files first, then everything is registered and committed in one database transaction.

A batch job is known by its request, which is answered as the first time for an hour. A streaming query is known by its
id for good: a batch at or below the last one that was committed has been committed, and is never registered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, insert, select, update

from txn_source.metadata import producers, topics, transactions
from txn_source.metadata.producers import NewEntry, OpenedProducer
from txn_source.metadata.tables import producers as producer_rows
from txn_source.metadata.tables import sink_producers, sinks
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import EndReason

_TIMEOUT_MS = 60_000  # of a transaction that ends where it began


@dataclass(frozen=True, slots=True)
class TopicBatch:
    """What a job wrote to one topic; ``owner`` is the producer that a batch job with a transactional id began as."""

    topic: TopicName
    topic_id: int
    entries: tuple[NewEntry, ...]
    owner: OpenedProducer | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    """Who writes: ``query_id`` is a stream's, None for a batch job."""

    query_id: str | None
    batch_id: int
    producer_name: str
    transactional_id: str | None


def commit_batch(
    connection: Connection, sink: Sink, batches: Sequence[TopicBatch], now_us: int
) -> tuple[int | None, bool]:
    """Register and commit a batch; return its transaction (None: nothing to write) and if it is an old one.

    Raises:
        TopicNotFoundError: a topic was deleted after the job began, even if there is one of its name again.
        ProducerFencedError: another producer took over the transactional id.
    """
    if sink.query_id is not None and not _advance(connection, sink.query_id, sink.batch_id):
        return None, True
    for batch in batches:
        if topics.find(connection, batch.topic).topic_id != batch.topic_id:
            raise TopicNotFoundError(
                f"Topic {batch.topic.short!r} was deleted, and made again, after the job began to write to it.",
                "Run the job again.",
            )
    if not any(batch.entries for batch in batches):
        return None, False
    txn = transactions.begin(connection, _TIMEOUT_MS, now_us // 1000)
    for batch in batches:
        producer, sequence = _producer(connection, sink, batch, now_us)
        placed = []
        for entry in batch.entries:
            placed.append(replace(entry, base_sequence=sequence))
            sequence += entry.messages
        producers.append(connection, producer.producer_id, producer.epoch, txn, placed, now_us)
        if sink.query_id is not None:
            connection.execute(
                update(sink_producers)
                .where(sink_producers.c.query_id == sink.query_id, sink_producers.c.topic_id == batch.topic_id)
                .values(next_sequence=sequence)
            )
    transactions.end(connection, txn, commit=True, reason=EndReason.CLIENT, now_us=now_us)
    return txn, False


def _advance(connection: Connection, query_id: str, batch_id: int) -> bool:
    """Note a batch of a query; return False if it, or a later one, was committed before."""
    known = connection.execute(select(sinks.c.batch_id).where(sinks.c.query_id == query_id).with_for_update()).scalar()
    if known is None:
        connection.execute(insert(sinks).values(query_id=query_id, batch_id=batch_id))
        return True
    if batch_id <= known:
        return False
    connection.execute(update(sinks).where(sinks.c.query_id == query_id).values(batch_id=batch_id))
    return True


def _producer(connection: Connection, sink: Sink, batch: TopicBatch, now_us: int) -> tuple[OpenedProducer, int]:
    """Return who writes to a topic, and the sequence to go on from.

    A query stays the same producer, also over restarts, as long as its transactional id is the same: so a query that
    was fenced is refused until it is given another one.
    """
    if batch.owner is not None:
        return batch.owner, 0
    if sink.query_id is None:
        return _open(connection, sink, batch, now_us), 0
    mine = (sink_producers.c.query_id == sink.query_id, sink_producers.c.topic_id == batch.topic_id)
    known = select(sink_producers, producer_rows.c.transactional_id).join(
        producer_rows, producer_rows.c.producer_id == sink_producers.c.producer_id
    )
    row = connection.execute(known.where(*mine)).first()
    if row is not None and row.transactional_id == sink.transactional_id:
        return OpenedProducer(row.producer_id, row.epoch, sink.producer_name), int(row.next_sequence)
    opened = _open(connection, sink, batch, now_us)
    values = {"producer_id": opened.producer_id, "epoch": opened.epoch, "next_sequence": 0}
    if row is not None:
        connection.execute(update(sink_producers).where(*mine).values(values))
    else:
        new = {"query_id": sink.query_id, "topic_id": batch.topic_id, **values}
        connection.execute(insert(sink_producers).values(new))
    return opened, 0


def _open(connection: Connection, sink: Sink, batch: TopicBatch, now_us: int) -> OpenedProducer:
    return producers.open_producer(connection, batch.topic_id, sink.transactional_id, sink.producer_name, now_us)
