"""What the database tells of things that may be wrong with a log, and that no call of the service shows.

Each function is about one moment, that of the transaction that it is given. Times are milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.metadata.store.prepared import Prepared
from txn_source.model.kinds import OPEN

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@dataclass(frozen=True, slots=True)
class Given:
    """The highest ids that the log has given, ever: what is above one of them is none of its own."""

    topic_id: int
    ledger_id: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A file that waits to be deleted, since when; or an offload under way, and since when."""

    uri: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """A partition whose last message is published in the future, in microseconds since the epoch."""

    topic: str
    partition: int
    last_publish_time_us: int


@dataclass(frozen=True, slots=True)
class FencedTransaction:
    """An open transaction of a producer that another one has taken over from."""

    txn: int
    transactional_id: str
    epoch: int
    newest_epoch: int


@dataclass(frozen=True, slots=True)
class StrayCursor:
    """A subscription that stands behind the end of a partition (both as ``Position.key``)."""

    topic: str
    subscription: str
    partition: int
    mark_position: int
    log_end: int


def given(connection: Connection) -> Given:
    """Return the highest ids that were given."""
    if connection.dialect.name == "sqlite":
        rows = dict(_SQLITE_COUNTERS.rows(connection, {}))
    else:
        rows = {name.removesuffix("_id_seq"): last or 0 for name, last in _POSTGRES_COUNTERS.rows(connection, {})}
        rows = {table: rows.get(f"{table}_{column}", 0) for table, column in _COUNTED.items()}
    return Given(*(int(rows.get(table, 0)) for table in _COUNTED))


def doomed(connection: Connection) -> set[str]:
    """Return the URIs of all files that are to be deleted."""
    return {uri for (uri,) in _ALL_DOOMED.rows(connection, {})}


def doomed_before(connection: Connection, before_ms: int) -> list[Waiting]:
    """Return the files that have been waiting to be deleted since a time or longer."""
    return [Waiting(*row) for row in _DOOMED.rows(connection, {"before": before_ms})]


def offloads_before(connection: Connection, before_ms: int) -> list[Waiting]:
    """Return the offloads that were begun before a time and have not ended."""
    return [Waiting(*row) for row in _OFFLOADS.rows(connection, {"before": before_ms})]


def orphaned_deliveries(connection: Connection) -> list[tuple[str, str, int]]:
    """Return topic, subscription, and how many deliveries it has that are a consumer's who isn't there."""
    return [(topic, name, count) for topic, name, count in _ORPHANED.rows(connection, {})]


def published_after(connection: Connection, time_us: int) -> list[Ahead]:
    """Return the partitions whose last message was published after a time (microseconds since the epoch)."""
    return [Ahead(*row) for row in _AHEAD.rows(connection, {"time": time_us})]


def fenced_transactions(connection: Connection) -> list[FencedTransaction]:
    """Return open transactions of producers that newer ones have taken over from."""
    return [FencedTransaction(*row) for row in _FENCED.rows(connection, {})]


def stray_cursors(connection: Connection) -> list[StrayCursor]:
    """Return the subscriptions that stand behind the end of a partition."""
    return [StrayCursor(*row) for row in _STRAY.rows(connection, {})]


def topic_names(connection: Connection) -> Mapping[int, str]:
    """Return the names of all topics by id."""
    return dict(_TOPICS.rows(connection, {}))


_COUNTED = {"topics": "topic", "ledgers": "ledger", "producers": "producer"}
"""The tables that number what files are named after, and what they number."""
_SQLITE_COUNTERS = Prepared("SELECT name, seq FROM sqlite_sequence")
_POSTGRES_COUNTERS = Prepared("SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = current_schema()")
_ALL_DOOMED = Prepared("SELECT uri FROM doomed_files")
_DOOMED = Prepared(
    "SELECT uri, forget_after_ms FROM doomed_files WHERE forget_after_ms < :before ORDER BY forget_after_ms, doomed_id"
)
_OFFLOADS = Prepared(
    "SELECT uri, begun_at_ms FROM copies WHERE complete = 0 AND begun_at_ms < :before ORDER BY begun_at_ms, copy_id"
)
_ORPHANED = Prepared(
    """
    SELECT t.name, s.name, COUNT(*)
    FROM deliveries AS d
    JOIN subscriptions AS s ON s.subscription_id = d.subscription_id
    JOIN topics AS t ON t.topic_id = s.topic_id
    WHERE d.consumer_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM consumers AS c WHERE c.consumer_id = d.consumer_id)
    GROUP BY t.name, s.name ORDER BY t.name, s.name"""
)
_AHEAD = Prepared(
    """
    SELECT t.name, p.partition_index, p.last_publish_time_us
    FROM partitions AS p JOIN topics AS t ON t.topic_id = p.topic_id
    WHERE p.last_publish_time_us > :time ORDER BY t.name, p.partition_index"""
)
_FENCED = Prepared(
    f"""
    SELECT t.txn, p.transactional_id, p.epoch, MAX(n.epoch)
    FROM transactions AS t
    JOIN transaction_producers AS tp ON tp.txn = t.txn
    JOIN producers AS p ON p.producer_id = tp.producer_id
    JOIN producers AS n ON n.topic_id = p.topic_id AND n.transactional_id = p.transactional_id AND n.epoch > p.epoch
    WHERE t.state = {OPEN} GROUP BY t.txn, p.transactional_id, p.epoch ORDER BY t.txn"""
)
_END = "(l.ledger_id << 32) + l.entries"
_STRAY = Prepared(
    f"""
    SELECT t.name, s.name, p.partition_index, c.mark_position, {_END}
    FROM cursors AS c
    JOIN subscriptions AS s ON s.subscription_id = c.subscription_id
    JOIN partitions AS p ON p.partition_id = c.partition_id
    JOIN topics AS t ON t.topic_id = p.topic_id
    JOIN ledgers AS l ON l.ledger_id = p.open_ledger_id
    WHERE c.mark_position > {_END} ORDER BY t.name, s.name, p.partition_index"""
)
_TOPICS = Prepared("SELECT topic_id, name FROM topics")
