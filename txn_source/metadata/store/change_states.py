"""Values that differ after a change that matters to consumers, for those who can't be told of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, literal, select

from txn_source.metadata.store.database import Change
from txn_source.metadata.store.tables import consumers, deliveries, ledgers, partitions, short_entries, subscriptions


def read_states(connection: Connection, topic_ids: Sequence[int]) -> dict[Change, list[Any]]:
    """Return the states of topics (entries, those short of copies) and of their subscriptions (epochs, consumers,
    what comes again)."""
    states: dict[Change, list[Any]] = defaultdict(list)
    s = subscriptions.c
    queries = (
        select(partitions.c.topic_id, literal(0), func.sum(partitions.c.open_ledger_id), func.sum(ledgers.c.entries))
        .join(ledgers, ledgers.c.ledger_id == partitions.c.open_ledger_id)
        .where(partitions.c.topic_id.in_(topic_ids))
        .group_by(partitions.c.topic_id),
        select(partitions.c.topic_id, literal(0), func.count(), func.min(short_entries.c.position))
        .join(short_entries, short_entries.c.partition_id == partitions.c.partition_id)
        .where(partitions.c.topic_id.in_(topic_ids))
        .group_by(partitions.c.topic_id),
        select(s.topic_id, s.subscription_id, s.epoch).where(s.topic_id.in_(topic_ids)),
        select(s.topic_id, s.subscription_id, func.count(), func.sum(consumers.c.consumer_id))
        .join(consumers, consumers.c.subscription_id == s.subscription_id)
        .where(s.topic_id.in_(topic_ids))
        .group_by(s.topic_id, s.subscription_id),
        select(s.topic_id, s.subscription_id, func.count(), func.sum(deliveries.c.delivery_id))
        .join(deliveries, deliveries.c.subscription_id == s.subscription_id)
        .where(s.topic_id.in_(topic_ids), deliveries.c.consumer_id.is_(None))
        .group_by(s.topic_id, s.subscription_id),
    )
    for number, query in enumerate(queries):
        for row in connection.execute(query):
            states[row[0], row[1]].append((number, *row[2:]))
    return states
