"""Values that differ after a change that matters to consumers, for those who can't be told of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.database import Change
from txn_source.metadata.store.prepared import Lookup


def read_states(connection: Connection, topic_ids: Sequence[int]) -> dict[Change, list[Any]]:
    """Return the states of topics (entries, those short of copies) and of their subscriptions (epochs, consumers,
    what comes again)."""
    states: dict[Change, list[Any]] = defaultdict(list)
    for number, query in enumerate(_STATES):
        for topic_id, subscription_id, *state in query.rows(connection, topic_ids):
            states[topic_id, subscription_id].append((number, *state))
    return states


_STATES = (
    Lookup("""
        SELECT topic_id, 0, SUM(open_ledger_id), SUM(ledgers.entries)
        FROM partitions JOIN ledgers ON ledgers.ledger_id = partitions.open_ledger_id
        WHERE topic_id IN (:values) GROUP BY topic_id"""),
    Lookup("""
        SELECT topic_id, 0, COUNT(*), MIN(short_entries.position)
        FROM partitions JOIN short_entries ON short_entries.partition_id = partitions.partition_id
        WHERE topic_id IN (:values) GROUP BY topic_id"""),
    Lookup("SELECT topic_id, subscription_id, epoch FROM subscriptions WHERE topic_id IN (:values)"),
    Lookup("""
        SELECT topic_id, subscriptions.subscription_id, COUNT(*), SUM(consumer_id)
        FROM subscriptions JOIN consumers ON consumers.subscription_id = subscriptions.subscription_id
        WHERE topic_id IN (:values) GROUP BY topic_id, subscriptions.subscription_id"""),
    Lookup("""
        SELECT topic_id, subscriptions.subscription_id, COUNT(*), SUM(delivery_id)
        FROM subscriptions JOIN deliveries ON deliveries.subscription_id = subscriptions.subscription_id
        WHERE topic_id IN (:values) AND consumer_id IS NULL GROUP BY topic_id, subscriptions.subscription_id"""),
)
