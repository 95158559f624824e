"""Figures of the whole log for those who watch it: topics, what open transactions hold back, files, consumers.

Each statement is about all topics at once, so that a thousand of them cost little more than one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.metadata.store.prepared import Prepared
from txn_source.model.kinds import OPEN
from txn_source.model.position import key_of

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """A partition: bounds as ``Position.key``, and the messages and bytes before them since it was made.

    Behind ``last_stable`` (exclusive) nothing is readable at read_committed. ``waits_since_us`` is when the first entry
    there was published, None if nothing waits.
    """

    partition_id: int
    topic_id: int
    index: int
    log_start: int
    last_stable: int
    log_end: int
    messages_before_stable: int
    messages: int
    messages_trimmed: int
    bytes_before_stable: int
    bytes: int
    bytes_trimmed: int
    last_publish_time_us: int
    high_watermark: int
    messages_before_high: int
    bytes_before_high: int
    waits_since_us: int | None = None

    @property
    def short_messages(self) -> int:
        """Messages at or above the first entry with too few copies: nobody reads them yet."""
        return self.messages - self.messages_before_high

    @property
    def held_back_messages(self) -> int:
        """Messages below the high watermark that open transactions hold back, their own among them."""
        return self.messages_before_high - self.messages_before_stable

    @property
    def held_back_bytes(self) -> int:
        """Their bytes."""
        return self.bytes_before_high - self.bytes_before_stable


@dataclass(frozen=True, slots=True)
class LogFigures:
    """The log at one moment; ``topics`` are names by id, times milliseconds since the epoch."""

    topics: Mapping[int, str]
    partitions: Sequence[PartitionFigures]
    transactions_begun: int
    transactions_ended: int
    open_transactions: int
    oldest_open_ms: int | None
    consumers: int
    consumers_without_lease: int
    doomed_files: int
    offloads_under_way: int
    oldest_offload_ms: int | None


def log_figures(connection: Connection, now_ms: int) -> LogFigures:
    """Return the figures as of this transaction's moment."""
    [(begun, ended)] = _LOG.rows(connection, {})
    [(open_count, oldest)] = _OPEN.rows(connection, {})
    [(consumers, without_lease)] = _CONSUMERS.rows(connection, {"now_ms": now_ms})
    [(doomed,)] = _DOOMED.rows(connection, {})
    [(offloads, oldest_offload)] = _OFFLOADS.rows(connection, {})
    return LogFigures(
        dict(_TOPICS.rows(connection, {})),
        partition_figures(connection),
        begun,
        ended,
        open_count,
        oldest,
        consumers,
        int(without_lease or 0),
        doomed,
        offloads,
        oldest_offload,
    )


