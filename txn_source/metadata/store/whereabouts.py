"""Which topics ids belong to, and whose what they name is. Ids are never used again, so an answer stays true."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, cast, select
from sqlalchemy.types import String

from txn_source.metadata.store.owners import PRODUCER, TRANSACTION
from txn_source.metadata.store.tables import (
    copies,
    ledgers,
    owners,
    partitions,
    producers,
    subscriptions,
    topics,
    transaction_partitions,
    transactions,
)
from txn_source.model.topic_name import TopicName

_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where something belongs: its topics, and who made it, None: nobody is known."""

    topics: tuple[TopicName, ...]
    owner: str | None = None


def of_partitions(connection: Connection, ids: Iterable[int]) -> dict[int, Whereabouts]:
    """Return the topics of those of some partitions that there are."""
    query = select(partitions.c.partition_id, topics.c.name).join(topics, topics.c.topic_id == partitions.c.topic_id)
    return _found(connection, query, partitions.c.partition_id, ids)


def of_subscriptions(connection: Connection, ids: Iterable[int]) -> dict[int, Whereabouts]:
    """Return the topics of those of some subscriptions that there are."""
    id_ = subscriptions.c.subscription_id
    query = select(id_, topics.c.name).join(topics, topics.c.topic_id == subscriptions.c.topic_id)
    return _found(connection, query, id_, ids)


def of_copies(connection: Connection, ids: Iterable[int]) -> dict[int, Whereabouts]:
    """Return the topics of those of some tiered copies, complete or under way, that there are."""
    query = (
        select(copies.c.copy_id, topics.c.name)
        .join(ledgers, ledgers.c.ledger_id == copies.c.ledger_id)
        .join(partitions, partitions.c.partition_id == ledgers.c.partition_id)
        .join(topics, topics.c.topic_id == partitions.c.topic_id)
    )
    return _found(connection, query, copies.c.copy_id, ids)


def of_producers(connection: Connection, ids: Iterable[int]) -> dict[int, Whereabouts]:
    """Return the topics of those of some producers that there are, and whose they are."""
    id_ = producers.c.producer_id
    query = (
        select(id_, topics.c.name, owners.c.owner)
        .join(topics, topics.c.topic_id == producers.c.topic_id)
        .outerjoin(owners, (owners.c.kind == PRODUCER) & (owners.c.key == cast(id_, String)))
    )
    return _found(connection, query, id_, ids)


def owner_of_transactional_id(connection: Connection, topic: TopicName, transactional_id: str) -> str | None:
    """Return the owner of the newest producer with a transactional id; None: there is none, or nobody is known."""
    query = (
        select(owners.c.owner)
        .select_from(producers)
        .join(topics, topics.c.topic_id == producers.c.topic_id)
        .outerjoin(owners, (owners.c.kind == PRODUCER) & (owners.c.key == cast(producers.c.producer_id, String)))
        .where(topics.c.name == str(topic), producers.c.transactional_id == transactional_id)
        .order_by(producers.c.epoch.desc())
        .limit(1)
    )
    found: str | None = connection.execute(query).scalar()
    return found


def of_transactions(connection: Connection, ids: Iterable[int]) -> dict[int, Whereabouts]:
    """Return where those of some transactions that there are have written so far, and whose they are."""
    found: dict[int, Whereabouts] = {}
    for some in _portions(ids):
        whose = (
            select(transactions.c.txn, owners.c.owner)
            .outerjoin(owners, (owners.c.kind == TRANSACTION) & (owners.c.key == cast(transactions.c.txn, String)))
            .where(transactions.c.txn.in_(some))
        )
        written: dict[int, list[TopicName]] = {}
        for txn, name in connection.execute(_written(some)):
            written.setdefault(txn, []).append(TopicName.parse(name))
        for txn, owner in connection.execute(whose):
            found[txn] = Whereabouts(tuple(written.get(txn, ())), owner)
    return found


def _written(txns: Sequence[int]) -> Select[Any]:
    t = transaction_partitions.c
    return (
        select(t.txn, topics.c.name)
        .distinct()
        .join(partitions, partitions.c.partition_id == t.partition_id)
        .join(topics, topics.c.topic_id == partitions.c.topic_id)
        .where(t.txn.in_(txns))
    )


def _found(connection: Connection, query: Select[Any], id_: Any, ids: Iterable[int]) -> dict[int, Whereabouts]:
    found = {}
    for some in _portions(ids):
        for row in connection.execute(query.where(id_.in_(some))):
            found[int(row[0])] = Whereabouts((TopicName.parse(row[1]),), row[2] if len(row) > 2 else None)
    return found


def _portions(ids: Iterable[int]) -> Iterator[list[int]]:
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]
