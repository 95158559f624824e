"""Changes of topics and their partitions in the database."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update

from txn_source.metadata.store import topics as known
from txn_source.metadata.store.dialects import may_take_long
from txn_source.metadata.store.inserts import Insert
from txn_source.metadata.store.partition_tail import NewLedger, Tail, open_ledgers
from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.tables import doomed_files, ledgers, partitions, topics
from txn_source.model.errors import InvalidArgumentError, TopicExistsError, TopicNotFoundError
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.position import Position
from txn_source.model.topic import Topic
from txn_source.model.topic_name import TopicName
from txn_source.storage.segment import topic_prefix

MAX_PARTITIONS = 10_000
_STILL_WRITTEN_MS = 24 * 3600 * 1000


def create(
    connection: Connection, name: TopicName, count: int, schema: bytes | None, limits: LedgerLimits, now_ms: int
) -> Topic:
    """Insert a topic with an open ledger on each partition, and return it."""
    check_count(count)
    if name.split_partition() is not None:
        raise InvalidArgumentError(
            f"The name {name.short!r} has the form of one partition's.", 'Use a name without "-partition-N" at its end.'
        )
    if _NAMED.rows(connection, {"name": str(name)}):
        raise TopicExistsError(f"Topic {name.short!r} already exists.", "Use it, or choose another name.")
    row = {"name": str(name), "schema": schema, "ledger_max_entries": limits.max_entries, "created_at_ms": now_ms}
    row |= {"ledger_max_bytes": limits.max_bytes, "ledger_max_age_ms": limits.max_age_ms}
    [(topic_id,)] = _INSERT_TOPIC.rows(connection, [row])
    create_partitions(connection, topic_id, range(count), now_ms)
    return known.find(connection, name)


def check_count(count: int) -> None:
    """Raise INVALID_ARGUMENT unless a topic can have so many partitions."""
    if not 1 <= count <= MAX_PARTITIONS:
        raise InvalidArgumentError(f"A topic can't have {count} partitions.", f"Use 1 to {MAX_PARTITIONS}.")


def remove(connection: Connection, topic_id: int, now_ms: int) -> None:
    """Delete a topic with all that belongs to it, in one statement: so nobody sees half of it.

    Its segments are doomed as a whole, for a day: who writes to it hears of its end with the next registration.
    """
    may_take_long(connection)
    connection.execute(
        insert(doomed_files).values(uri=topic_prefix(topic_id), forget_after_ms=now_ms + _STILL_WRITTEN_MS)
    )
    connection.execute(delete(topics).where(topics.c.topic_id == topic_id))


def roll(connection: Connection, name: TopicName, index: int | None, now_us: int) -> list[int]:
    """Close the open ledgers of a topic, or of one partition; return the ids of those that weren't empty."""
    topic = known.find(connection, name)
    wanted = select(partitions).where(partitions.c.topic_id == topic.topic_id).order_by(partitions.c.partition_index)
    rows = connection.execute(wanted).all()
    if index is not None:
        if not 0 <= index < len(rows):
            raise TopicNotFoundError(
                f"Topic {name.short!r} has no partition {index}.", f"Its partitions are 0 to {len(rows) - 1}."
            )
        rows = [rows[index]]
    closed = []
    tails = Tail.load_all(connection, [row.partition_id for row in rows], now_us)
    for row in rows:
        tail = tails[row.partition_id]
        if tail.ledger_id != row.open_ledger_id:  # was too old and has just been rolled
            closed.append(row.open_ledger_id)
        elif (ledger_id := tail.roll(connection)) is not None:
            closed.append(ledger_id)
    Tail.store_all(connection, list(tails.values()))
    for tail in tails.values():
        tail.seal(connection)
    return closed


def idle(connection: Connection, topic_id: int, now_ms: int, closed_before_ms: int | None = None) -> list[int]:
    """Return the partitions whose open ledger is too old, or has its last message from before a time: nobody has
    written since, or it would have been closed."""
    age = topics.c.ledger_max_age_ms
    is_old = ledgers.c.created_at_ms <= now_ms - age
    if closed_before_ms is not None:
        is_old = or_(is_old, ledgers.c.last_publish_time_us < closed_before_ms * 1000)
    query = (
        select(partitions.c.partition_id)
        .join(ledgers, ledgers.c.ledger_id == partitions.c.open_ledger_id)
        .join(topics, topics.c.topic_id == partitions.c.topic_id)
        .where(partitions.c.topic_id == topic_id, ledgers.c.entries > 0, is_old)
        .order_by(partitions.c.partition_id)
    )
    return list(connection.execute(query).scalars())


def close_idle(connection: Connection, topic_id: int, now_us: int, closed_before_ms: int | None = None) -> None:
    """Close what ``idle`` finds; ages count from the last messages."""
    tails = Tail.load_all(connection, idle(connection, topic_id, now_us // 1000, closed_before_ms), now_us)
    for tail in tails.values():
        if tail.entries:  # else it was too old, and has just been closed
            tail.roll(connection, late=True)
    Tail.store_all(connection, list(tails.values()))
    for tail in tails.values():
        tail.seal(connection)


def create_partitions(connection: Connection, topic_id: int, indexes: Iterable[int], now_ms: int) -> None:
    """Insert partitions, each with an open ledger."""
    rows = [{"topic_id": topic_id, "partition_index": index, **_EMPTY} for index in indexes]
    made = sorted(_INSERT.rows(connection, rows))
    opened = open_ledgers(connection, [NewLedger(partition_id) for _, partition_id in made], now_ms)
    _BEGIN.run_many(
        connection,
        [
            {"of_partition": partition_id, "log_start": Position(ledger_id, 0).key, "ledger_id": ledger_id}
            for partition_id, ledger_id in opened.items()
        ],
    )


# Compiled once: a topic may have thousands of partitions.
_EMPTY = dict.fromkeys(
    ("log_start", "trimmed_end", "open_ledger_id", "messages_trimmed", "bytes_trimmed", "last_publish_time_us"), 0
)
_NAMED = Prepared("SELECT topic_id FROM topics WHERE name = :name")
_INSERT_TOPIC = Insert(
    topics,
    ("name", "schema", "ledger_max_entries", "ledger_max_bytes", "ledger_max_age_ms", "created_at_ms"),
    ("topic_id",),
)
_INSERT = Insert(partitions, ("topic_id", "partition_index", *_EMPTY), ("partition_index", "partition_id"))
_BEGIN = Prepared(
    update(partitions)
    .where(partitions.c.partition_id == bindparam("of_partition"))
    .values(log_start=bindparam("log_start"), open_ledger_id=bindparam("ledger_id"))
)