def partition_figures(connection: Connection) -> list[PartitionFigures]:
    """Return all partitions of the log."""
    short = {row[0]: row[1:] for row in _SHORT.rows(connection, {})}
    waiting = {row[0]: row[1:] for row in _WAITING.rows(connection, {})}
    found = []
    for row in _PARTITIONS.rows(connection, {}):
        partition_id, topic_id, index, log_start, ledger_id, entries, *totals = row
        messages, messages_trimmed, of_bytes, bytes_trimmed, last_us = totals
        end = key_of(ledger_id, entries)
        high, high_messages, high_bytes = short.get(partition_id, (end, None, None))
        high_messages = messages if high_messages is None else high_messages
        high_bytes = of_bytes if high_bytes is None else high_bytes
        stable, stable_messages, stable_bytes, since_us = end, messages, of_bytes, None
        if partition_id in waiting:
            stable, before, bytes_before, since_us = waiting[partition_id]
            stable = max(stable, log_start)
            stable_messages = messages_trimmed if before is None else before  # its first entry was trimmed
            stable_bytes = bytes_trimmed if bytes_before is None else bytes_before
        found.append(
            PartitionFigures(
                partition_id,
                topic_id,
                index,
                log_start,
                stable,
                end,
                stable_messages,
                messages,
                messages_trimmed,
                stable_bytes,
                of_bytes,
                bytes_trimmed,
                last_us,
                high,
                high_messages,
                high_bytes,
                since_us,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Blocker:
    """An open transaction on one partition, and what lies at or above its first entry and below the high watermark.

    Times are milliseconds since the epoch. ``messages`` and ``bytes`` are its own there. ``is_first``: the partition's
    readers wait for it first.
    """

    txn: int
    created_at_ms: int
    deadline_ms: int
    partition_id: int
    first_position: int
    held_back_messages: int
    held_back_bytes: int
    messages: int
    bytes: int
    is_first: bool


def blockers(connection: Connection) -> list[Blocker]:
    """Return what each open transaction holds back on each partition that it wrote to, the oldest one first."""
    rows = _BLOCKERS.rows(connection, {})
    return [
        Blocker(a, b, c, d, e, max(0, f), max(0, g), own, own_bytes, bool(first))
        for a, b, c, d, e, f, g, own, own_bytes, first in rows
    ]


FIRST_OPEN = f"""
    SELECT partition_id, MIN(first_position) AS first_position
    FROM transaction_partitions WHERE state = {OPEN} GROUP BY partition_id"""
"""Where the open transactions begin on each partition that has any."""
FIRST_WAITING = f"""
    SELECT partition_id, MIN(first_position) AS first_position FROM (
        SELECT partition_id, first_position FROM transaction_partitions WHERE state = {OPEN}
        UNION ALL SELECT partition_id, position FROM short_entries
        UNION ALL SELECT t.partition_id, t.first_position FROM short_entries AS s
        CROSS JOIN transaction_partitions AS t
        WHERE t.partition_id = s.partition_id AND t.marker_position >= s.position
    ) AS unstable GROUP BY partition_id"""
"""Where what read_committed waits for begins on each partition: also entries with too few copies, and the unreplicated
transactions. CROSS JOIN, so that SQLite begins with the short entries, of which there are mostly none."""
_LOG = Prepared("SELECT transactions, decisions FROM log_info")
_OPEN = Prepared(f"SELECT COUNT(*), MIN(created_at_ms) FROM transactions WHERE state = {OPEN}")
_CONSUMERS = Prepared("SELECT COUNT(*), SUM(CASE WHEN lease_until_ms <= :now_ms THEN 1 ELSE 0 END) FROM consumers")
_DOOMED = Prepared("SELECT COUNT(*) FROM doomed_files")
_OFFLOADS = Prepared("SELECT COUNT(*), MIN(begun_at_ms) FROM copies WHERE complete = 0")
_TOPICS = Prepared("SELECT topic_id, name FROM topics")
_PARTITIONS = Prepared(
    """
    SELECT partitions.partition_id, topic_id, partition_index, log_start, open_ledger_id, entries,
        messages_before + messages, messages_trimmed, bytes_before + bytes, bytes_trimmed,
        partitions.last_publish_time_us
    FROM partitions JOIN ledgers ON ledger_id = open_ledger_id ORDER BY topic_id, partition_index"""
)
_FIRST_SHORT = """
    SELECT short.partition_id, short.position, messages_before, bytes_before
    FROM (SELECT partition_id, MIN(position) AS position FROM short_entries GROUP BY partition_id) AS short
    LEFT JOIN entries ON entries.partition_id = short.partition_id AND entries.position = short.position"""
_SHORT = Prepared(_FIRST_SHORT)
_WAITING = Prepared(
    f"""
    SELECT waiting.partition_id, waiting.first_position, messages_before, bytes_before, publish_time_us
    FROM ({FIRST_WAITING}) AS waiting
    LEFT JOIN entries ON entries.partition_id = waiting.partition_id AND position = waiting.first_position"""
)
_BLOCKERS = Prepared(
    f"""
    SELECT t.txn, t.created_at_ms, t.deadline_ms, w.partition_id, w.first_position,
        COALESCE(s.messages_before, l.messages_before + l.messages) - COALESCE(e.messages_before, p.messages_trimmed),
        COALESCE(s.bytes_before, l.bytes_before + l.bytes) - COALESCE(e.bytes_before, p.bytes_trimmed),
        w.messages, w.bytes, CASE WHEN f.first_position = w.first_position THEN 1 ELSE 0 END
    FROM transactions AS t
    CROSS JOIN transaction_partitions AS w
    JOIN partitions AS p ON p.partition_id = w.partition_id
    JOIN ledgers AS l ON l.ledger_id = p.open_ledger_id
    JOIN ({FIRST_OPEN}) AS f ON f.partition_id = w.partition_id
    LEFT JOIN ({_FIRST_SHORT}) AS s ON s.partition_id = w.partition_id
    LEFT JOIN entries AS e ON e.partition_id = w.partition_id AND e.position = w.first_position
    WHERE t.state = {OPEN} AND w.txn = t.txn AND w.state = {OPEN}
    ORDER BY t.created_at_ms, t.txn, w.partition_id"""
)
"""CROSS JOIN, so that SQLite begins with the open transactions, and not with all traces of their partitions."""
